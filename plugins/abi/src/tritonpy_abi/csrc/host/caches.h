/* Response caches, called on threads of this library: a cache that blocks for ever keeps one of them, and no
 * thread of Python. Calls are numbered by the caller; what becomes of them is fetched when the descriptor of
 * `TRITONPY_CacheEvents` can be read. */

typedef struct TRITONPY_Cache TRITONPY_Cache;

/* The end of a call. The receiver owns the error and the data, which is the entry that a lookup found. */
typedef struct {
  uint64_t number;
  TRITONSERVER_Error *error;
  void *data;
  size_t byte_size;
} TRITONPY_CacheOutcome;

/* The four functions of a shared object, none of them NULL, and how many threads may be in them at once. */
TRITONSERVER_Error *TRITONPY_CacheNew(
    TRITONPY_Cache **cache, void *initialize, void *finalize, void *lookup, void *insert,
    uint32_t most_threads);
/* No call is left, or those that are left never end: they keep what they need. Ends no call. */
void TRITONPY_CacheDelete(TRITONPY_Cache *cache);

/* An eventfd, the cache's own; readable while outcomes are waiting. */
int TRITONPY_CacheEvents(TRITONPY_Cache *cache);
/* Takes up to `most` outcomes; returns how many. */
size_t TRITONPY_CacheTake(TRITONPY_Cache *cache, TRITONPY_CacheOutcome *outcomes, size_t most);

/* These begin a call, and fail at once where every thread is in one that was given up. */
TRITONSERVER_Error *TRITONPY_CacheInitialize(TRITONPY_Cache *cache, uint64_t number, const char *config);
TRITONSERVER_Error *TRITONPY_CacheFinalize(TRITONPY_Cache *cache, uint64_t number);
TRITONSERVER_Error *TRITONPY_CacheLookup(TRITONPY_Cache *cache, uint64_t number, const char *key);
/* The bytes are read until the call has ended. */
TRITONSERVER_Error *TRITONPY_CacheInsert(
    TRITONPY_Cache *cache, uint64_t number, const char *key, const void *data, size_t byte_size);
/* Gives a call up. True: it had not begun and never will; it has no outcome. False: it has one in the end. */
bool TRITONPY_CacheGiveUp(TRITONPY_Cache *cache, uint64_t number);

/* Ends the data of an outcome. */
void TRITONPY_CacheFree(void *data);
