/* Bounds the bytes of a batch: the sum over all inputs of all its requests stays within the model's parameter
 * MAX_BATCH_VOLUME_BYTES. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tritonpy/batching.h"
#include "tritonpy/parameters.h"

struct TRITONBACKEND_Batcher {
  uint64_t limit;
};

static TRITONSERVER_Error *read_limit(const char *value, uint64_t *limit) {
  char *end, text[160];
  if (*value == '\0') {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "no parameter MAX_BATCH_VOLUME_BYTES");
  }
  errno = 0;
  *limit = strtoull(value, &end, 10);
  if (*end != '\0' || errno != 0 || *value < '0' || *value > '9') {
    snprintf(text, sizeof text, "MAX_BATCH_VOLUME_BYTES is '%s', expected a number of bytes", value);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
  }
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  char value[64] = "";
  uint64_t limit = 0;
  TRITONSERVER_Error *error = tritonpy_model_parameter(model, "MAX_BATCH_VOLUME_BYTES", value, sizeof value);
  if (error == NULL) {
    error = read_limit(value, &limit);
  }
  if (error != NULL) {
    return error;
  }
  *batcher = malloc(sizeof **batcher);
  (*batcher)->limit = limit;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  free(batcher);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  uint64_t *left = malloc(sizeof *left);
  *left = batcher->limit;
  *userp = left;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  uint64_t *left = userp, volume = 0;
  uint32_t count;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestInputCount(request, &count);
  for (uint32_t index = 0; index < count && error == NULL; ++index) {
    TRITONBACKEND_Input *input;
    uint64_t byte_size;
    error = TRITONBACKEND_RequestInputByIndex(request, index, &input);
    if (error == NULL) {
      error = TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, &byte_size, NULL);
      volume += byte_size;
    }
  }
  if (error != NULL) {
    return error;
  }
  *should_include = volume <= *left;
  if (*should_include) {
    *left -= volume;
  }
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  free(userp);
  return NULL;
}
