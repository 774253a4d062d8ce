/* A backend for tests: INPUT<i> comes back as OUTPUT<i>; the parameter `do` of a request asks for other things. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "tritonpy/backend.h"

static TRITONSERVER_Error *refusal(TRITONSERVER_Error_Code code, const char *text) {
  return TRITONSERVER_ErrorNew(code, text);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The parameter `do`, or "". */
static const char *wish(TRITONBACKEND_Request *request) {
  uint32_t count = 0;
  TRITONBACKEND_RequestParameterCount(request, &count);
  for (uint32_t index = 0; index < count; ++index) {
    const char *key;
    TRITONSERVER_ParameterType type;
    const void *value;
    TRITONBACKEND_RequestParameter(request, index, &key, &type, &value);
    if (strcmp(key, "do") == 0 && type == TRITONSERVER_PARAMETER_STRING) return value;
  }
  return "";
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  TRITONSERVER_Message *config;
  const char *json;
  size_t size;
  CHECK(TRITONBACKEND_BackendConfig(backend, &config));
  CHECK(TRITONSERVER_MessageSerializeToJson(config, &json, &size));
  if (memmem(json, size, "\"refuse\":\"backend\"", 18) != NULL) {
    return refusal(TRITONSERVER_ERROR_UNAVAILABLE, "the backend was told to refuse");
  }
  CHECK(TRITONBACKEND_BackendSetExecutionPolicy(backend, TRITONBACKEND_EXECUTION_DEVICE_BLOCKING));
  return TRITONBACKEND_BackendSetState(backend, strdup("state of the backend"));
}

TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend) {
  void *state;
  CHECK(TRITONBACKEND_BackendState(backend, &state));
  free(state);
  return NULL;
}

typedef struct {
  pthread_mutex_t mutex; /* guards the number of threads */
  pthread_cond_t changed;
  int thread_count;
  bool is_decoupled;
} ModelState;

static TRITONSERVER_Error *complete(TRITONBACKEND_Model *model, const char *json, size_t size) {
  static const char kBefore[] = "\"input\":[]";
  static const char kAfter[] = "\"input\":[{\"name\":\"INPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}]";
  static const char kOut[] = "\"output\":[]";
  static const char kOutAfter[] =
      "\"output\":[{\"name\":\"OUTPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}]";
  bool completes;
  CHECK(TRITONBACKEND_ModelAutoCompleteConfig(model, &completes));
  const char *in = memmem(json, size, kBefore, sizeof(kBefore) - 1);
  const char *out = memmem(json, size, kOut, sizeof(kOut) - 1);
  if (!completes || in == NULL || out == NULL || in > out) return NULL;
  char *made = malloc(size + sizeof(kAfter) + sizeof(kOutAfter));
  const char *between = in + sizeof(kBefore) - 1;
  const char *rest = out + sizeof(kOut) - 1;
  int length = sprintf(
      made, "%.*s%s%.*s%s%.*s", (int)(in - json), json, kAfter, (int)(out - between), between, kOutAfter,
      (int)(json + size - rest), rest);
  TRITONSERVER_Message *message;
  TRITONSERVER_Error *error = TRITONSERVER_MessageNewFromSerializedJson(&message, made, (size_t)length);
  free(made);
  if (error != NULL) return error;
  error = TRITONBACKEND_ModelSetConfig(model, 1, message);
  TRITONSERVER_MessageDelete(message);
  return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model) {
  TRITONSERVER_Message *config;
  const char *json;
  size_t size;
  CHECK(TRITONBACKEND_ModelConfig(model, 1, &config));
  CHECK(TRITONSERVER_MessageSerializeToJson(config, &json, &size));
  TRITONSERVER_Error *error = NULL;
  if (memmem(json, size, "refuse model", 12) != NULL) {
    error = refusal(TRITONSERVER_ERROR_INVALID_ARG, "the model was told to refuse");
  } else if (memmem(json, size, "crash", 5) != NULL) {
    abort();
  } else {
    error = complete(model, json, size);
  }
  ModelState *state = calloc(1, sizeof(ModelState));
  pthread_mutex_init(&state->mutex, NULL);
  pthread_cond_init(&state->changed, NULL);
  state->is_decoupled = memmem(json, size, "\"decoupled\":true", 16) != NULL;
  TRITONSERVER_MessageDelete(config);
  if (error != NULL) {
    free(state);
    return error;
  }
  return TRITONBACKEND_ModelSetState(model, state);
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model) {
  void *known;
  CHECK(TRITONBACKEND_ModelState(model, &known));
  ModelState *state = known;
  if (state == NULL) return NULL; /* Triton finalises what it could not initialise, too */
  pthread_mutex_lock(&state->mutex);
  while (state->thread_count > 0) pthread_cond_wait(&state->changed, &state->mutex);
  pthread_mutex_unlock(&state->mutex);
  free(state);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance) {
  const char *name;
  char line[256];
  CHECK(TRITONBACKEND_ModelInstanceName(instance, &name));
  snprintf(line, sizeof(line), "copying begins as %s", name);
  CHECK(TRITONSERVER_LogMessage(TRITONSERVER_LOG_INFO, __FILE__, __LINE__, line));
  return TRITONBACKEND_ModelInstanceSetState(instance, strdup(name));
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance) {
  void *state;
  CHECK(TRITONBACKEND_ModelInstanceState(instance, &state));
  free(state);
  return NULL;
}

