/* A cache that is asked and filled on several threads, with one that fetches what comes of it. */
#include "driver.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS 50
#define BYTES 1000

static TRITONPY_Cache *make_cache(uint32_t threads) {
  TRITONPY_Cache *cache;
  OK(TRITONPY_CacheNew(
      &cache, function_of("TRITONCACHE_CacheInitialize"), function_of("TRITONCACHE_CacheFinalize"),
      function_of("TRITONCACHE_CacheLookup"), function_of("TRITONCACHE_CacheInsert"), threads));
  return cache;
}

/* Waits for the outcomes of so many calls, in whatever order they come; the last one is returned. */
static TRITONPY_CacheOutcome fetch(TRITONPY_Cache *cache, size_t count) {
  TRITONPY_CacheOutcome outcomes[3];
  TRITONPY_CacheOutcome last = {0, NULL, NULL, 0};
  struct pollfd events = {TRITONPY_CacheEvents(cache), POLLIN, 0};
  while (count > 0) {
    CHECK(poll(&events, 1, 20000) == 1);
    const size_t most = count < 3 ? count : 3;
    const size_t taken = TRITONPY_CacheTake(cache, outcomes, most);
    for (size_t index = 0; index < taken; ++index) {
      TRITONPY_ErrorDelete(last.error);
      TRITONPY_CacheFree(last.data);
      last = outcomes[index];
    }
    count -= taken;
  }
  return last;
}

static TRITONPY_CacheOutcome fetch_one(TRITONPY_Cache *cache) {
  return fetch(cache, 1);
}

static void drive_contents(void) {
  static char data[KEYS][BYTES];
  TRITONPY_Cache *cache = make_cache(THREADS);
  char key[20];
  OK(TRITONPY_CacheInitialize(cache, 1, "{}"));
  OK(fetch_one(cache).error);
  for (int index = 0; index < KEYS; ++index) {
    snprintf(key, sizeof(key), "key %d", index);
    memset(data[index], index + 1, BYTES);
    OK(TRITONPY_CacheInsert(cache, (uint64_t)index, key, data[index], BYTES));
    OK(TRITONPY_CacheLookup(cache, (uint64_t)index + KEYS, key)); /* there or not */
  }
  TRITONPY_CacheOutcome last = fetch(cache, 2 * KEYS);
  TRITONPY_ErrorDelete(last.error);
  TRITONPY_CacheFree(last.data);

  OK(TRITONPY_CacheLookup(cache, 3, "key 7"));
  TRITONPY_CacheOutcome found = fetch_one(cache);
  OK(found.error);
  CHECK(found.number == 3 && found.byte_size == BYTES && memcmp(found.data, data[7], BYTES) == 0);
  TRITONPY_CacheFree(found.data);
  OK(TRITONPY_CacheLookup(cache, 4, "no such key"));
  found = fetch_one(cache);
  OK(found.error);
  CHECK(found.data == NULL);
  OK(TRITONPY_CacheInsert(cache, 5, "key 7", data[0], BYTES));
  FAILS(TRITONSERVER_ERROR_ALREADY_EXISTS, "here already", fetch_one(cache).error);
  OK(TRITONPY_CacheInsert(cache, 6, "throw", data[0], BYTES));
  FAILS(TRITONSERVER_ERROR_INTERNAL, "thrown by the plugin", fetch_one(cache).error);
  OK(TRITONPY_CacheLookup(cache, 7, "fail"));
  FAILS(TRITONSERVER_ERROR_UNAVAILABLE, "told to fail", fetch_one(cache).error);
  OK(TRITONPY_CacheFinalize(cache, 8));
  OK(fetch_one(cache).error);
  TRITONPY_CacheDelete(cache);
}

/* With one thread, that is in a call which nobody waits for. */
static void drive_slow_calls(void) {
  atomic_int *slow_lookup = function_of("slow_lookup");
  TRITONPY_Cache *cache = make_cache(1);
  OK(TRITONPY_CacheInitialize(cache, 1, "{}"));
  OK(fetch_one(cache).error);
  OK(TRITONPY_CacheLookup(cache, 2, "slow"));
  while (*slow_lookup != 1) {
    usleep(1000);
  }
  OK(TRITONPY_CacheLookup(cache, 3, "key"));
  CHECK(TRITONPY_CacheGiveUp(cache, 3));
  CHECK(!TRITONPY_CacheGiveUp(cache, 4));
  CHECK(!TRITONPY_CacheGiveUp(cache, 2));
  FAILS(TRITONSERVER_ERROR_UNAVAILABLE, "have not returned", TRITONPY_CacheLookup(cache, 5, "key"));
  *slow_lookup = 2;
  OK(fetch_one(cache).error);
  OK(TRITONPY_CacheFinalize(cache, 6));
  OK(fetch_one(cache).error);
  /* Gone while a thread may still be in it. */
  TRITONPY_CacheDelete(cache);
}

static void drive_faults(void) {
  TRITONPY_Cache *cache = make_cache(2);
  OK(TRITONPY_CacheInitialize(cache, 1, "fail"));
  FAILS(TRITONSERVER_ERROR_UNAVAILABLE, "told to fail", fetch_one(cache).error);
  OK(TRITONPY_CacheInitialize(cache, 2, "throw an integer"));
  FAILS(TRITONSERVER_ERROR_INTERNAL, "no std::exception", fetch_one(cache).error);
  OK(TRITONPY_CacheInitialize(cache, 3, "throw")); /* its outcome is never fetched */
  TRITONPY_CacheDelete(cache);
}

void drive_caches(void) {
  drive_contents();
  drive_slow_calls();
  drive_faults();
  TRITONPY_CacheDelete(NULL);
}
