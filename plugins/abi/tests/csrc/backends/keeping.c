/* A backend for tests that keeps what it is given: the parameter `do` of a request says for how long.
 *
 * INPUT0 comes back as OUTPUT0, both INT32 [-1]. What it sees is added to the file that `notes` names.
 */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "tritonpy/backend.h"

enum { kPatienceMs = 20000, kTextSize = 512 };

typedef struct {
  TRITONBACKEND_ModelInstance *instance;
  TRITONBACKEND_Request *request; /* NULL when it is released */
  TRITONBACKEND_ResponseFactory *factory;
  char notes[kTextSize];
  int32_t count; /* of responses to be sent */
  int32_t length; /* of each */
} Kept;

static pthread_mutex_t waiting_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the next */
static Kept *waiting; /* for another one, to be answered in turn with it */

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void moment(void) {
  const struct timespec time = {0, 1000000};
  nanosleep(&time, NULL);
}

static TRITONSERVER_Error *failed(TRITONSERVER_Error_Code code, const char *text) {
  return TRITONSERVER_ErrorNew(code, text);
}

static void report(TRITONSERVER_Error *error) {
  if (error == NULL) return;
  TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

/* A text parameter of a request, or "". */
static const char *text_of(TRITONBACKEND_Request *request, const char *name) {
  uint32_t count = 0;
  report(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char *key;
    TRITONSERVER_ParameterType type;
    const void *value;
    report(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value));
    if (strcmp(key, name) == 0 && type == TRITONSERVER_PARAMETER_STRING) return value;
  }
  return "";
}

static void note(const char *notes, const char *what) {
  if (notes[0] == '\0') return;
  FILE *file = fopen(notes, "a");
  if (file == NULL) return;
  fprintf(file, "%s\n", what);
  fclose(file);
}

static TRITONSERVER_Error *copy(TRITONBACKEND_Request *request, TRITONBACKEND_Response *response) {
  TRITONBACKEND_Input *input;
  TRITONBACKEND_Output *output;
  TRITONSERVER_DataType datatype;
  const int64_t *shape;
  uint32_t dim_count, buffer_count;
  uint64_t byte_size;
  CHECK(TRITONBACKEND_RequestInput(request, "INPUT0", &input));
  CHECK(TRITONBACKEND_InputProperties(input, NULL, &datatype, &shape, &dim_count, &byte_size, &buffer_count));
  CHECK(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", datatype, shape, dim_count));
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  void *buffer;
  const void *data;
  uint64_t size;
  CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, byte_size, &type, &id));
  CHECK(TRITONBACKEND_InputBuffer(input, 0, &data, &size, &type, &id));
  memcpy(buffer, data, size);
  return NULL;
}

static TRITONSERVER_Error *wait_for_cancellation(Kept *kept, bool *is_cancelled) {
  *is_cancelled = false;
  for (int passed_ms = 0; !*is_cancelled && passed_ms < kPatienceMs; ++passed_ms) {
    moment();
    if (kept->factory != NULL) {
      CHECK(TRITONBACKEND_ResponseFactoryIsCancelled(kept->factory, is_cancelled));
    } else {
      CHECK(TRITONBACKEND_RequestIsCancelled(kept->request, is_cancelled));
    }
  }
  return NULL;
}

