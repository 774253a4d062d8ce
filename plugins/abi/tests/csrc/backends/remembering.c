/* A backend for tests that adds up its input over a sequence, in the state SUM_IN and SUM_OUT, both INT32.
 *
 * OUTPUT0 is the sum; the parameter `do` of a request asks for what goes wrong. The response's parameters say
 * what was given.
 */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tritonpy/backend.h"

enum { kMost = 16 };

typedef struct {
  int32_t values[kMost];
  int64_t shape[8];
  uint32_t dim_count;
  uint64_t count;
  const void *data;
  TRITONSERVER_DataType datatype;
} Given;

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

static TRITONSERVER_Error *read_input(TRITONBACKEND_Request *request, const char *name, Given *given) {
  TRITONBACKEND_Input *input;
  const int64_t *shape;
  uint32_t buffer_count;
  uint64_t byte_size, offset = 0;
  CHECK(TRITONBACKEND_RequestInput(request, name, &input));
  CHECK(TRITONBACKEND_InputProperties(
      input, NULL, &given->datatype, &shape, &given->dim_count, &byte_size, &buffer_count));
  memcpy(given->shape, shape, given->dim_count * sizeof(int64_t));
  given->count = byte_size / sizeof(int32_t);
  for (uint32_t index = 0; index < buffer_count; ++index) {
    uint64_t size;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    CHECK(TRITONBACKEND_InputBuffer(input, index, &given->data, &size, &type, &id));
    memcpy((char *)given->values + offset, given->data, size);
    offset += size;
  }
  return NULL;
}

/* All inputs but the sum's as `name=value`, in the order of their names. */
static TRITONSERVER_Error *describe(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response) {
  static const char *const kNames[] = {"CORRID", "END", "READY", "START"};
  char text[256] = "";
  for (size_t index = 0; index < sizeof(kNames) / sizeof(kNames[0]); ++index) {
    Given given;
    TRITONSERVER_Error *missing = read_input(request, kNames[index], &given);
    if (missing == NULL) {
      char *end = text + strlen(text);
      snprintf(end, sizeof(text) - (size_t)(end - text), "%s=%d ", kNames[index], given.values[0]);
    }
    TRITONSERVER_ErrorDelete(missing);
  }
  uint32_t flags;
  uint64_t id = 0;
  CHECK(TRITONBACKEND_RequestFlags(request, &flags));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestCorrelationId(request, &id));
  char *end = text + strlen(text);
  snprintf(end, sizeof(text) - (size_t)(end - text), "flags=%u id=%u", flags, (unsigned)id);
  return TRITONBACKEND_ResponseSetStringParameter(response, "controls", text);
}

static TRITONSERVER_Error *remember(
    TRITONBACKEND_Request *request, TRITONBACKEND_Response *response, const char *what, const Given *before,
    const int32_t *sums, uint64_t count) {
  TRITONBACKEND_State *state;
  int64_t shape[8];
  uint32_t dim_count = before->dim_count;
  memcpy(shape, before->shape, sizeof(shape));
  shape[dim_count - 1] = (int64_t)count;
  const char *name = strcmp(what, "wrong name") == 0 ? "TOTAL" : "SUM_OUT";
  TRITONSERVER_DataType datatype =
      strcmp(what, "wrong datatype") == 0 ? TRITONSERVER_TYPE_FP32 : TRITONSERVER_TYPE_INT32;
  if (strcmp(what, "wrong shape") == 0) shape[0] += 1;
  if (strcmp(what, "wrong dimensions") == 0) shape[dim_count++] = 1;
  CHECK(TRITONBACKEND_StateNew(&state, request, name, datatype, shape, dim_count));
  if (strcmp(what, "no buffer") == 0) return TRITONBACKEND_StateUpdate(state);
  uint64_t byte_size = count * sizeof(int32_t);
  if (strcmp(what, "short") == 0) byte_size -= 1;
  if (strcmp(what, "long") == 0) byte_size += 4;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  void *buffer;
  if (strcmp(what, "elsewhere") == 0) type = TRITONSERVER_MEMORY_GPU;
  CHECK(TRITONBACKEND_StateBuffer(state, &buffer, byte_size, &type, &id));
  if (type == TRITONSERVER_MEMORY_GPU) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "a state on a GPU that is not there");
  }
  CHECK(TRITONBACKEND_ResponseSetBoolParameter(response, "same buffer", buffer == before->data));
  if (strcmp(what, "twice") == 0) {
    void *again;
    CHECK(TRITONBACKEND_StateBuffer(state, &again, byte_size, &type, &id));
    CHECK(TRITONBACKEND_ResponseSetBoolParameter(response, "same again", again == buffer));
    buffer = again;
  }
  TRITONSERVER_BufferAttributes *attributes;
  size_t said;
  CHECK(TRITONBACKEND_StateBufferAttributes(state, &attributes));
  CHECK(TRITONSERVER_BufferAttributesByteSize(attributes, &said));
  CHECK(TRITONBACKEND_ResponseSetIntParameter(response, "state bytes", (int64_t)said));
  if (strcmp(what, "untouched") != 0) memcpy(buffer, sums, byte_size);
  if (strcmp(what, "no update") == 0) return NULL;
  return TRITONBACKEND_StateUpdate(state);
}

