/* A strategy for several models at once, each asked by a thread of its own. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS 8

static const char *const kFunctions[] = {
    "TRITONBACKEND_ModelBatcherInitialize", "TRITONBACKEND_ModelBatcherFinalize",
    "TRITONBACKEND_ModelBatchInitialize", "TRITONBACKEND_ModelBatchIncludeRequest",
    "TRITONBACKEND_ModelBatchFinalize"};

static TRITONSERVER_Error *open_strategy(uint64_t version, const char *config, TRITONPY_Strategy **strategy) {
  void *functions[5];
  for (int index = 0; index < 5; ++index) {
    functions[index] = function_of(kFunctions[index]);
  }
  /* Copied: they are gone when the strategy is asked. */
  char name[20];
  snprintf(name, sizeof(name), "model%d", (int)version);
  const TRITONPY_Model model = {name, version, "/models/m", config, true, "identity", "/backends", "{}"};
  return TRITONPY_StrategyOpen(functions, &model, strategy);
}

/* Three inputs: bytes in memory, none, and in a file. */
static TRITONBACKEND_Request *make_request(const char *id, FILE *bytes) {
  static const int64_t shape[] = {1, 16};
  static const TRITONPY_RequestParameter parameters[] = {
      {"text", TRITONSERVER_PARAMETER_STRING, "text", 0, 0, false},
      {"integer", TRITONSERVER_PARAMETER_INT, NULL, -7, 0, false},
      {"half", TRITONSERVER_PARAMETER_DOUBLE, NULL, 0, 0.5, false},
      {"truth", TRITONSERVER_PARAMETER_BOOL, NULL, 0, 0, true}};
  static const char *const outputs[] = {"OUTPUT0", "OUTPUT1"};
  static const char *const names[] = {"INPUT0", "EMPTY", "SHARED", "DEVICE"};
  TRITONBACKEND_Request *request = calloc(1, sizeof(*request) + 4 * sizeof(request->inputs[0]));
  request->id = id;
  request->correlation_text = id[0] == '1' ? "a sequence" : NULL;
  request->parameters = parameters;
  request->parameter_count = 4;
  request->outputs = outputs;
  request->output_count = 2;
  request->input_count = 4;
  for (uint32_t index = 0; index < 4; ++index) {
    TRITONBACKEND_Input *input = &request->inputs[index];
    input->name = names[index];
    input->shape = shape;
    input->dim_count = 2;
    input->datatype = TRITONSERVER_TYPE_FP32;
    input->index = index;
    input->descriptor = -1;
    input->byte_size = index == 1 ? 0 : 64;
  }
  request->inputs[0].data = memset(malloc(64), 1, 64);
  request->inputs[2].descriptor = fileno(bytes);
  request->inputs[2].position = id[0] == '2' ? 1 << 20 : 16; /* the one is behind the end */
  request->inputs[3].memory_type = TRITONSERVER_MEMORY_GPU;
  return request;
}

static void end_request(TRITONBACKEND_Request *request) {
  CHECK(!request->has_scratch && request->inputs[2].snapshot == NULL);
  free((void *)request->inputs[0].data);
  free(request);
}

static uint32_t include(TRITONPY_Strategy *strategy, TRITONBACKEND_Request **requests, uint32_t count) {
  TRITONSERVER_Error *error;
  const uint32_t joined = TRITONPY_BatchInclude(strategy, requests, count, &error);
  OK(error);
  return joined;
}

static void drive_model(int number, void *argument) {
  static const char *const ids[REQUESTS] = {"0", "1", "2", "3", "4", "5", "6", "7"};
  const uint32_t limit = (uint32_t)number + 1;
  TRITONPY_Strategy *strategy;
  TRITONBACKEND_Request *requests[REQUESTS];
  OK(open_strategy(limit, "{\"name\": \"model\"}", &strategy));
  for (int index = 0; index < REQUESTS; ++index) {
    requests[index] = make_request(ids[index], argument);
  }
  for (int round = 0; round < 20; ++round) {
    OK(TRITONPY_BatchBegin(strategy));
    CHECK(include(strategy, requests, REQUESTS) == limit);
    CHECK(include(strategy, requests + limit, 1) == 0);
    OK(TRITONPY_BatchEnd(strategy));
    OK(TRITONPY_BatchEnd(strategy));
  }
  OK(TRITONPY_BatchBegin(strategy));
  OK(TRITONPY_StrategyClose(strategy)); /* with an attempt that is open */
  for (int index = 0; index < REQUESTS; ++index) {
    end_request(requests[index]);
  }
}

static void drive_faults(FILE *bytes) {
  TRITONPY_Strategy *strategy;
  TRITONSERVER_Error *error;
  FAILS(TRITONSERVER_ERROR_UNAVAILABLE, "told to fail", open_strategy(1, "fail", &strategy));
  FAILS(TRITONSERVER_ERROR_INTERNAL, "thrown by the plugin", open_strategy(1, "throw", &strategy));
  FAILS(TRITONSERVER_ERROR_INTERNAL, "no std::exception", open_strategy(1, "throw an integer", &strategy));
  OK(open_strategy(5, "{}", &strategy));
  TRITONBACKEND_Request *requests[6];
  for (int index = 0; index < 6; ++index) {
    requests[index] = make_request("", bytes);
  }
  requests[3]->id = "fail";
  CHECK(TRITONPY_BatchInclude(strategy, requests, 6, &error) == 3);
  FAILS(TRITONSERVER_ERROR_UNAVAILABLE, "told to fail", error);
  requests[3]->id = "fail, and throw";
  CHECK(TRITONPY_BatchInclude(strategy, requests + 3, 3, &error) == 0);
  FAILS(TRITONSERVER_ERROR_INTERNAL, "thrown by the plugin", error);
  requests[3]->id = "included all the same: fail";
  OK(TRITONPY_BatchEnd(strategy));
  CHECK(include(strategy, requests, 5) == 5);
  FAILS(TRITONSERVER_ERROR_UNAVAILABLE, "five are too many", TRITONPY_BatchEnd(strategy));
  CHECK(include(strategy, requests, 5) == 5);
  FAILS(TRITONSERVER_ERROR_UNAVAILABLE, "five are too many", TRITONPY_StrategyClose(strategy));
  for (int index = 0; index < 6; ++index) {
    end_request(requests[index]);
  }
}

void drive_strategies(void) {
  FILE *bytes = tmpfile();
  for (int index = 0; index < 4096; ++index) {
    fputc(1, bytes);
  }
  fflush(bytes);
  on_threads(drive_model, bytes);
  drive_faults(bytes);
  fclose(bytes);
}