/* Ends what was kept: with an error, or the input. */
static TRITONSERVER_Error *answer(Kept *kept, TRITONSERVER_Error *error, uint64_t start_ns) {
  TRITONBACKEND_Response *response;
  if (kept->factory != NULL) {
    CHECK(TRITONBACKEND_ResponseNewFromFactory(&response, kept->factory));
  } else {
    CHECK(TRITONBACKEND_ResponseNew(&response, kept->request));
  }
  if (error == NULL && kept->request != NULL) error = copy(kept->request, response);
  CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  if (kept->request != NULL) {
    CHECK(TRITONBACKEND_ModelInstanceReportStatistics(
        kept->instance, kept->request, error == NULL, start_ns, start_ns + 1, start_ns + 2, now_ns()));
    CHECK(TRITONBACKEND_RequestRelease(kept->request, TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  TRITONSERVER_ErrorDelete(error);
  return TRITONBACKEND_ResponseFactoryDelete(kept->factory);
}

/* Until there is the file that is called as the notes, with `.go` behind it. */
static TRITONSERVER_Error *hold(Kept *kept, uint64_t start_ns) {
  char name[kTextSize + 3];
  FILE *file = NULL;
  snprintf(name, sizeof(name), "%s.go", kept->notes);
  note(kept->notes, "holding");
  for (int passed_ms = 0; file == NULL && passed_ms < kPatienceMs; ++passed_ms) {
    moment();
    file = fopen(name, "r");
  }
  if (file != NULL) fclose(file);
  return answer(kept, file == NULL ? failed(TRITONSERVER_ERROR_UNAVAILABLE, "held for too long") : NULL, start_ns);
}

static TRITONSERVER_Error *watch(Kept *kept, uint64_t start_ns) {
  bool is_cancelled;
  note(kept->notes, "watching");
  CHECK(wait_for_cancellation(kept, &is_cancelled));
  note(kept->notes, is_cancelled ? "cancelled" : "not cancelled");
  return answer(kept, failed(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled"), start_ns);
}

static void *hold_aside(void *argument) {
  Kept *kept = argument;
  report(hold(kept, now_ns()));
  free(kept);
  return NULL;
}

static void *watch_aside(void *argument) {
  Kept *kept = argument;
  report(watch(kept, now_ns()));
  free(kept);
  return NULL;
}

/* One of the responses of a flood, all of whose numbers are the response's own. */
static TRITONSERVER_Error *send(Kept *kept, int32_t number) {
  TRITONBACKEND_Response *response;
  TRITONBACKEND_Output *output;
  const int64_t length = kept->length;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  void *buffer;
  CHECK(TRITONBACKEND_ResponseNewFromFactory(&response, kept->factory));
  CHECK(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, &length, 1));
  CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, (uint64_t)length * sizeof(number), &type, &id));
  for (int64_t index = 0; index < length; ++index) ((int32_t *)buffer)[index] = number;
  TRITONSERVER_Error *error = TRITONBACKEND_ResponseSend(response, 0, NULL);
  if (error != NULL) report(TRITONBACKEND_ResponseDelete(response));
  return error;
}

static bool is_cancelled(const Kept *kept) {
  bool is_so = false;
  report(TRITONBACKEND_ResponseFactoryIsCancelled(kept->factory, &is_so));
  return is_so;
}

/* The final flag, unless there was one. */
static void end_flood(Kept *kept, int32_t sent_count, TRITONSERVER_Error *error) {
  char line[kTextSize];
  const char *why = error != NULL ? TRITONSERVER_ErrorMessage(error) : is_cancelled(kept) ? "cancelled" : "all";
  snprintf(line, sizeof(line), "sent %d: %s", sent_count, why);
  if (error == NULL) {
    report(TRITONBACKEND_ResponseFactorySendFlags(kept->factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  }
  TRITONSERVER_ErrorDelete(error);
  report(TRITONBACKEND_ResponseFactoryDelete(kept->factory));
  note(kept->notes, line);
  free(kept);
}

static void *flood_aside(void *argument) {
  Kept *kept = argument;
  int32_t number = 0;
  TRITONSERVER_Error *error = NULL;
  while (error == NULL && number < kept->count && !is_cancelled(kept)) error = send(kept, number++);
  end_flood(kept, number, error);
  return NULL;
}

/* Two, in turn. */
static void *flood_both_aside(void *argument) {
  Kept **both = argument;
  for (int32_t number = 0; both[0] != NULL || both[1] != NULL; ++number) {
    for (int index = 0; index < 2; ++index) {
      Kept *kept = both[index];
      if (kept == NULL) continue;
      TRITONSERVER_Error *error = number < kept->count ? send(kept, number) : NULL;
      if (error != NULL || number == kept->count) {
        end_flood(kept, number, error);
        both[index] = NULL;
      }
    }
  }
  free(both);
  return NULL;
}

static TRITONSERVER_Error *begin(void *(*run)(void *), void *argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, argument) != 0) {
    free(argument);
    return failed(TRITONSERVER_ERROR_UNAVAILABLE, "there is no thread");
  }
  pthread_detach(thread);
  return NULL;
}

static TRITONSERVER_Error *flood(TRITONBACKEND_Request *request, Kept given, bool is_in_turn) {
  Kept *kept = malloc(sizeof(Kept));
  TRITONBACKEND_Input *input;
  const void *data;
  uint64_t size;
  TRITONSERVER_MemoryType type;
  int64_t id;
  *kept = given;
  CHECK(TRITONBACKEND_RequestInput(request, "INPUT0", &input));
  CHECK(TRITONBACKEND_InputBuffer(input, 0, &data, &size, &type, &id));
  kept->count = ((const int32_t *)data)[0];
  kept->length = ((const int32_t *)data)[1];
  if (!is_in_turn) return begin(flood_aside, kept);
  pthread_mutex_lock(&waiting_mutex);
  Kept *other = waiting;
  waiting = other == NULL ? kept : NULL;
  pthread_mutex_unlock(&waiting_mutex);
  if (other == NULL) return NULL;
  Kept **both = malloc(2 * sizeof(Kept *));
  both[0] = other;
  both[1] = kept;
  return begin(flood_both_aside, both);
}

static TRITONSERVER_Error *keep(Kept given, void *(*run)(void *)) {
  Kept *kept = malloc(sizeof(Kept));
  *kept = given;
  return begin(run, kept);
}

static TRITONSERVER_Error *execute(TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request) {
  const uint64_t start_ns = now_ns();
  const char *what = text_of(request, "do");
  Kept kept = {instance, request, NULL, "", 0, 0};
  snprintf(kept.notes, sizeof(kept.notes), "%s", text_of(request, "notes"));
  if (strcmp(what, "watch") == 0) return watch(&kept, start_ns);
  if (strcmp(what, "hold") == 0) return hold(&kept, start_ns);
  if (strcmp(what, "hold aside") == 0) return keep(kept, hold_aside);
  if (strcmp(what, "keep") == 0 || strcmp(what, "keep the factory") == 0) {
    CHECK(TRITONBACKEND_ResponseFactoryNew(&kept.factory, request));
    if (strcmp(what, "keep the factory") == 0) {
      kept.request = NULL;
      CHECK(keep(kept, watch_aside));
      CHECK(TRITONBACKEND_ModelInstanceReportStatistics(
          instance, request, true, start_ns, start_ns + 1, start_ns + 2, now_ns()));
      return TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
    }
    return keep(kept, watch_aside);
  }
  if (strncmp(what, "flood", 5) == 0) {
    CHECK(TRITONBACKEND_ResponseFactoryNew(&kept.factory, request));
    kept.request = NULL;
    CHECK(flood(request, kept, strcmp(what, "flood in turn") == 0));
    return TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
  }
  return answer(&kept, NULL, start_ns);
}

/* The file that the parameter `ends` of a model's configuration names, or "". */
static TRITONSERVER_Error *ends_of(TRITONBACKEND_Model *model, char *ends) {
  static const char kBefore[] = "\"ends\":{\"string_value\":\"";
  TRITONSERVER_Message *config;
  const char *json;
  size_t size;
  ends[0] = '\0';
  CHECK(TRITONBACKEND_ModelConfig(model, 1, &config));
  CHECK(TRITONSERVER_MessageSerializeToJson(config, &json, &size));
  const char *found = memmem(json, size, kBefore, sizeof(kBefore) - 1);
  if (found != NULL) {
    found += sizeof(kBefore) - 1;
    snprintf(ends, kTextSize, "%.*s", (int)strcspn(found, "\""), found);
  }
  return TRITONSERVER_MessageDelete(config);
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model) {
  char ends[kTextSize];
  CHECK(ends_of(model, ends));
  note(ends, "model");
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance) {
  char ends[kTextSize];
  TRITONBACKEND_Model *model;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(ends_of(model, ends));
  note(ends, "instance");
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  const uint64_t start_ns = now_ns();
  for (uint32_t index = 0; index < request_count; ++index) {
    report(execute(instance, requests[index]));
  }
  return TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance, request_count, start_ns, start_ns + 1, start_ns + 2, now_ns());
}
