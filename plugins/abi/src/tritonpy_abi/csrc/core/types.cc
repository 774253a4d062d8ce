// The names and sizes of datatypes, memory types, kinds.

#include <cstring>

#include "api.h"

namespace {

struct DataType {
  const char* name;
  uint32_t byte_size;
};

// By number. What is no datatype has the name that the protocols never use.
constexpr DataType kDataTypes[] = {{"<invalid>", 0}, {"BOOL", 1},  {"UINT8", 1}, {"UINT16", 2}, {"UINT32", 4},
                                   {"UINT64", 8},    {"INT8", 1},  {"INT16", 2}, {"INT32", 4},  {"INT64", 8},
                                   {"FP16", 2},      {"FP32", 4},  {"FP64", 8},  {"BYTES", 0},  {"BF16", 2}};

template <typename Entry, size_t Count>
constexpr bool has(const Entry (&)[Count], int number) {
  return number >= 0 && number < static_cast<int>(Count);
}

template <size_t Count>
const char* name_of(const char* const (&names)[Count], int number, const char* otherwise) {
  return has(names, number) ? names[number] : otherwise;
}

const DataType& data_type(TRITONSERVER_DataType datatype) {
  return kDataTypes[has(kDataTypes, datatype) ? datatype : TRITONSERVER_TYPE_INVALID];
}

}  // namespace

const char* TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype) { return data_type(datatype).name; }

uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype) {
  return data_type(datatype).byte_size;
}

TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char* name) {
  for (int number = TRITONSERVER_TYPE_BOOL; name != nullptr && has(kDataTypes, number); ++number) {
    if (std::strcmp(name, kDataTypes[number].name) == 0) {
      return static_cast<TRITONSERVER_DataType>(number);
    }
  }
  return TRITONSERVER_TYPE_INVALID;
}

const char* TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType type) {
  static constexpr const char* kNames[] = {"CPU", "CPU_PINNED", "GPU"};
  return name_of(kNames, type, "<invalid>");
}

const char* TRITONSERVER_InstanceGroupKindString(TRITONSERVER_InstanceGroupKind kind) {
  static constexpr const char* kNames[] = {"AUTO", "CPU", "GPU", "MODEL"};
  return name_of(kNames, kind, "<invalid>");
}

const char* TRITONSERVER_ParameterTypeString(TRITONSERVER_ParameterType type) {
  static constexpr const char* kNames[] = {"STRING", "INT", "BOOL", "DOUBLE", "BYTES"};
  return name_of(kNames, type, "<invalid>");
}
