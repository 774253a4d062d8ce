/* A cache that does what no cache should, and writes down what it is answered, a line for each call:
 * `--cache-config tries,report=<file>`. Each insertion and each lookup does the next of its tries. With
 * `reckless=1` they include those that end the real server. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tritonpy/cache.h"

static FILE *report;
static int insertions;
static int lookups;
static bool is_reckless; /* also tries what ends the real server */
static char *kept; /* the one entry that it keeps, and where it is filled */
static size_t kept_size;

static void note(const char *what, TRITONSERVER_Error *error) {
  if (error == NULL) {
    fprintf(report, "%s: good\n", what);
  } else {
    const char *code = TRITONSERVER_ErrorCodeString(error);
    fprintf(report, "%s: %s: %s\n", what, code, TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
  }
  fflush(report);
}

static TRITONSERVER_Error *refuse(void) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "only trying");
}

static TRITONSERVER_BufferAttributes *describe(size_t byte_size, TRITONSERVER_MemoryType type) {
  TRITONSERVER_BufferAttributes *attributes = NULL;
  TRITONSERVER_BufferAttributesNew(&attributes);
  TRITONSERVER_BufferAttributesSetByteSize(attributes, byte_size);
  TRITONSERVER_BufferAttributesSetMemoryType(attributes, type);
  return attributes;
}

TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache, const char *config) {
  const char *name = strstr(config, "\"report\":\"");
  const char *end = name == NULL ? NULL : strchr(name + 10, '"');
  char path[4096] = "";
  if (end == NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "tries needs a report");
  }
  memcpy(path, name + 10, (size_t)(end - name - 10));
  report = fopen(path, "w");
  if (report == NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, path);
  }
  is_reckless = strstr(config, "\"reckless\"") != NULL;
  uint32_t major = 9, minor = 9;
  fprintf(report, "%s\n", config);
  note("version", TRITONCACHE_ApiVersion(&major, &minor));
  if (is_reckless) {
    note("version without a place for it", TRITONCACHE_ApiVersion(NULL, NULL));
  }
  fprintf(report, "version %u.%u\n", major, minor);
  *cache = (TRITONCACHE_Cache *)&report;
  return NULL;
}

TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache) {
  fprintf(report, "finalize: %s\n", cache == (TRITONCACHE_Cache *)&report ? "ours" : "another");
  fclose(report);
  return NULL;
}

