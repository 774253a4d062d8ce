/* Not quite a cache: it defines HAS of the four functions, and the first of them makes nothing. */
#include "tritonpy/cache.h"

#if HAS > 0
TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache, const char *config) {
  (void)cache;
  (void)config;
  return NULL;
}
#endif

#if HAS > 1
TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache) {
  (void)cache;
  return NULL;
}
#endif

#if HAS > 2
TRITONSERVER_Error *TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator) {
  (void)cache;
  (void)key;
  (void)entry;
  (void)allocator;
  return NULL;
}
#endif

#if HAS > 3
TRITONSERVER_Error *TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator) {
  (void)cache;
  (void)key;
  (void)entry;
  (void)allocator;
  return NULL;
}
#endif
