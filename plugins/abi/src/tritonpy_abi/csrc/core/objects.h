// What stands behind the opaque types of core.h, for the sources of this library.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "api.h"

struct TRITONSERVER_Message {
  std::string json;
};

struct TRITONSERVER_Parameter {
  // A copy of what the caller has; an unknown type is refused by `TRITONSERVER_ParameterNew`, not here.
  TRITONSERVER_Parameter(std::string name, TRITONSERVER_ParameterType type, const void* value);
  TRITONSERVER_Parameter(std::string name, const void* bytes, uint64_t byte_size);

  // To what `type` says: a zero-terminated text, an int64_t, a bool, a double, or bytes.
  const void* value() const;
  uint64_t byte_size() const;

  std::string name;
  TRITONSERVER_ParameterType type;
  std::string text;  // of a text, or bytes
  int64_t integer = 0;
  bool boolean = false;
  double number = 0;
};

struct TRITONSERVER_BufferAttributes {
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  size_t byte_size = 0;
  bool has_cuda_ipc_handle = false;
  std::array<char, 64> cuda_ipc_handle{};  // as large as CUDA's
};

namespace tritonpy {

TRITONSERVER_Error* invalid(const std::string& message);

// An error that names the argument, where it is NULL; the server that the API comes from ends there.
inline TRITONSERVER_Error* require(bool is_there, const char* function, const char* name) {
  return is_there ? nullptr : invalid(std::string(function) + ": " + name + " is NULL");
}

}  // namespace tritonpy

// In a function of the API: returns an error that names the argument, where it is NULL.
#define TRITONPY_REQUIRE(argument) \
  if (auto* missing = tritonpy::require((argument) != nullptr, __func__, #argument)) return missing
