// A cache in C++ that throws: `--cache-config throwing,where=<function>` with Initialize, Finalize, Lookup or
// Insert, and another key for another one; `what=number` throws something that is no std::exception, and
// `what=nothing` one without a text. With `memory=none` a lookup takes back the memory that it has added.
#include <exception>
#include <stdexcept>
#include <string>

#include "tritonpy/cache.h"

namespace {

std::string config;

class Silent : public std::exception {
 public:
  const char* what() const noexcept override { return nullptr; }
};

void maybe_throw(const char* function) {
  if (config.find(":\"" + std::string(function) + "\"") == std::string::npos) return;
  if (config.find("\"what\":\"number\"") != std::string::npos) throw 7;
  if (config.find("\"what\":\"nothing\"") != std::string::npos) throw Silent();
  throw std::out_of_range(std::string(function) + " went too far");
}

}  // namespace

TRITONSERVER_Error* TRITONCACHE_CacheInitialize(TRITONCACHE_Cache** cache, const char* text) {
  config = text;
  maybe_throw("Initialize");
  *cache = reinterpret_cast<TRITONCACHE_Cache*>(&config);
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheFinalize(TRITONCACHE_Cache*) {
  maybe_throw("Finalize");
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache*, const char*, TRITONCACHE_CacheEntry* entry, TRITONCACHE_Allocator* allocator) {
  TRITONSERVER_BufferAttributes* attributes = nullptr;
  TRITONSERVER_BufferAttributesNew(&attributes);
  TRITONSERVER_BufferAttributesSetByteSize(attributes, config.size());
  TRITONCACHE_CacheEntryAddBuffer(entry, config.data(), attributes);
  TRITONSERVER_BufferAttributesDelete(attributes);
  if (config.find("\"memory\":\"none\"") != std::string::npos) {
    TRITONCACHE_CacheEntrySetBuffer(entry, 0, nullptr, nullptr);
    return TRITONCACHE_Copy(allocator, entry);
  }
  TRITONCACHE_Copy(allocator, entry);  // what it has taken by then is given back
  maybe_throw("Lookup");
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache*, const char*, TRITONCACHE_CacheEntry*, TRITONCACHE_Allocator*) {
  maybe_throw("Insert");
  return nullptr;
}
