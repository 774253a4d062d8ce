/* Response caches: bytes under names.
 *
 * A cache called NAME is the shared object `NAME/libtritoncache_NAME.so` in `--cache-directory`; it defines the four
 * functions at the end of this page. An entry is a list of buffers in host memory. Bytes move once, from the
 * server's buffers into the cache's or back, by `TRITONCACHE_Copy`.
 */
#ifndef TRITONPY_CACHE_H
#define TRITONPY_CACHE_H

#include "tritonpy/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Yours: the server never looks inside. */
typedef struct TRITONCACHE_Cache TRITONCACHE_Cache;
typedef struct TRITONCACHE_CacheEntry TRITONCACHE_CacheEntry;
typedef struct TRITONCACHE_Allocator TRITONCACHE_Allocator;

#define TRITONCACHE_API_VERSION_MAJOR 0
#define TRITONCACHE_API_VERSION_MINOR 1

TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_ApiVersion(uint32_t *major, uint32_t *minor);

TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheEntryBufferCount(TRITONCACHE_CacheEntry *entry, size_t *count);
/* Attributes are read, and stay yours. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheEntryAddBuffer(
    TRITONCACHE_CacheEntry *entry, void *base, TRITONSERVER_BufferAttributes *attributes);
/* Fills in attributes that you have made. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheEntryGetBuffer(
    TRITONCACHE_CacheEntry *entry, size_t index, void **base, TRITONSERVER_BufferAttributes *attributes);
/* Attributes may be NULL: those of the buffer that was there stay. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheEntrySetBuffer(
    TRITONCACHE_CacheEntry *entry, size_t index, void *base, TRITONSERVER_BufferAttributes *attributes);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_Copy(TRITONCACHE_Allocator *allocator, TRITONCACHE_CacheEntry *entry);

/* ---- what a cache defines; may be called from several threads at once ---- */

/* `config`: a JSON object of the values of `--cache-config NAME,key=value`, all of them strings. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache, const char *config);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache);
/* Found: add your buffers to the entry and call `TRITONCACHE_Copy`. Not found: TRITONSERVER_ERROR_NOT_FOUND. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry, TRITONCACHE_Allocator *allocator);
/* Set buffers of your own in place of the entry's, and call `TRITONCACHE_Copy` to have them filled. A key that is there
 * already: TRITONSERVER_ERROR_ALREADY_EXISTS. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry, TRITONCACHE_Allocator *allocator);

#ifdef __cplusplus
}
#endif

#endif
