// The four functions of a cache, called so that nothing they do wrong is undefined.
#pragma once

#include <cstddef>
#include <string>

#include "api.h"

namespace tritonpy {

struct CacheFunctions {
  decltype(&TRITONCACHE_CacheInitialize) initialize;
  decltype(&TRITONCACHE_CacheFinalize) finalize;
  decltype(&TRITONCACHE_CacheLookup) lookup;
  decltype(&TRITONCACHE_CacheInsert) insert;
};

// An entry that was found, or NULL; its data is allocated with malloc, and the receiver's.
struct FoundEntry {
  void* data = nullptr;
  size_t byte_size = 0;
};

TRITONSERVER_Error* call_initialize(
    const CacheFunctions& functions, const std::string& config, TRITONCACHE_Cache** cache);
TRITONSERVER_Error* call_finalize(const CacheFunctions& functions, TRITONCACHE_Cache* cache);
// Where the cache has nothing, there is neither an error nor an entry.
TRITONSERVER_Error* call_lookup(
    const CacheFunctions& functions, TRITONCACHE_Cache* cache, const std::string& key, FoundEntry* found);
TRITONSERVER_Error* call_insert(
    const CacheFunctions& functions, TRITONCACHE_Cache* cache, const std::string& key, const void* data,
    size_t byte_size);

}  // namespace tritonpy
