// What a strategy may ask of an input. The bytes of a client's shared memory are only read when it asks for
// them: it hardly ever does, and they may be many.

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "batching/objects.h"
#include "guard.h"

namespace {

std::mutex scratch_mutex;  // guards what is made for a strategy: it may ask from threads of its own

template <typename Value>
void tell(Value* place, Value value) {
  if (place != nullptr) {
    *place = value;
  }
}

// The block that the input is part of.
TRITONBACKEND_Request* request_of(TRITONBACKEND_Input* input) {
  char* first = reinterpret_cast<char*>(input - input->index);
  return reinterpret_cast<TRITONBACKEND_Request*>(first - offsetof(TRITONBACKEND_Request, inputs));
}

TRITONSERVER_Error* unreadable(const TRITONBACKEND_Input* input, const std::string& reason) {
  const std::string text = "the bytes of input '" + std::string(input->name) + "' " + reason;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, text.c_str());
}

TRITONSERVER_Error* read(const TRITONBACKEND_Input* input, char* target) {
  uint64_t done = 0;
  while (done < input->byte_size) {
    const off_t position = input->position + static_cast<off_t>(done);
    const ssize_t count = pread(input->descriptor, target + done, input->byte_size - done, position);
    if (count == 0) {
      return unreadable(input, "are not there any more: its shared memory has been made smaller");
    }
    if (count < 0 && errno != EINTR) {
      return unreadable(input, std::string("cannot be read from shared memory: ") + std::strerror(errno));
    }
    done += count < 0 ? 0 : static_cast<uint64_t>(count);
  }
  return nullptr;
}

TRITONSERVER_Error* snapshot(TRITONBACKEND_Input* input, const void** data) {
  const std::lock_guard<std::mutex> lock(scratch_mutex);
  if (input->snapshot == nullptr) {
    void* made = std::malloc(input->byte_size);
    if (made == nullptr) {
      return unreadable(input, "do not fit into memory");
    }
    if (TRITONSERVER_Error* error = read(input, static_cast<char*>(made))) {
      std::free(made);
      return error;
    }
    input->snapshot = made;
    request_of(input)->has_scratch = true;
  }
  *data = input->snapshot;
  return nullptr;
}

TRITONSERVER_Error* bytes_of(TRITONBACKEND_Input* input, const void** data) {
  if (input->data != nullptr) {
    *data = input->data;
    return nullptr;
  }
  if (input->descriptor < 0) {
    return unreadable(input, "are not in the memory of the server");
  }
  return snapshot(input, data);
}

TRITONSERVER_Error* attributes_of(TRITONBACKEND_Input* input, TRITONSERVER_BufferAttributes** attributes) {
  const std::lock_guard<std::mutex> lock(scratch_mutex);
  if (input->attributes == nullptr) {
    auto* made = new TRITONSERVER_BufferAttributes;
    made->byte_size = input->byte_size;
    made->memory_type = static_cast<TRITONSERVER_MemoryType>(input->memory_type);
    made->memory_type_id = input->memory_type_id;
    input->attributes = made;
    request_of(input)->has_scratch = true;
  }
  *attributes = static_cast<TRITONSERVER_BufferAttributes*>(input->attributes);
  return nullptr;
}

}  // namespace

void tritonpy::clear_scratch(TRITONBACKEND_Request* request) {
  for (uint32_t index = 0; index < request->input_count; ++index) {
    TRITONBACKEND_Input& input = request->inputs[index];
    std::free(input.snapshot);
    delete static_cast<TRITONSERVER_BufferAttributes*>(input.attributes);
    input.snapshot = input.attributes = nullptr;
  }
  request->has_scratch = false;
}

TRITONSERVER_Error* TRITONBACKEND_InputProperties(
    TRITONBACKEND_Input* input, const char** name, TRITONSERVER_DataType* datatype, const int64_t** shape,
    uint32_t* dim_count, uint64_t* byte_size, uint32_t* buffer_count) {
  TRITONPY_REQUIRE(input);
  tell(name, input->name);
  tell(datatype, static_cast<TRITONSERVER_DataType>(input->datatype));
  tell(shape, input->shape);
  tell(dim_count, input->dim_count);
  tell(byte_size, input->byte_size);
  tell(buffer_count, input->byte_size == 0 ? 0U : 1U);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputPropertiesForHostPolicy(
    TRITONBACKEND_Input* input, const char*, const char** name, TRITONSERVER_DataType* datatype,
    const int64_t** shape, uint32_t* dim_count, uint64_t* byte_size, uint32_t* buffer_count) {
  return TRITONBACKEND_InputProperties(input, name, datatype, shape, dim_count, byte_size, buffer_count);
}

TRITONSERVER_Error* TRITONBACKEND_InputBuffer(
    TRITONBACKEND_Input* input, uint32_t index, const void** buffer, uint64_t* byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) {
  TRITONPY_REQUIRE(input);
  TRITONPY_REQUIRE(buffer);
  *buffer = nullptr;
  tell<uint64_t>(byte_size, 0);
  if (index != 0 || input->byte_size == 0) {  // as in Triton: no bytes, and no error
    tell(memory_type, TRITONSERVER_MEMORY_CPU);
    tell<int64_t>(memory_type_id, 0);
    return nullptr;
  }
  tell(memory_type, static_cast<TRITONSERVER_MemoryType>(input->memory_type));
  tell(memory_type_id, input->memory_type_id);
  if (TRITONSERVER_Error* error = bytes_of(input, buffer)) {
    return error;
  }
  tell(byte_size, input->byte_size);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InputBufferForHostPolicy(
    TRITONBACKEND_Input* input, const char*, uint32_t index, const void** buffer, uint64_t* byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) {
  return TRITONBACKEND_InputBuffer(input, index, buffer, byte_size, memory_type, memory_type_id);
}

TRITONSERVER_Error* TRITONBACKEND_InputBufferAttributes(
    TRITONBACKEND_Input* input, uint32_t index, const void** buffer,
    TRITONSERVER_BufferAttributes** attributes) {
  TRITONPY_REQUIRE(input);
  TRITONPY_REQUIRE(buffer);
  TRITONPY_REQUIRE(attributes);
  *buffer = nullptr;
  *attributes = nullptr;
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    if (index != 0 || input->byte_size == 0) {
      return nullptr;  // as in Triton: neither bytes nor attributes, and no error
    }
    if (TRITONSERVER_Error* error = bytes_of(input, buffer)) {
      return error;
    }
    return attributes_of(input, attributes);
  });
}
