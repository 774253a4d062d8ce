#include <cstring>

#include "core/objects.h"

TRITONSERVER_Error* TRITONSERVER_BufferAttributesNew(TRITONSERVER_BufferAttributes** attributes) {
  TRITONPY_REQUIRE(attributes);
  *attributes = new TRITONSERVER_BufferAttributes;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesDelete(TRITONSERVER_BufferAttributes* attributes) {
  delete attributes;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetMemoryType(
    TRITONSERVER_BufferAttributes* attributes, TRITONSERVER_MemoryType type) {
  TRITONPY_REQUIRE(attributes);
  attributes->memory_type = type;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetMemoryTypeId(
    TRITONSERVER_BufferAttributes* attributes, int64_t id) {
  TRITONPY_REQUIRE(attributes);
  attributes->memory_type_id = id;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetCudaIpcHandle(
    TRITONSERVER_BufferAttributes* attributes, void* handle) {
  TRITONPY_REQUIRE(attributes);
  attributes->has_cuda_ipc_handle = handle != nullptr;
  if (handle != nullptr) {
    std::memcpy(attributes->cuda_ipc_handle.data(), handle, attributes->cuda_ipc_handle.size());
  }
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesSetByteSize(
    TRITONSERVER_BufferAttributes* attributes, size_t byte_size) {
  TRITONPY_REQUIRE(attributes);
  attributes->byte_size = byte_size;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesMemoryType(
    TRITONSERVER_BufferAttributes* attributes, TRITONSERVER_MemoryType* type) {
  TRITONPY_REQUIRE(attributes);
  TRITONPY_REQUIRE(type);
  *type = attributes->memory_type;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesMemoryTypeId(
    TRITONSERVER_BufferAttributes* attributes, int64_t* id) {
  TRITONPY_REQUIRE(attributes);
  TRITONPY_REQUIRE(id);
  *id = attributes->memory_type_id;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesCudaIpcHandle(
    TRITONSERVER_BufferAttributes* attributes, void** handle) {
  TRITONPY_REQUIRE(attributes);
  TRITONPY_REQUIRE(handle);
  *handle = attributes->has_cuda_ipc_handle ? attributes->cuda_ipc_handle.data() : nullptr;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_BufferAttributesByteSize(
    TRITONSERVER_BufferAttributes* attributes, size_t* byte_size) {
  TRITONPY_REQUIRE(attributes);
  TRITONPY_REQUIRE(byte_size);
  *byte_size = attributes->byte_size;
  return nullptr;
}
