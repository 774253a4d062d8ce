/* A cache that keeps nothing, and whose calls wait for a file: `--cache-config gate,path=<file>` and
 * `--cache-config gate,wait=<function>` with Initialize, Finalize, Lookup or Insert. `<file>.log` gets a line
 * when a call of it begins, when it ends, and when the cache is finalized. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tritonpy/cache.h"

typedef struct {
  char path[4096];
  char log[4100];
  char function[32];
} Gate;

static void say(Gate *gate, const char *what, const char *function) {
  FILE *log = fopen(gate->log, "a"); /* a line is one write: no lock */
  fprintf(log, "%s %s\n", what, function);
  fclose(log);
}

static void pass(Gate *gate, const char *function) {
  if (strcmp(gate->function, function) == 0) {
    say(gate, "begin", function);
    while (access(gate->path, F_OK) != 0) {
      usleep(1000);
    }
    say(gate, "end", function);
  }
}

/* The text of a member of a JSON object. */
static int read_text(const char *json, const char *name, char *text, size_t size) {
  char member[64];
  snprintf(member, sizeof(member), "\"%s\":\"", name);
  const char *begin = strstr(json, member);
  const char *end = begin == NULL ? NULL : strchr(begin + strlen(member), '"');
  if (end == NULL || (size_t)(end - begin) > size) {
    return 0;
  }
  begin += strlen(member);
  memcpy(text, begin, (size_t)(end - begin));
  text[end - begin] = '\0';
  return 1;
}

TRITONSERVER_Error *TRITONCACHE_CacheInitialize(TRITONCACHE_Cache **cache, const char *config) {
  Gate *gate = calloc(1, sizeof(Gate));
  if (!read_text(config, "path", gate->path, sizeof(gate->path)) ||
      !read_text(config, "wait", gate->function, sizeof(gate->function))) {
    free(gate);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "cache 'gate' needs wait and path");
  }
  snprintf(gate->log, sizeof(gate->log), "%s.log", gate->path);
  pass(gate, "Initialize");
  *cache = (TRITONCACHE_Cache *)gate;
  return NULL;
}

TRITONSERVER_Error *TRITONCACHE_CacheFinalize(TRITONCACHE_Cache *cache) {
  pass((Gate *)cache, "Finalize");
  say((Gate *)cache, "ended by", "Finalize");
  free(cache);
  return NULL;
}

TRITONSERVER_Error *TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator) {
  (void)key;
  (void)entry;
  (void)allocator;
  pass((Gate *)cache, "Lookup");
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "it keeps nothing");
}

TRITONSERVER_Error *TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache *cache, const char *key, TRITONCACHE_CacheEntry *entry,
    TRITONCACHE_Allocator *allocator) {
  (void)key;
  (void)entry;
  (void)allocator;
  pass((Gate *)cache, "Insert");
  return NULL;
}
