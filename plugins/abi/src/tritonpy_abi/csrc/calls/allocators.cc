// Functions of a backend that give buffers to the responses of other models.

#include "calls/objects.h"

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorNew(
    TRITONSERVER_ResponseAllocator** allocator, TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn, TRITONSERVER_ResponseAllocatorStartFn_t start_fn) {
  TRITONPY_REQUIRE(allocator);
  TRITONPY_REQUIRE(alloc_fn);
  TRITONPY_REQUIRE(release_fn);
  *allocator = new TRITONSERVER_ResponseAllocator{alloc_fn, release_fn, start_fn};
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorDelete(TRITONSERVER_ResponseAllocator* allocator) {
  delete allocator;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    TRITONSERVER_ResponseAllocator* allocator,
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn) {
  TRITONPY_REQUIRE(allocator);
  allocator->attributes = buffer_attributes_fn;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorSetQueryFunction(
    TRITONSERVER_ResponseAllocator* allocator, TRITONSERVER_ResponseAllocatorQueryFn_t query_fn) {
  TRITONPY_REQUIRE(allocator);
  allocator->query = query_fn;
  return nullptr;
}
