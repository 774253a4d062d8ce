/* Batches of at most eight elements; a larger request goes alone. */
#include "tritonpy/batching.h"

#define MOST 8

static TRITONSERVER_Error *elements(TRITONBACKEND_Request *request, int64_t *count) {
  uint32_t inputs, dims;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestInputCount(request, &inputs);
  for (uint32_t index = 0; error == NULL && index < inputs; ++index) {
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    error = TRITONBACKEND_RequestInputByIndex(request, index, &input);
    if (error == NULL) {
      error = TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, &dims, NULL, NULL);
    }
    int64_t product = 1;
    for (uint32_t dim = 0; error == NULL && dim < dims; ++dim) {
      product *= shape[dim];
    }
    *count += product;
  }
  return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  (void)model;
  *batcher = NULL;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  (void)batcher;
  return NULL;
}

/* Calls for one model never overlap, and this library serves one model. */
TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  static int64_t taken;
  (void)batcher;
  taken = 0;
  *userp = &taken;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  int64_t *taken = userp, count = 0;
  TRITONSERVER_Error *error = elements(request, &count);
  if (error == NULL) {
    *should_include = *taken + count <= MOST;
    *taken += count;
  }
  return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  (void)userp;
  return NULL;
}