/* Copies the inputs to the outputs that are asked for; a wrong size leaves one byte out. Where places are asked
 * for, the first four bytes say where the data lay, as the rest of a division by 64. */
static TRITONSERVER_Error *copy(
    TRITONBACKEND_Request *request, TRITONBACKEND_Response *response, uint64_t missing, bool tells_place) {
  uint32_t count;
  CHECK(TRITONBACKEND_RequestOutputCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char *name;
    CHECK(TRITONBACKEND_RequestOutputName(request, index, &name));
    char source[64];
    snprintf(source, sizeof(source), "INPUT%s", name + strlen("OUTPUT"));
    TRITONBACKEND_Input *input;
    CHECK(TRITONBACKEND_RequestInput(request, source, &input));
    TRITONSERVER_DataType datatype;
    const int64_t *shape;
    uint32_t dim_count, buffer_count;
    uint64_t byte_size;
    CHECK(TRITONBACKEND_InputProperties(
        input, NULL, &datatype, &shape, &dim_count, &byte_size, &buffer_count));
    TRITONBACKEND_Output *output;
    CHECK(TRITONBACKEND_ResponseOutput(response, &output, name, datatype, shape, dim_count));
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
    int64_t id = 3;
    void *buffer;
    CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, byte_size - missing, &type, &id));
    if (type != TRITONSERVER_MEMORY_CPU || id != 0) {
      return refusal(TRITONSERVER_ERROR_INTERNAL, "the buffer is not where the processor sees it");
    }
    uint64_t offset = 0;
    for (uint32_t part = 0; part < buffer_count; ++part) {
      const void *data;
      uint64_t size;
      CHECK(TRITONBACKEND_InputBuffer(input, part, &data, &size, &type, &id));
      memcpy((char *)buffer + offset, data, size - missing);
      const int32_t place = (int32_t)((uintptr_t)data % 64);
      if (tells_place) memcpy((char *)buffer + offset, &place, sizeof(place));
      offset += size;
    }
  }
  return NULL;
}

static TRITONSERVER_Error *answer(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, const char *what) {
  TRITONBACKEND_Response *response;
  CHECK(TRITONBACKEND_ResponseNew(&response, request));
  TRITONSERVER_Error *error = NULL;
  if (strcmp(what, "discard") == 0) {
    CHECK(copy(request, response, 0, false));
    CHECK(TRITONBACKEND_ResponseDelete(response));
    CHECK(TRITONBACKEND_ResponseNew(&response, request));
  }
  if (strcmp(what, "error") == 0) {
    error = refusal(TRITONSERVER_ERROR_NOT_FOUND, "the request was told to fail");
  } else {
    error = copy(request, response, strcmp(what, "shorten") == 0 ? 1 : 0, strcmp(what, "place") == 0);
  }
  if (strcmp(what, "describe") == 0) {
    void *name;
    CHECK(TRITONBACKEND_ModelInstanceState(instance, &name));
    CHECK(TRITONBACKEND_ResponseSetStringParameter(response, "instance", name));
    CHECK(TRITONBACKEND_ResponseSetIntParameter(response, "whole", -(INT64_C(1) << 40)));
    CHECK(TRITONBACKEND_ResponseSetBoolParameter(response, "truth", true));
    CHECK(TRITONBACKEND_ResponseSetDoubleParameter(response, "part", 0.5));
  }
  CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  TRITONSERVER_ErrorDelete(error);
  if (strcmp(what, "twice") == 0) {
    CHECK(TRITONBACKEND_ResponseNew(&response, request));
    error = TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL);
    if (error == NULL) abort();
    TRITONSERVER_ErrorDelete(error);
    TRITONBACKEND_ResponseDelete(response);
  }
  return NULL;
}

