// A cache that keeps nothing, and does wrong what its settings ask for: `where` names one of the functions,
// without `TRITONCACHE_`, and `fault` the fault.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tritonpy/cache.h"

namespace {

struct Cache {
  std::string config;
};

bool asks(const std::string& config, const std::string& text) {
  return config.find("\"" + text + "\"") != std::string::npos;
}

TRITONSERVER_Error* call(const std::string& config, const char* where) {
  if (!asks(config, where)) return nullptr;
  volatile int* volatile nowhere = nullptr;
  if (asks(config, "segfault")) *nowhere = 1;
  if (asks(config, "exit")) std::exit(3);
  while (asks(config, "loop")) pause();
  if (asks(config, "digits")) std::stoull("12345678901234567890123");
  if (asks(config, "error")) {
    const std::string text = std::string(where) + " had no wish to";
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text.c_str());
  }
  return nullptr;
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONCACHE_CacheInitialize(TRITONCACHE_Cache** cache, const char* config) {
  if (TRITONSERVER_Error* error = call(config, "CacheInitialize")) return error;
  *cache = reinterpret_cast<TRITONCACHE_Cache*>(new Cache{config});
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheFinalize(TRITONCACHE_Cache* cache) {
  auto* ours = reinterpret_cast<Cache*>(cache);
  TRITONSERVER_Error* error = call(ours->config, "CacheFinalize");
  delete ours;
  return error;
}

TRITONSERVER_Error* TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache* cache, const char* key, TRITONCACHE_CacheEntry*, TRITONCACHE_Allocator*) {
  if (TRITONSERVER_Error* error = call(reinterpret_cast<Cache*>(cache)->config, "CacheLookup")) return error;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, (std::string("there is no ") + key).c_str());
}

TRITONSERVER_Error* TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache* cache, const char*, TRITONCACHE_CacheEntry*, TRITONCACHE_Allocator*) {
  return call(reinterpret_cast<Cache*>(cache)->config, "CacheInsert");
}
}