TRITONSERVER_Error *TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator) {
  (void)cache;
  (void)key;
  size_t count = 9, byte_size = 0;
  void *base = NULL;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
  int64_t id = 9;
  TRITONSERVER_Error *answer = NULL;
  TRITONSERVER_BufferAttributes *attributes = describe(1, TRITONSERVER_MEMORY_GPU);
  TRITONCACHE_CacheEntryGetBuffer(entry, 0, &base, attributes);
  TRITONSERVER_BufferAttributesByteSize(attributes, &byte_size);
  fprintf(report, "-- insertion %d\n", insertions);
  switch (insertions++) {
    case 0:
      note("count", TRITONCACHE_CacheEntryBufferCount(entry, &count));
      fprintf(report, "count %zu\n", count);
      TRITONSERVER_BufferAttributesMemoryType(attributes, &type);
      TRITONSERVER_BufferAttributesMemoryTypeId(attributes, &id);
      void *handle = &count;
      TRITONSERVER_BufferAttributesCudaIpcHandle(attributes, &handle);
      fprintf(report, "buffer %d, type %d %d, handle %d, size %d\n", base != NULL, (int)type, (int)id,
              handle != NULL, byte_size > 0);
      if (is_reckless) {
        note("count without a place for it", TRITONCACHE_CacheEntryBufferCount(entry, NULL));
        note("count of nothing", TRITONCACHE_CacheEntryBufferCount(NULL, &count));
      }
      note("get of nothing", TRITONCACHE_CacheEntryGetBuffer(NULL, 0, &base, attributes));
      note("set of nothing", TRITONCACHE_CacheEntrySetBuffer(NULL, 0, base, attributes));
      note("add to nothing", TRITONCACHE_CacheEntryAddBuffer(NULL, base, attributes));
      note("get 1", TRITONCACHE_CacheEntryGetBuffer(entry, 1, &base, attributes));
      note("get 99", TRITONCACHE_CacheEntryGetBuffer(entry, 99, &base, attributes));
      note("get without attributes", TRITONCACHE_CacheEntryGetBuffer(entry, 0, &base, NULL));
      note("get without base", TRITONCACHE_CacheEntryGetBuffer(entry, 0, NULL, attributes));
      note("set 1", TRITONCACHE_CacheEntrySetBuffer(entry, 1, base, attributes));
      TRITONSERVER_BufferAttributesSetByteSize(attributes, 0);
      note("set size 0", TRITONCACHE_CacheEntrySetBuffer(entry, 0, &count, attributes));
      TRITONSERVER_BufferAttributesSetByteSize(attributes, byte_size);
      note("set without base", TRITONCACHE_CacheEntrySetBuffer(entry, 0, NULL, attributes));
      note("add without base", TRITONCACHE_CacheEntryAddBuffer(entry, NULL, attributes));
      note("add without attributes", TRITONCACHE_CacheEntryAddBuffer(entry, base, NULL));
      break;
    case 1:
      note("copy without entry", TRITONCACHE_Copy(allocator, NULL));
      note("copy without allocator", TRITONCACHE_Copy(NULL, entry));
      break;
    case 2:
      if (is_reckless) {
        note("copy what was not set", TRITONCACHE_Copy(allocator, entry));
      }
      break;
    case 3:
      kept = malloc(byte_size);
      kept_size = byte_size;
      note("set", TRITONCACHE_CacheEntrySetBuffer(entry, 0, kept, NULL));
      TRITONSERVER_BufferAttributesDelete(attributes);
      attributes = describe(1, TRITONSERVER_MEMORY_GPU);
      note("get", TRITONCACHE_CacheEntryGetBuffer(entry, 0, &base, attributes));
      TRITONSERVER_BufferAttributesByteSize(attributes, &count);
      fprintf(report, "set is got %d, size is the same %d\n", base == kept, count == byte_size);
      note("copy", TRITONCACHE_Copy(allocator, entry));
      note("copy again", TRITONCACHE_Copy(allocator, entry));
      break;
    case 4:
      base = malloc(byte_size);
      TRITONSERVER_BufferAttributesSetByteSize(attributes, byte_size - 1);
      note("set smaller", TRITONCACHE_CacheEntrySetBuffer(entry, 0, base, attributes));
      note("copy smaller", TRITONCACHE_Copy(allocator, entry));
      free(base);
      break;
    case 5:
      base = malloc(byte_size + 1);
      TRITONSERVER_BufferAttributesSetByteSize(attributes, byte_size + 1);
      note("set larger", TRITONCACHE_CacheEntrySetBuffer(entry, 0, base, attributes));
      note("copy larger", TRITONCACHE_Copy(allocator, entry));
      free(base);
      break;
    case 6:
      base = malloc(byte_size);
      TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_GPU);
      note("set on a GPU", TRITONCACHE_CacheEntrySetBuffer(entry, 0, base, attributes));
      if (is_reckless) { /* the real server takes the memory, and says that it did not */
        note("copy to a GPU", TRITONCACHE_Copy(allocator, entry));
      }
      free(base);
      break;
    case 7:
      note("add to what is inserted", TRITONCACHE_CacheEntryAddBuffer(entry, kept, attributes));
      TRITONCACHE_CacheEntryBufferCount(entry, &count);
      fprintf(report, "count %zu\n", count);
      note("copy to too many", TRITONCACHE_Copy(allocator, entry));
      break;
    case 8:
      base = malloc(byte_size);
      TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_CPU_PINNED);
      note("set pinned", TRITONCACHE_CacheEntrySetBuffer(entry, 0, base, attributes));
      note("copy to pinned", TRITONCACHE_Copy(allocator, entry));
      free(base);
      break;
    default:
      fprintf(report, "all is tried\n");
      answer = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_ALREADY_EXISTS, "all is tried");
  }
  fflush(report);
  TRITONSERVER_BufferAttributesDelete(attributes);
  return answer != NULL ? answer : refuse();
}

