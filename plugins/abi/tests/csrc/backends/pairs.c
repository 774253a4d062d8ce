/* A backend for tests that brings its own batching strategy: at most two requests join a batch. With PARTIAL a
 * function of the strategy is missing. */

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tritonpy/backend.h"

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  const char *name;
  CHECK(TRITONBACKEND_ModelName(model, &name));
  if (strstr(name, "refused") != NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, "the strategy was told to refuse");
  }
  if (strstr(name, "crash") != NULL) abort();
  *batcher = NULL;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  (void)batcher;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  (void)batcher;
  *userp = calloc(1, sizeof(int));
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  (void)request;
  *should_include = ++*(int *)userp <= 2;
  return NULL;
}

#ifndef PARTIAL
TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  free(userp);
  return NULL;
}
#endif

/* Answers each request with the number of requests in its batch. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  const int64_t shape[] = {1, 1};
  const int32_t count = (int32_t)request_count;
  (void)instance;
  for (uint32_t index = 0; index < request_count; ++index) {
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    void *buffer;
    CHECK(TRITONBACKEND_ResponseNew(&response, requests[index]));
    CHECK(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, shape, 2));
    CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, sizeof(count), &type, &id));
    memcpy(buffer, &count, sizeof(count));
    CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    CHECK(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
