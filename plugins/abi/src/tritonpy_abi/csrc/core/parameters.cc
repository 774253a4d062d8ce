#include <cstring>
#include <utility>

#include "core/objects.h"

namespace {

template <typename Value>
Value read(const void* from) {
  Value value;
  std::memcpy(&value, from, sizeof(value));  // wherever it lies
  return value;
}

}  // namespace

TRITONSERVER_Parameter::TRITONSERVER_Parameter(
    std::string its_name, TRITONSERVER_ParameterType its_type, const void* its_value)
    : name(std::move(its_name)), type(its_type) {
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      text = static_cast<const char*>(its_value);
      break;
    case TRITONSERVER_PARAMETER_INT:
      integer = read<int64_t>(its_value);
      break;
    case TRITONSERVER_PARAMETER_BOOL:
      boolean = read<unsigned char>(its_value) != 0;
      break;
    case TRITONSERVER_PARAMETER_DOUBLE:
      number = read<double>(its_value);
      break;
    case TRITONSERVER_PARAMETER_BYTES:
      break;  // has the other constructor
  }
}

TRITONSERVER_Parameter::TRITONSERVER_Parameter(
    std::string its_name, const void* bytes, uint64_t its_byte_size)
    : name(std::move(its_name)), type(TRITONSERVER_PARAMETER_BYTES) {
  if (its_byte_size != 0) {
    text.assign(static_cast<const char*>(bytes), its_byte_size);
  }
}

const void* TRITONSERVER_Parameter::value() const {
  switch (type) {
    case TRITONSERVER_PARAMETER_INT:
      return &integer;
    case TRITONSERVER_PARAMETER_BOOL:
      return &boolean;
    case TRITONSERVER_PARAMETER_DOUBLE:
      return &number;
    default:
      return text.c_str();
  }
}

uint64_t TRITONSERVER_Parameter::byte_size() const {
  switch (type) {
    case TRITONSERVER_PARAMETER_INT:
      return sizeof(integer);
    case TRITONSERVER_PARAMETER_BOOL:
      return sizeof(boolean);
    case TRITONSERVER_PARAMETER_DOUBLE:
      return sizeof(number);
    default:
      return text.size();
  }
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterNew(
    const char* name, TRITONSERVER_ParameterType type, const void* value) {
  const bool is_known = type >= TRITONSERVER_PARAMETER_STRING && type <= TRITONSERVER_PARAMETER_DOUBLE;
  if (name == nullptr || value == nullptr || !is_known) {
    return nullptr;  // as for bytes, which have a function of their own
  }
  return new TRITONSERVER_Parameter(name, type, value);
}

TRITONSERVER_Parameter* TRITONSERVER_ParameterBytesNew(
    const char* name, const void* bytes, uint64_t byte_size) {
  if (name == nullptr || (bytes == nullptr && byte_size != 0)) {
    return nullptr;
  }
  return new TRITONSERVER_Parameter(name, bytes, byte_size);
}

void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter* parameter) { delete parameter; }
