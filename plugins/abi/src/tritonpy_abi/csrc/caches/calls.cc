#include "caches/calls.h"

#include <cstdlib>

#include "caches/entry.h"
#include "guard.h"

namespace tritonpy {

namespace {

TRITONSERVER_Error* internal(const char* message) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, message);
}

}  // namespace

TRITONSERVER_Error* call_initialize(
    const CacheFunctions& functions, const std::string& config, TRITONCACHE_Cache** cache) {
  *cache = nullptr;
  auto* error = guarded("TRITONCACHE_CacheInitialize", [&] {
    return functions.initialize(cache, config.c_str());
  });
  if (error == nullptr && *cache == nullptr) {
    return internal(
        "Failed to initialize cache implementation: TRITONCACHE_CacheInitialize succeeded and made no cache");
  }
  return error;
}

TRITONSERVER_Error* call_finalize(const CacheFunctions& functions, TRITONCACHE_Cache* cache) {
  return guarded("TRITONCACHE_CacheFinalize", [&] { return functions.finalize(cache); });
}

TRITONSERVER_Error* call_lookup(
    const CacheFunctions& functions, TRITONCACHE_Cache* cache, const std::string& key, FoundEntry* found) {
  TRITONCACHE_CacheEntry entry;
  TRITONCACHE_Allocator allocator;
  auto* error = guarded("TRITONCACHE_CacheLookup", [&] {
    return functions.lookup(cache, key.c_str(), &entry, &allocator);
  });
  if (error != nullptr) {
    std::free(allocator.taken);
    if (TRITONSERVER_ErrorCode(error) != TRITONSERVER_ERROR_NOT_FOUND) {
      return error;
    }
    TRITONSERVER_ErrorDelete(error);
    return nullptr;
  }
  if (allocator.taken == nullptr) {
    // The buffers it may have added are nobody's any more: it has let go of its lock.
    return internal("TRITONCACHE_CacheLookup succeeded without a call of TRITONCACHE_Copy that did");
  }
  found->data = allocator.taken;
  found->byte_size = allocator.taken_size;
  return nullptr;
}

TRITONSERVER_Error* call_insert(
    const CacheFunctions& functions, TRITONCACHE_Cache* cache, const std::string& key, const void* data,
    size_t byte_size) {
  TRITONCACHE_CacheEntry entry;
  TRITONCACHE_Allocator allocator;
  allocator.is_insertion = true;
  allocator.source = data;
  allocator.source_size = byte_size;
  return guarded("TRITONCACHE_CacheInsert", [&] {
    TRITONSERVER_BufferAttributes attributes;
    attributes.byte_size = byte_size;
    entry.buffers.push_back({nullptr, attributes});
    return functions.insert(cache, key.c_str(), &entry, &allocator);
  });
}

}  // namespace tritonpy
