// Texts of plugins between quotes, as JSON has them.
#pragma once

#include <string>

namespace tritonpy {

// Adds the text in quotes. Control characters are escaped; bytes beyond ASCII stay what they are.
void add_quoted(std::string& to, const char* text, size_t byte_size);

inline void add_quoted(std::string& to, const std::string& text) { add_quoted(to, text.data(), text.size()); }

}  // namespace tritonpy
