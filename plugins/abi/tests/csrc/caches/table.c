/* A cache in the memory of the server, as one would write it: a hash table behind a lock, and what was not
 * used for longest goes when `size` bytes are taken. `--cache-config table,size=<bytes>`. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tritonpy/cache.h"

#define BUCKETS 1024

typedef struct Entry {
  struct Entry *next;            /* in its bucket */
  struct Entry *older, *younger; /* by its last use */
  char *key;
  void *bytes;
  size_t byte_size;
} Entry;

typedef struct {
  pthread_mutex_t lock;
  size_t byte_size, used;
  Entry *buckets[BUCKETS];
  Entry *oldest, *youngest;
} Table;

static TRITONSERVER_Error *error(TRITONSERVER_Error_Code code, const char *text) {
  return TRITONSERVER_ErrorNew(code, text);
}

static Entry **find(Table *table, const char *key) {
  size_t hash = 5381;
  for (const char *c = key; *c != '\0'; ++c) {
    hash = hash * 33 + (unsigned char)*c;
  }
  Entry **place = &table->buckets[hash % BUCKETS];
  while (*place != NULL && strcmp((*place)->key, key) != 0) {
    place = &(*place)->next;
  }
  return place;
}

static void leave(Table *table, Entry *entry) {
  *(entry->older != NULL ? &entry->older->younger : &table->oldest) = entry->younger;
  *(entry->younger != NULL ? &entry->younger->older : &table->youngest) = entry->older;
}

static void join(Table *table, Entry *entry) {
  entry->older = table->youngest;
  entry->younger = NULL;
  *(table->youngest != NULL ? &table->youngest->younger : &table->oldest) = entry;
  table->youngest = entry;
}

static void release(Entry *entry) {
  free(entry->key);
  free(entry->bytes);
  free(entry);
}

static void evict(Table *table) {
  Entry *entry = table->oldest;
  *find(table, entry->key) = entry->next;
  leave(table, entry);
  table->used -= entry->byte_size;
  release(entry);
}

TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache, const char *config) {
  const char *size = strstr(config, "\"size\":\"");
  Table *table = calloc(1, sizeof(Table));
  if (table == NULL || size == NULL || sscanf(size, "\"size\":\"%zu\"", &table->byte_size) != 1) {
    free(table);
    return error(TRITONSERVER_ERROR_INVALID_ARG, "cache 'table' needs --cache-config table,size=<bytes>");
  }
  pthread_mutex_init(&table->lock, NULL);
  *cache = (TRITONCACHE_Cache *)table;
  return NULL;
}

TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache) {
  Table *table = (Table *)cache;
  while (table->oldest != NULL) {
    evict(table);
  }
  pthread_mutex_destroy(&table->lock);
  free(table);
  return NULL;
}

TRITONSERVER_Error *TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator) {
  Table *table = (Table *)cache;
  TRITONSERVER_Error *answer = NULL;
  pthread_mutex_lock(&table->lock);
  Entry *found = *find(table, key);
  if (found == NULL) {
    answer = error(TRITONSERVER_ERROR_NOT_FOUND, "there is no such entry");
  } else {
    TRITONSERVER_BufferAttributes *attributes = NULL;
    leave(table, found);
    join(table, found);
    TRITONSERVER_BufferAttributesNew(&attributes);
    TRITONSERVER_BufferAttributesSetByteSize(attributes, found->byte_size);
    answer = TRITONCACHE_CacheEntryAddBuffer(entry, found->bytes, attributes);
    TRITONSERVER_BufferAttributesDelete(attributes);
    if (answer == NULL) {
      answer = TRITONCACHE_Copy(allocator, entry); /* under the lock: nobody evicts what is being read */
    }
  }
  pthread_mutex_unlock(&table->lock);
  return answer;
}

/* An entry with the bytes that are inserted, or NULL and the reason. */
static Entry *copy(
    const char *key, TRITONCACHE_CacheEntry *from, TRITONCACHE_Allocator *allocator,
    TRITONSERVER_Error **reason) {
  TRITONSERVER_BufferAttributes *attributes = NULL;
  void *base = NULL;
  Entry *made = calloc(1, sizeof(Entry));
  TRITONSERVER_BufferAttributesNew(&attributes);
  *reason = TRITONCACHE_CacheEntryGetBuffer(from, 0, &base, attributes);
  if (*reason == NULL) {
    TRITONSERVER_BufferAttributesByteSize(attributes, &made->byte_size);
    made->key = strdup(key);
    made->bytes = malloc(made->byte_size);
    *reason = TRITONCACHE_CacheEntrySetBuffer(from, 0, made->bytes, NULL);
  }
  if (*reason == NULL) {
    *reason = TRITONCACHE_Copy(allocator, from);
  }
  TRITONSERVER_BufferAttributesDelete(attributes);
  if (*reason != NULL) {
    release(made);
    return NULL;
  }
  return made;
}

TRITONSERVER_Error *TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator) {
  Table *table = (Table *)cache;
  TRITONSERVER_Error *answer = NULL;
  Entry *made = copy(key, entry, allocator, &answer);
  if (made == NULL) {
    return answer;
  }
  if (made->byte_size > table->byte_size) {
    release(made);
    return error(TRITONSERVER_ERROR_INVALID_ARG, "the entry is larger than the cache");
  }
  pthread_mutex_lock(&table->lock);
  if (*find(table, key) != NULL) {
    release(made);
    answer = error(TRITONSERVER_ERROR_ALREADY_EXISTS, "there is an entry already");
  } else {
    while (table->used + made->byte_size > table->byte_size) {
      evict(table);
    }
    *find(table, key) = made;
    join(table, made);
    table->used += made->byte_size;
  }
  pthread_mutex_unlock(&table->lock);
  return answer;
}
