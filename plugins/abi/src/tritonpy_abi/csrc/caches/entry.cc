// The functions that caches call. Errors have the words of Triton, which ends in some of these cases.

#include "caches/entry.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "guard.h"

namespace {

using tritonpy::invalid;

TRITONSERVER_Error* internal(const std::string& message) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, message.c_str());
}

// An error for a buffer that the processor cannot reach, or NULL.
TRITONSERVER_Error* refuse(const TRITONSERVER_BufferAttributes& attributes) {
  const auto type = attributes.memory_type;
  return type == TRITONSERVER_MEMORY_CPU || type == TRITONSERVER_MEMORY_CPU_PINNED
             ? nullptr
             : invalid("Only buffers in CPU memory are allowed in cache currently");
}

TRITONSERVER_Error* without_memory() {
  return invalid("buffer 0 of the entry has no memory: give it some with TRITONCACHE_CacheEntrySetBuffer");
}

TRITONSERVER_Error* fill(
    const TRITONCACHE_Allocator& allocator, const TRITONCACHE_CacheEntry::Buffer& buffer) {
  const size_t byte_size = buffer.attributes.byte_size;
  if (byte_size != allocator.source_size) {
    return internal(
        "Serialized buffer size does not match. Expected: " + std::to_string(allocator.source_size) +
        ", received: " + std::to_string(byte_size));
  }
  if (buffer.base == nullptr) {
    return without_memory();
  }
  std::memcpy(buffer.base, allocator.source, byte_size);
  return nullptr;
}

TRITONSERVER_Error* take(TRITONCACHE_Allocator* allocator, const TRITONCACHE_CacheEntry::Buffer& buffer) {
  if (buffer.base == nullptr) {
    return without_memory();  // it was added with some, and set without
  }
  const size_t byte_size = buffer.attributes.byte_size;
  void* copy = std::malloc(byte_size);
  if (copy == nullptr) {
    return internal("no memory for an entry of " + std::to_string(byte_size) + " bytes");
  }
  std::memcpy(copy, buffer.base, byte_size);
  std::free(allocator->taken);
  allocator->taken = copy;
  allocator->taken_size = byte_size;
  return nullptr;
}

}  // namespace

TRITONSERVER_Error* TRITONCACHE_CacheEntryBufferCount(TRITONCACHE_CacheEntry* entry, size_t* count) {
  if (entry == nullptr || count == nullptr) {
    return invalid("entry or count was nullptr");
  }
  *count = entry->buffers.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheEntryAddBuffer(
    TRITONCACHE_CacheEntry* entry, void* base, TRITONSERVER_BufferAttributes* attributes) {
  if (entry == nullptr || base == nullptr || attributes == nullptr) {
    return invalid("entry, base, or attrs was nullptr");
  }
  if (auto* error = refuse(*attributes)) {
    return error;
  }
  if (attributes->byte_size == 0) {
    return invalid("Buffer byte size was zero");
  }
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    entry->buffers.push_back({base, *attributes});
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONCACHE_CacheEntryGetBuffer(
    TRITONCACHE_CacheEntry* entry, size_t index, void** base, TRITONSERVER_BufferAttributes* attributes) {
  if (entry == nullptr || base == nullptr || attributes == nullptr) {
    return invalid("entry, base, or attrs was nullptr");
  }
  if (index >= entry->buffers.size()) {
    return invalid("index was greater than count");
  }
  *base = entry->buffers[index].base;
  *attributes = entry->buffers[index].attributes;
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheEntrySetBuffer(
    TRITONCACHE_CacheEntry* entry, size_t index, void* base, TRITONSERVER_BufferAttributes* attributes) {
  if (entry == nullptr) {
    return invalid("entry was nullptr");
  }
  if (index >= entry->buffers.size()) {
    return invalid("index was greater than count");
  }
  if (attributes != nullptr) {
    if (auto* error = refuse(*attributes)) {
      return error;
    }
    entry->buffers[index].attributes = *attributes;
  }
  entry->buffers[index].base = base;
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_Copy(TRITONCACHE_Allocator* allocator, TRITONCACHE_CacheEntry* entry) {
  if (allocator == nullptr || entry == nullptr) {
    return invalid("allocator or entry was nullptr");
  }
  if (entry->buffers.size() != 1) {
    return internal(
        "Expected number of responses in cache does not match. Expected: 1, received: " +
        std::to_string(entry->buffers.size()));
  }
  const TRITONCACHE_CacheEntry::Buffer& buffer = entry->buffers.front();
  return allocator->is_insertion ? fill(*allocator, buffer) : take(allocator, buffer);
}
