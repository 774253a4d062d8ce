#include "core/text.h"

namespace tritonpy {

void add_quoted(std::string& to, const char* text, size_t byte_size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  to += '"';
  for (size_t index = 0; index < byte_size; ++index) {
    const auto byte = static_cast<unsigned char>(text[index]);
    if (byte == '"' || byte == '\\') {
      to += '\\';
      to += text[index];
    } else if (byte == '\n' || byte == '\r' || byte == '\t') {
      to += '\\';
      to += byte == '\n' ? 'n' : byte == '\r' ? 'r' : 't';
    } else if (byte < 0x20 || byte == 0x7f) {
      to += "\\u00";
      to += kDigits[byte >> 4];
      to += kDigits[byte & 15];
    } else {
      to += text[index];
    }
  }
  to += '"';
}

}  // namespace tritonpy
