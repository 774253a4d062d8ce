#include <cstdlib>

#include "caches/threads.h"
#include "guard.h"

using tritonpy::CacheCall;
using tritonpy::CacheFunctions;
using tritonpy::CacheThreads;

struct TRITONPY_Cache {
  std::shared_ptr<CacheThreads> threads;
};

namespace {

TRITONSERVER_Error* begin(
    TRITONPY_Cache* cache, CacheCall::Kind kind, uint64_t number, const char* text,
    const void* data = nullptr, size_t byte_size = 0) {
  return tritonpy::guarded("beginning a call", [&] {
    return cache->threads->begin(CacheCall{kind, number, text, data, byte_size});
  });
}

}  // namespace

TRITONSERVER_Error* TRITONPY_CacheNew(
    TRITONPY_Cache** cache, void* initialize, void* finalize, void* lookup, void* insert,
    uint32_t most_threads) {
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    const CacheFunctions functions{
        reinterpret_cast<decltype(CacheFunctions::initialize)>(initialize),
        reinterpret_cast<decltype(CacheFunctions::finalize)>(finalize),
        reinterpret_cast<decltype(CacheFunctions::lookup)>(lookup),
        reinterpret_cast<decltype(CacheFunctions::insert)>(insert)};
    *cache = new TRITONPY_Cache{std::make_shared<CacheThreads>(functions, most_threads)};
    return nullptr;
  });
}

void TRITONPY_CacheDelete(TRITONPY_Cache* cache) {
  if (cache != nullptr) {
    cache->threads->close();
    delete cache;
  }
}

int TRITONPY_CacheEvents(TRITONPY_Cache* cache) { return cache->threads->events(); }

size_t TRITONPY_CacheTake(TRITONPY_Cache* cache, TRITONPY_CacheOutcome* outcomes, size_t most) {
  return cache->threads->take(outcomes, most);
}

TRITONSERVER_Error* TRITONPY_CacheInitialize(TRITONPY_Cache* cache, uint64_t number, const char* config) {
  return begin(cache, CacheCall::Kind::kInitialize, number, config);
}

TRITONSERVER_Error* TRITONPY_CacheFinalize(TRITONPY_Cache* cache, uint64_t number) {
  return begin(cache, CacheCall::Kind::kFinalize, number, "");
}

TRITONSERVER_Error* TRITONPY_CacheLookup(TRITONPY_Cache* cache, uint64_t number, const char* key) {
  return begin(cache, CacheCall::Kind::kLookup, number, key);
}

TRITONSERVER_Error* TRITONPY_CacheInsert(
    TRITONPY_Cache* cache, uint64_t number, const char* key, const void* data, size_t byte_size) {
  return begin(cache, CacheCall::Kind::kInsert, number, key, data, byte_size);
}

bool TRITONPY_CacheGiveUp(TRITONPY_Cache* cache, uint64_t number) { return cache->threads->give_up(number); }

void TRITONPY_CacheFree(void* data) { std::free(data); }