static TRITONSERVER_Error *fill(
    TRITONBACKEND_Request *request, TRITONBACKEND_Response *response, const char *what, Given *before,
    int32_t *sums, uint64_t *count) {
  Given given;
  CHECK(read_input(request, "INPUT0", &given));
  CHECK(describe(request, response));
  TRITONSERVER_Error *missing = read_input(request, "SUM_IN", before);
  if (missing != NULL) {
    if (strcmp(what, "stateless") != 0) return missing;
    TRITONSERVER_ErrorDelete(missing);
    *before = given;
    memset(before->values, 0, sizeof(before->values));
  }
  *count = before->count;
  for (uint64_t index = 0; index < *count; ++index) sums[index] = before->values[index] + given.values[0];
  if (strcmp(what, "grow") == 0) sums[(*count)++] = given.values[0];
  TRITONBACKEND_Output *output;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  void *buffer;
  int64_t shape[8];
  memcpy(shape, before->shape, sizeof(shape));
  shape[before->dim_count - 1] = (int64_t)*count;
  CHECK(TRITONBACKEND_ResponseOutput(
      response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, shape, before->dim_count));
  CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, *count * sizeof(int32_t), &type, &id));
  memcpy(buffer, sums, *count * sizeof(int32_t));
  return NULL;
}

/* One more step than the sequence has had; the request is executed as often as its input says. */
static TRITONSERVER_Error *step(TRITONBACKEND_Request *request, bool answers_once) {
  Given given, before;
  TRITONBACKEND_State *state;
  TRITONBACKEND_Response *response;
  TRITONBACKEND_Output *output;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  void *buffer;
  CHECK(read_input(request, "INPUT0", &given));
  CHECK(read_input(request, "SUM_IN", &before));
  const int32_t number = before.values[0] + 1;
  const bool is_last = number >= given.values[0];
  CHECK(TRITONBACKEND_StateNew(
      &state, request, "SUM_OUT", TRITONSERVER_TYPE_INT32, before.shape, before.dim_count));
  CHECK(TRITONBACKEND_StateBuffer(state, &buffer, sizeof(number), &type, &id));
  memcpy(buffer, &number, sizeof(number));
  CHECK(TRITONBACKEND_StateUpdate(state));
  if (is_last || !answers_once) {
    CHECK(TRITONBACKEND_ResponseNew(&response, request));
    CHECK(describe(request, response));
    CHECK(TRITONBACKEND_ResponseOutput(
        response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, before.shape, before.dim_count));
    CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, sizeof(number), &type, &id));
    memcpy(buffer, &number, sizeof(number));
    CHECK(TRITONBACKEND_ResponseSend(response, is_last ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, NULL));
  }
  return TRITONBACKEND_RequestRelease(
      request, is_last ? TRITONSERVER_REQUEST_RELEASE_ALL : TRITONSERVER_REQUEST_RELEASE_RESCHEDULE);
}

static TRITONSERVER_Error *execute(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request) {
  const char *what = wish(request);
  if (strncmp(what, "steps", 5) == 0) return step(request, strcmp(what, "steps once") == 0);
  TRITONBACKEND_Response *response;
  Given before;
  int32_t sums[kMost];
  uint64_t count = 0;
  CHECK(TRITONBACKEND_ResponseNew(&response, request));
  TRITONSERVER_Error *error = fill(request, response, what, &before, sums, &count);
  const bool is_late = strcmp(what, "late") == 0;
  if (error == NULL && !is_late) error = remember(request, response, what, &before, sums, count);
  if (error == NULL && strcmp(what, "fail") == 0) {
    error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "the request was told to fail");
  }
  CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  if (is_late) {
    TRITONBACKEND_Response *unsent; /* has the parameters that nobody sees */
    CHECK(TRITONBACKEND_ResponseNew(&unsent, request));
    TRITONSERVER_Error *late = remember(request, unsent, what, &before, sums, count);
    CHECK(TRITONBACKEND_ResponseDelete(unsent));
    CHECK(late);
  }
  CHECK(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, error == NULL, 1, 1, 1, 1));
  TRITONSERVER_ErrorDelete(error);
  return TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  for (uint32_t index = 0; index < request_count; ++index) {
    TRITONSERVER_Error *error = execute(instance, requests[index]);
    if (error != NULL) {
      TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, TRITONSERVER_ErrorMessage(error));
      TRITONSERVER_ErrorDelete(error);
    }
  }
  return NULL;
}
