/* A batching strategy in C: the inputs of a batch have at most so many bytes together.
 *
 * A model says how many in its configuration:
 *   parameters { key: "MAX_BATCH_VOLUME_BYTES" value { string_value: "1048576" } }
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tritonpy/batching.h"
#include "tritonpy/parameters.h"

#define LIMIT "MAX_BATCH_VOLUME_BYTES"

/* What this strategy knows of a model. */
struct TRITONBACKEND_Batcher {
  uint64_t limit;
};

/* One attempt at a batch. */
typedef struct {
  uint64_t bytes_left;
  bool is_empty;
} Attempt;

static TRITONSERVER_Error *no_memory(void) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "volume batching: out of memory");
}

/* A whole number from 1 on, without signs and spaces, which strtoull would take too. */
static TRITONSERVER_Error *read_limit(const char *text, uint64_t *limit) {
  char message[160];
  errno = 0;
  *limit = strtoull(text, NULL, 10);
  if (errno == 0 && *limit > 0 && text[strspn(text, "0123456789")] == '\0') return NULL;
  snprintf(message, sizeof message, "parameter " LIMIT ": got '%s', expected bytes, 1 or more", text);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, message);
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  char text[64] = "", message[160];
  uint64_t limit;
  TRITONSERVER_Error *error = tritonpy_model_parameter(model, LIMIT, text, sizeof text);
  if (error != NULL) return error;
  if (*text == '\0') {
    return TRITONSERVER_ErrorNew(
        TRITONSERVER_ERROR_NOT_FOUND, "model config has no parameter " LIMIT "; expected bytes, 1 or more");
  }
  error = read_limit(text, &limit);
  if (error != NULL) return error;
  *batcher = malloc(sizeof **batcher);
  if (*batcher == NULL) return no_memory();
  (*batcher)->limit = limit;
  snprintf(message, sizeof message, "batches have at most %" PRIu64 " bytes", limit);
  return TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, __FILE__, __LINE__, message);
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  free(batcher);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  Attempt *attempt = malloc(sizeof *attempt);
  if (attempt == NULL) return no_memory();
  attempt->bytes_left = batcher->limit;
  attempt->is_empty = true;
  *userp = attempt;
  return NULL;
}

/* The bytes of all inputs of a request. */
static TRITONSERVER_Error *volume_of(TRITONBACKEND_Request *request, uint64_t *volume) {
  uint32_t count;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestInputCount(request, &count);
  *volume = 0;
  for (uint32_t index = 0; error == NULL && index < count; ++index) {
    TRITONBACKEND_Input *input;
    uint64_t byte_size;
    error = TRITONBACKEND_RequestInputByIndex(request, index, &input);
    if (error != NULL) break;
    error = TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, &byte_size, NULL);
    if (error == NULL) *volume += byte_size;
  }
  return error;
}

/* What is larger than the limit has to run alone: Triton asks again and again about a request that not even
 * an empty batch takes. */
TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  Attempt *attempt = userp;
  uint64_t volume;
  TRITONSERVER_Error *error = volume_of(request, &volume);
  if (error != NULL) return error;
  *should_include = attempt->is_empty || volume <= attempt->bytes_left;
  if (!*should_include) return NULL;
  attempt->bytes_left -= volume < attempt->bytes_left ? volume : attempt->bytes_left;
  attempt->is_empty = false;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  free(userp);
  return NULL;
}
