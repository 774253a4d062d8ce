/* Response caches: bytes under names.
 *
 * A cache called NAME is the shared object `NAME/libtritoncache_NAME.so` in `--cache-directory`; it defines
 * the four functions at the end of this page. An entry has one buffer, in host memory. Its bytes move once,
 * from the server's memory into the cache's or back, by `TRITONCACHE_Copy`.
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

/* ---- the entry of a call, which ends with it ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheEntryBufferCount(
    TRITONCACHE_CacheEntry *entry, size_t *count);
/* Attributes are read, and stay yours. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheEntryAddBuffer(
    TRITONCACHE_CacheEntry *entry, void *base, TRITONSERVER_BufferAttributes *attributes);
/* Fills in attributes that you have made. In an insertion `base` is NULL, until you have set one. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheEntryGetBuffer(
    TRITONCACHE_CacheEntry *entry, size_t index, void **base, TRITONSERVER_BufferAttributes *attributes);
/* Attributes may be NULL: those that the buffer had stay. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheEntrySetBuffer(
    TRITONCACHE_CacheEntry *entry, size_t index, void *base, TRITONSERVER_BufferAttributes *attributes);
/* The direction is that of the call. Hold your lock: afterwards your buffer is yours again. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_Copy(
    TRITONCACHE_Allocator *allocator, TRITONCACHE_CacheEntry *entry);

/* ---- what a cache defines: all four. Lookups and insertions come from several threads at once, and may
 * block; requests go on without those that take too long ---- */

/* `config`: a JSON object of the values of `--cache-config NAME,key=value`, all of them strings. A success
 * without a cache is a failure. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheInitialize(
    TRITONCACHE_Cache **cache, const char *config);
/* No call of the cache is under way, and none comes. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache);
/* Found: add your buffer to the entry, call `TRITONCACHE_Copy`. Otherwise: TRITONSERVER_ERROR_NOT_FOUND. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator);
/* Set memory of your own as the entry's buffer, and call `TRITONCACHE_Copy` to have it filled. A key that is
 * there already: TRITONSERVER_ERROR_ALREADY_EXISTS. An entry that you do not want:
 * TRITONSERVER_ERROR_INVALID_ARG; with other codes you may be taken for broken and left alone for a while. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator);

#ifdef __cplusplus
}
#endif

#endif
