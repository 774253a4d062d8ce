// What a cache is given beside a key: an entry, and the allocator that moves its bytes.
#pragma once

#include <cstddef>
#include <vector>

#include "core/objects.h"

// Belongs to one call of a cache, and is used by the thread of that call alone.
struct TRITONCACHE_CacheEntry {
  struct Buffer {
    void* base;  // NULL: the cache has given no memory yet
    TRITONSERVER_BufferAttributes attributes;
  };
  std::vector<Buffer> buffers;
};

// Copies between memory of the server and that of a cache, which is there only for as long as the call lasts.
struct TRITONCACHE_Allocator {
  bool is_insertion = false;
  // An insertion: from here into the cache's buffer.
  const void* source = nullptr;
  size_t source_size = 0;
  // A lookup: what was copied from the cache's buffer; allocated with malloc.
  void* taken = nullptr;
  size_t taken_size = 0;
};
