/* Lets every request run alone. It calls nothing of the server. */
#include <stdlib.h>

#include "tritonpy/batching.h"

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

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  (void)batcher;
  *userp = calloc(1, sizeof(bool));
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  bool *has_one = userp;
  (void)request;
  *should_include = !*has_one;
  *has_one = true;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  free(userp);
  return NULL;
}
