/* A backend for tests that reports statistics: of each request 10 us of input, 20 us of inference and 30 us of
 * output; of each response 2 us of inference and 1 us of output.
 *
 * The parameter `do` of a request is a text of letters: `e` sends an error, `f` reports a failure, `u` reports nothing
 * of the request, `U` nothing of the batch, `r` nothing of the responses. The first number of INPUT0 is how many
 * responses a decoupled model sends, with an output each; `E` adds an empty one, `C` one that is cancelled. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "tritonpy/backend.h"

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static const char *wish(TRITONBACKEND_Request *request) {
  uint32_t count = 0;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char *key;
    TRITONSERVER_ParameterType type;
    const void *value;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value));
    if (strcmp(key, "do") == 0 && type == TRITONSERVER_PARAMETER_STRING) return value;
  }
  return "";
}

static TRITONSERVER_Error *add_output(TRITONBACKEND_Response *response) {
  const int64_t one = 1;
  const int32_t number = 7;
  TRITONBACKEND_Output *output;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  void *buffer;
  CHECK(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, &one, 1));
  CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, sizeof(number), &type, &id));
  memcpy(buffer, &number, sizeof(number));
  return NULL;
}

static TRITONSERVER_Error *report(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_ResponseFactory *factory, bool has_output,
    TRITONSERVER_Error *error) {
  TRITONBACKEND_ModelInstanceResponseStatistics *statistics;
  const uint64_t end_ns = now_ns();
  CHECK(TRITONBACKEND_ModelInstanceResponseStatisticsNew(&statistics));
  CHECK(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(statistics, instance));
  CHECK(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(statistics, factory));
  CHECK(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(statistics, end_ns - 3000));
  if (has_output) {
    CHECK(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(statistics, end_ns - 1000));
  }
  CHECK(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(statistics, end_ns));
  if (error != NULL) CHECK(TRITONBACKEND_ModelInstanceResponseStatisticsSetError(statistics, error));
  CHECK(TRITONBACKEND_ModelInstanceReportResponseStatistics(statistics));
  return TRITONBACKEND_ModelInstanceResponseStatisticsDelete(statistics);
}

static TRITONSERVER_Error *send(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_ResponseFactory *factory, bool has_output,
    TRITONSERVER_Error *error, const char *what) {
  TRITONBACKEND_Response *response;
  CHECK(TRITONBACKEND_ResponseNewFromFactory(&response, factory));
  if (has_output) CHECK(add_output(response));
  CHECK(TRITONBACKEND_ResponseSend(response, 0, error));
  if (strchr(what, 'r') == NULL) CHECK(report(instance, factory, has_output, error));
  TRITONSERVER_ErrorDelete(error);
  return NULL;
}

static TRITONSERVER_Error *stream(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, const char *what) {
  TRITONBACKEND_ResponseFactory *factory;
  TRITONBACKEND_Input *input;
  const void *data;
  uint64_t size;
  TRITONSERVER_MemoryType type;
  int64_t id;
  CHECK(TRITONBACKEND_ResponseFactoryNew(&factory, request));
  CHECK(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  CHECK(TRITONBACKEND_InputBuffer(input, 0, &data, &size, &type, &id));
  const int32_t count = *(const int32_t *)data;
  for (int32_t index = 0; index < count; ++index) CHECK(send(instance, factory, true, NULL, what));
  if (strchr(what, 'E') != NULL) CHECK(send(instance, factory, false, NULL, what));
  if (strchr(what, 'e') != NULL) {
    CHECK(send(instance, factory, true, TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "told to"), what));
  }
  if (strchr(what, 'C') != NULL) {
    CHECK(send(instance, factory, false, TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_CANCELLED, "told to"), what));
  }
  CHECK(TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  if (strchr(what, 'F') != NULL) CHECK(report(instance, factory, false, NULL));
  return TRITONBACKEND_ResponseFactoryDelete(factory);
}

static TRITONSERVER_Error *answer(TRITONBACKEND_Request *request, const char *what) {
  TRITONBACKEND_Response *response;
  CHECK(TRITONBACKEND_ResponseNew(&response, request));
  CHECK(add_output(response));
  TRITONSERVER_Error *error = NULL;
  if (strchr(what, 'e') != NULL) error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "told to");
  CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  TRITONSERVER_ErrorDelete(error);
  return NULL;
}

/* Two steps in the request's trace, the second of which tells what is known of it. */
static TRITONSERVER_Error *note(TRITONBACKEND_Request *request, uint64_t start_ns) {
  TRITONSERVER_InferenceTrace *trace;
  CHECK(TRITONBACKEND_RequestTrace(request, &trace));
  if (trace == NULL) return NULL;
  uint64_t id, parent_id;
  int64_t version;
  const char *model, *request_id, *context;
  char text[256];
  CHECK(TRITONSERVER_InferenceTraceId(trace, &id));
  CHECK(TRITONSERVER_InferenceTraceParentId(trace, &parent_id));
  CHECK(TRITONSERVER_InferenceTraceModelName(trace, &model));
  CHECK(TRITONSERVER_InferenceTraceModelVersion(trace, &version));
  CHECK(TRITONSERVER_InferenceTraceRequestId(trace, &request_id));
  CHECK(TRITONSERVER_InferenceTraceContext(trace, &context));
  snprintf(
      text, sizeof(text), "ABOUT %d %d %s %d %s %s", (int)id, (int)parent_id, model, (int)version, request_id,
      context);
  CHECK(TRITONSERVER_InferenceTraceReportActivity(trace, start_ns, "BACKEND_START"));
  return TRITONSERVER_InferenceTraceReportActivity(trace, now_ns(), text);
}

static TRITONSERVER_Error *execute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, uint64_t start_ns, bool is_decoupled,
    bool *reports_batch) {
  const char *what = wish(request);
  CHECK(note(request, start_ns));
  if (is_decoupled) {
    CHECK(stream(instance, request, what));
  } else {
    CHECK(answer(request, what));
  }
  *reports_batch = strchr(what, 'U') == NULL;
  if (strchr(what, 'u') == NULL) {
    CHECK(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, request, strchr(what, 'f') == NULL, start_ns, start_ns + 10000, start_ns + 30000,
        start_ns + 60000));
  }
  return TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  const uint64_t start_ns = now_ns();
  bool reports_batch = true;
  TRITONBACKEND_Model *model;
  const char *name;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelName(model, &name));
  for (uint32_t index = 0; index < request_count; ++index) {
    TRITONSERVER_Error *error =
        execute(instance, requests[index], start_ns, strncmp(name, "streams", 7) == 0, &reports_batch);
    if (error != NULL) {
      TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, TRITONSERVER_ErrorMessage(error));
      TRITONSERVER_ErrorDelete(error);
    }
  }
  if (!reports_batch) return NULL;
  return TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance, request_count, start_ns, start_ns + 10000, start_ns + 30000, start_ns + 60000);
}
