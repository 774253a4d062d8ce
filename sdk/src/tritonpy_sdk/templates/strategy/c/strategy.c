/* The batching strategy xyz: a batch holds at most so many requests, however many rows they have.
 *
 * A model says how many in its configuration:
 *   parameters { key: "MAX_BATCH_REQUESTS" value { string_value: "4" } }
 */
#include <stdio.h>
#include <stdlib.h>

#include "tritonpy/batching.h"
#include "tritonpy/parameters.h"

/* What this strategy knows of a model. */
struct TRITONBACKEND_Batcher {
  long limit;
};

static TRITONSERVER_Error *no_memory(void) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "strategy xyz: out of memory");
}

/* Once, while a model is loaded. An error is the reason for which it does not load. */
TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  char value[32] = "8", text[160], *end;
  TRITONSERVER_Error *error = tritonpy_model_parameter(model, "MAX_BATCH_REQUESTS", value, sizeof value);
  if (error != NULL) return error;
  long limit = strtol(value, &end, 10);
  if (*value == '\0' || *end != '\0' || limit < 1) {
    snprintf(text, sizeof text, "MAX_BATCH_REQUESTS: got '%s', expected a whole number, 1 or more", value);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
  }
  *batcher = malloc(sizeof **batcher);
  if (*batcher == NULL) return no_memory();
  (*batcher)->limit = limit;
  return NULL;
}

/* Once, when the model is unloaded. */
TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  free(batcher);
  return NULL;
}

/* An attempt at a batch begins, often for requests that an attempt before has seen: what belongs to one is in
 * its `userp`, here the number of requests that it may still take. */
TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  long *left = malloc(sizeof *left);
  if (left == NULL) return no_memory();
  *left = batcher->limit;
  *userp = left;
  return NULL;
}

/* May the request join? A no closes the batch. Ask for parameters, shapes and sizes here; do not compute. */
TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  long *left = userp;
  (void)request;
  *should_include = *left > 0;
  if (*should_include) --*left;
  return NULL;
}

/* The batch has left, or the attempt is given up. */
TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  free(userp);
  return NULL;
}