TRITONSERVER_Error *TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator) {
  (void)cache;
  (void)key;
  if (kept == NULL || insertions < 10) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "nothing yet");
  }
  TRITONSERVER_BufferAttributes *attributes = describe(kept_size, TRITONSERVER_MEMORY_CPU);
  TRITONSERVER_Error *answer = NULL;
  size_t count = 9;
  void *base = NULL;
  fprintf(report, "-- lookup %d\n", lookups);
  switch (lookups++) {
    case 0:
      note("count", TRITONCACHE_CacheEntryBufferCount(entry, &count));
      fprintf(report, "count %zu\n", count);
      note("get 0", TRITONCACHE_CacheEntryGetBuffer(entry, 0, &base, attributes));
      note("set 0", TRITONCACHE_CacheEntrySetBuffer(entry, 0, kept, attributes));
      note("add without base", TRITONCACHE_CacheEntryAddBuffer(entry, NULL, attributes));
      note("add without attributes", TRITONCACHE_CacheEntryAddBuffer(entry, kept, NULL));
      TRITONCACHE_CacheEntryBufferCount(entry, &count);
      fprintf(report, "count %zu\n", count);
      answer = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "only looking");
      break;
    case 1:
      note("copy nothing", TRITONCACHE_Copy(allocator, entry));
      answer = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "only looking");
      break;
    case 2: /* a success without buffers */
      break;
    case 3: /* a good one */
      note("add", TRITONCACHE_CacheEntryAddBuffer(entry, kept, attributes));
      TRITONCACHE_CacheEntryBufferCount(entry, &count);
      fprintf(report, "count %zu\n", count);
      note("copy", TRITONCACHE_Copy(allocator, entry));
      note("get", TRITONCACHE_CacheEntryGetBuffer(entry, 0, &base, attributes));
      fprintf(report, "it is ours after the copy %d\n", base == kept);
      break;
    case 4:
      answer = refuse();
      break;
    case 5:
      TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_GPU);
      note("add on a GPU", TRITONCACHE_CacheEntryAddBuffer(entry, kept, attributes));
      answer = TRITONCACHE_Copy(allocator, entry);
      break;
    case 6:
      TRITONSERVER_BufferAttributesSetByteSize(attributes, 0);
      note("add nothing", TRITONCACHE_CacheEntryAddBuffer(entry, kept, attributes));
      answer = TRITONCACHE_Copy(allocator, entry);
      break;
    case 7:
      TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_CPU_PINNED);
      note("add pinned", TRITONCACHE_CacheEntryAddBuffer(entry, kept, attributes));
      answer = TRITONCACHE_Copy(allocator, entry);
      break;
    case 8:
      note("add", TRITONCACHE_CacheEntryAddBuffer(entry, kept, attributes));
      note("add a second", TRITONCACHE_CacheEntryAddBuffer(entry, kept, attributes));
      answer = TRITONCACHE_Copy(allocator, entry);
      break;
    case 9:
      note("add", TRITONCACHE_CacheEntryAddBuffer(entry, kept, attributes));
      note("copy", TRITONCACHE_Copy(allocator, entry));
      answer = TRITONCACHE_Copy(allocator, entry);
      break;
    case 10: /* kept by nobody else: it is not copied */
      note("add without copy", TRITONCACHE_CacheEntryAddBuffer(entry, kept, attributes));
      break;
    default:
      fprintf(report, "all is tried\n");
      answer = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "all is tried");
  }
  if (answer != NULL) {
    const char *code = TRITONSERVER_ErrorCodeString(answer);
    fprintf(report, "answer: %s: %s\n", code, TRITONSERVER_ErrorMessage(answer));
  }
  fflush(report);
  TRITONSERVER_BufferAttributesDelete(attributes);
  return answer;
}