typedef struct {
  TRITONBACKEND_ModelInstance *instance;
  TRITONBACKEND_Request *request;
  TRITONBACKEND_ResponseFactory *factory;
  ModelState *model;
  int32_t number;
} Task;

static void report(TRITONSERVER_Error *error) {
  if (error == NULL) return;
  TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

/* As many responses as the request's first number says, and the final flag alone. */
static TRITONSERVER_Error *count_up(Task *task) {
  const int64_t one = 1;
  for (int32_t index = 0; index < task->number; ++index) {
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    void *buffer;
    CHECK(TRITONBACKEND_ResponseNewFromFactory(&response, task->factory));
    CHECK(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, &one, 1));
    CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, sizeof(index), &type, &id));
    memcpy(buffer, &index, sizeof(index));
    CHECK(TRITONBACKEND_ResponseSend(response, 0, NULL));
  }
  return TRITONBACKEND_ResponseFactorySendFlags(task->factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL);
}

static void *run(void *argument) {
  Task *task = argument;
  if (task->factory != NULL) {
    report(count_up(task));
    report(TRITONBACKEND_ResponseFactoryDelete(task->factory));
  } else {
    const uint64_t start_ns = now_ns();
    report(answer(task->instance, task->request, ""));
    report(TRITONBACKEND_ModelInstanceReportStatistics(
        task->instance, task->request, true, start_ns, start_ns + 1, start_ns + 2, start_ns + 3));
    report(TRITONBACKEND_RequestRelease(task->request, TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  pthread_mutex_lock(&task->model->mutex);
  task->model->thread_count -= 1;
  pthread_cond_signal(&task->model->changed);
  pthread_mutex_unlock(&task->model->mutex);
  free(task);
  return NULL;
}

static TRITONSERVER_Error *begin(Task given) {
  Task *task = malloc(sizeof(Task));
  *task = given;
  pthread_mutex_lock(&given.model->mutex);
  given.model->thread_count += 1;
  pthread_mutex_unlock(&given.model->mutex);
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, task) != 0) {
    return refusal(TRITONSERVER_ERROR_UNAVAILABLE, "there is no thread");
  }
  pthread_detach(thread);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  const uint64_t start_ns = now_ns();
  TRITONBACKEND_Model *model;
  void *state;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelState(model, &state));
  ModelState *known = state;
  for (uint32_t index = 0; index < request_count; ++index) {
    if (strcmp(wish(requests[index]), "refuse") == 0) {
      return refusal(TRITONSERVER_ERROR_UNAVAILABLE, "the batch was told to fail");
    }
  }
  for (uint32_t index = 0; index < request_count; ++index) {
    TRITONBACKEND_Request *request = requests[index];
    const char *what = wish(request);
    Task task = {instance, request, NULL, known, 0};
    if (strcmp(what, "crash") == 0) abort();
    if (known->is_decoupled) {
      TRITONBACKEND_Input *input;
      const void *data;
      uint64_t size;
      TRITONSERVER_MemoryType type;
      int64_t id;
      CHECK(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
      CHECK(TRITONBACKEND_InputBuffer(input, 0, &data, &size, &type, &id));
      memcpy(&task.number, data, sizeof(task.number));
      CHECK(TRITONBACKEND_ResponseFactoryNew(&task.factory, request));
      CHECK(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
      CHECK(begin(task));
      continue;
    }
    if (strcmp(what, "later") == 0) {
      CHECK(begin(task));
      continue;
    }
    if (strcmp(what, "forget") != 0) CHECK(answer(instance, request, what));
    CHECK(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, request, true, start_ns, start_ns + 1, start_ns + 2, start_ns + 3));
    CHECK(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance, request_count, start_ns, start_ns + 1, start_ns + 2, start_ns + 3);
}
