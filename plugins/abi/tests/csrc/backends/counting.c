/* A backend for tests that counts what it does, in metrics of every kind that all its instances share. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tritonpy/backend.h"

enum { REQUESTS, LATER, SIZE, INSTANCES, BATCHES, COUNT };

static const struct {
  const char *name;
  TRITONSERVER_MetricKind kind;
} kFamilies[COUNT] = {
    [REQUESTS] = {"counted_requests", TRITONSERVER_METRIC_KIND_COUNTER},
    [LATER] = {"counted_later", TRITONSERVER_METRIC_KIND_COUNTER},
    [SIZE] = {"counted_size", TRITONSERVER_METRIC_KIND_GAUGE},
    [INSTANCES] = {"counted_instances", TRITONSERVER_METRIC_KIND_GAUGE},
    [BATCHES] = {"counted_batches", TRITONSERVER_METRIC_KIND_HISTOGRAM},
};

typedef struct {
  TRITONSERVER_MetricFamily *families[COUNT];
  TRITONSERVER_Metric *metrics[COUNT];
  pthread_t thread;
  bool has_thread;
} State;

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance) {
  TRITONBACKEND_Model *model;
  const char *name;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelName(model, &name));
  State *state = calloc(1, sizeof(State));
  CHECK(TRITONBACKEND_ModelInstanceSetState(instance, state));
  const TRITONSERVER_Parameter *label = TRITONSERVER_ParameterNew("of", TRITONSERVER_PARAMETER_STRING, name);
  const double bounds[] = {1, 4};
  TRITONSERVER_MetricArgs *args;
  CHECK(TRITONSERVER_MetricArgsNew(&args));
  CHECK(TRITONSERVER_MetricArgsSetHistogram(args, bounds, 2));
  for (int each = 0; each < COUNT; ++each) {
    CHECK(TRITONSERVER_MetricFamilyNew(
        &state->families[each], kFamilies[each].kind, kFamilies[each].name, "What a test counts"));
    CHECK(TRITONSERVER_MetricNewWithArgs(
        &state->metrics[each], state->families[each], &label, 1, each == BATCHES ? args : NULL));
  }
  CHECK(TRITONSERVER_MetricArgsDelete(args));
  TRITONSERVER_ParameterDelete((TRITONSERVER_Parameter *)label);
  return TRITONSERVER_MetricIncrement(state->metrics[INSTANCES], 1);
}

static TRITONSERVER_Error *end_thread(State *state) {
  if (state->has_thread) pthread_join(state->thread, NULL);
  state->has_thread = false;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance) {
  void *known;
  CHECK(TRITONBACKEND_ModelInstanceState(instance, &known));
  State *state = known;
  CHECK(end_thread(state));
  CHECK(TRITONSERVER_MetricIncrement(state->metrics[INSTANCES], -1));
  for (int each = 0; each < COUNT; ++each) {
    CHECK(TRITONSERVER_MetricDelete(state->metrics[each]));
    CHECK(TRITONSERVER_MetricFamilyDelete(state->families[each]));
  }
  free(state);
  return NULL;
}

static void *count_later(void *metric) {
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricIncrement(metric, 0.5));
  return NULL;
}

static TRITONSERVER_Error *add_output(TRITONBACKEND_Response *response) {
  const int64_t shape[] = {1, 1};
  TRITONBACKEND_Output *output;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  void *buffer;
  CHECK(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, shape, 2));
  CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, sizeof(int32_t), &type, &id));
  memset(buffer, 0, sizeof(int32_t));
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  void *known;
  CHECK(TRITONBACKEND_ModelInstanceState(instance, &known));
  State *state = known;
  CHECK(TRITONSERVER_MetricObserve(state->metrics[BATCHES], request_count));
  for (uint32_t index = 0; index < request_count; ++index) {
    TRITONBACKEND_Input *input;
    uint64_t byte_size;
    CHECK(TRITONBACKEND_RequestInputByIndex(requests[index], 0, &input));
    CHECK(TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, &byte_size, NULL));
    CHECK(TRITONSERVER_MetricSet(state->metrics[SIZE], (double)byte_size));
    CHECK(TRITONSERVER_MetricIncrement(state->metrics[REQUESTS], 1));
    CHECK(end_thread(state));
    state->has_thread = pthread_create(&state->thread, NULL, count_later, state->metrics[LATER]) == 0;
    TRITONBACKEND_Response *response;
    CHECK(TRITONBACKEND_ResponseNew(&response, requests[index]));
    CHECK(add_output(response));
    CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    CHECK(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
