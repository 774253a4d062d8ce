/* A backend for tests that has other models do its work.
 *
 * Parameters of a request say what: `model` (and `version`) is called with INPUT0 as its INPUT0, and its OUTPUT0
 * comes back as OUTPUT0. `do` asks for other things. What it has to tell is the response parameter `said`.
 */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tritonpy/server.h"

/* ---- what a request says ---- */

typedef struct {
  const char *what;
  const char *model;
  int64_t version;
  const void *input;
  uint64_t byte_size;
  const int64_t *shape;
  uint32_t dim_count;
} Wish;

static TRITONSERVER_Error *read_wish(TRITONBACKEND_Request *request, Wish *wish) {
  *wish = (Wish){"", "", -1, NULL, 0, NULL, 0};
  uint32_t count;
  CHECK(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char *key;
    TRITONSERVER_ParameterType type;
    const void *value;
    CHECK(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value));
    if (strcmp(key, "do") == 0) wish->what = value;
    if (strcmp(key, "model") == 0) wish->model = value;
    if (strcmp(key, "version") == 0) wish->version = *(const int64_t *)value;
  }
  TRITONBACKEND_Input *input;
  uint32_t part_count;
  CHECK(TRITONBACKEND_RequestInput(request, "INPUT0", &input));
  CHECK(TRITONBACKEND_InputProperties(
      input, NULL, NULL, &wish->shape, &wish->dim_count, &wish->byte_size, &part_count));
  if (part_count > 1) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "INPUT0 is in parts");
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  return TRITONBACKEND_InputBuffer(input, 0, &wish->input, &wish->byte_size, &type, &id);
}

/* ---- memory: of malloc, counted ---- */

static int buffer_count;
static int asked_count[3]; /* start, query, attributes */

static TRITONSERVER_Error *allocate(
    TRITONSERVER_ResponseAllocator *allocator, const char *name, size_t byte_size,
    TRITONSERVER_MemoryType type, int64_t id, void *userp, void **buffer, void **buffer_userp,
    TRITONSERVER_MemoryType *actual_type, int64_t *actual_id) {
  (void)allocator, (void)name, (void)type, (void)id;
  if (userp != NULL) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "the allocator has nothing");
  *buffer = byte_size == 0 ? NULL : malloc(byte_size);
  *buffer_userp = *buffer;
  *actual_type = TRITONSERVER_MEMORY_CPU;
  *actual_id = 0;
  if (byte_size != 0) __atomic_add_fetch(&buffer_count, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

static TRITONSERVER_Error *release(
    TRITONSERVER_ResponseAllocator *allocator, void *buffer, void *buffer_userp, size_t byte_size,
    TRITONSERVER_MemoryType type, int64_t id) {
  (void)allocator, (void)byte_size, (void)type, (void)id;
  if (buffer != buffer_userp) abort();
  free(buffer);
  __atomic_sub_fetch(&buffer_count, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

static TRITONSERVER_Error *start(TRITONSERVER_ResponseAllocator *allocator, void *userp) {
  (void)allocator, (void)userp;
  __atomic_add_fetch(&asked_count[0], 1, __ATOMIC_SEQ_CST);
  return NULL;
}

static TRITONSERVER_Error *query(
    TRITONSERVER_ResponseAllocator *allocator, void *userp, const char *name, size_t *byte_size,
    TRITONSERVER_MemoryType *type, int64_t *id) {
  (void)allocator, (void)userp, (void)name, (void)byte_size, (void)type, (void)id;
  __atomic_add_fetch(&asked_count[1], 1, __ATOMIC_SEQ_CST);
  return NULL;
}

static TRITONSERVER_Error *describe_buffer(
    TRITONSERVER_ResponseAllocator *allocator, const char *name, TRITONSERVER_BufferAttributes *attributes,
    void *userp, void *buffer_userp) {
  (void)allocator, (void)name, (void)userp, (void)buffer_userp;
  TRITONSERVER_MemoryType type;
  CHECK(TRITONSERVER_BufferAttributesMemoryType(attributes, &type));
  if (type != TRITONSERVER_MEMORY_CPU) abort();
  __atomic_add_fetch(&asked_count[2], 1, __ATOMIC_SEQ_CST);
  return NULL;
}

/* ---- a call of another model ---- */

typedef struct Call Call;
struct Call {
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t changed;
  TRITONSERVER_InferenceResponse *last;
  int response_count;
  bool is_answered;
  bool is_released;
  TRITONSERVER_InferenceRequest *request;
  TRITONBACKEND_ResponseFactory *factory; /* where each response is passed on */
  TRITONBACKEND_Request *asked; /* for whom, where the answer ends it */
  TRITONSERVER_Server *server; /* that the callback calls again */
  const Wish *again;
  void *userp; /* of the allocator */
};

static TRITONSERVER_Error *pass_on(Call *call, TRITONSERVER_InferenceResponse *response);
static TRITONSERVER_Error *call_again(Call *call);
static void finish(Call *call);

static void report(TRITONSERVER_Error *error) {
  if (error == NULL) return;
  TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

static void completed(TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp) {
  Call *call = userp;
  if (call->factory != NULL && response != NULL) {
    report(pass_on(call, response));
    TRITONSERVER_InferenceResponseDelete(response);
    response = NULL;
  }
  if (call->again != NULL) report(call_again(call));
  pthread_mutex_lock(&call->mutex);
  if (response != NULL) {
    if (call->last != NULL) TRITONSERVER_InferenceResponseDelete(call->last);
    call->last = response;
    call->response_count += 1;
  }
  call->is_answered = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  const bool is_over = call->factory != NULL && call->is_answered && call->is_released;
  pthread_cond_broadcast(&call->changed);
  pthread_mutex_unlock(&call->mutex);
  if (is_over) finish(call);
}

static void released(TRITONSERVER_InferenceRequest *request, const uint32_t flags, void *userp) {
  Call *call = userp;
  if ((flags & TRITONSERVER_REQUEST_RELEASE_ALL) == 0 || request != call->request) abort();
  pthread_mutex_lock(&call->mutex);
  call->is_released = true;
  const bool is_over = call->factory != NULL && call->is_answered;
  pthread_cond_broadcast(&call->changed);
  pthread_mutex_unlock(&call->mutex);
  if (is_over) finish(call);
}

static TRITONSERVER_ResponseAllocator *allocator, *curious_allocator;

static TRITONSERVER_Error *begin(TRITONSERVER_Server *server, const Wish *wish, Call *call) {
  pthread_mutex_init(&call->mutex, NULL);
  pthread_cond_init(&call->changed, NULL);
  CHECK(TRITONSERVER_InferenceRequestNew(&call->request, server, wish->model, wish->version));
  TRITONSERVER_InferenceRequest *request = call->request;
  CHECK(TRITONSERVER_InferenceRequestSetId(request, "called"));
  CHECK(TRITONSERVER_InferenceRequestAddInput(
      request, "INPUT0", TRITONSERVER_TYPE_INT32, wish->shape, wish->dim_count));
  const size_t half = wish->byte_size / 8 * 4; /* two parts, where there is more than one number */
  CHECK(TRITONSERVER_InferenceRequestAppendInputData(
      request, "INPUT0", wish->input, half, TRITONSERVER_MEMORY_CPU, 0));
  CHECK(TRITONSERVER_InferenceRequestAppendInputData(
      request, "INPUT0", (const char *)wish->input + half, wish->byte_size - half, TRITONSERVER_MEMORY_CPU, 0));
  CHECK(TRITONSERVER_InferenceRequestAddRequestedOutput(request, "OUTPUT0"));
  CHECK(TRITONSERVER_InferenceRequestSetReleaseCallback(request, released, call));
  CHECK(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, call->userp, completed, call));
  return NULL;
}

static void wait_for(Call *call) {
  pthread_mutex_lock(&call->mutex);
  while (!call->is_answered || !call->is_released) pthread_cond_wait(&call->changed, &call->mutex);
  pthread_mutex_unlock(&call->mutex);
}

static void end(Call *call) {
  if (call->last != NULL) TRITONSERVER_InferenceResponseDelete(call->last);
  if (call->request != NULL) TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestDelete(call->request));
  pthread_cond_destroy(&call->changed);
  pthread_mutex_destroy(&call->mutex);
}

typedef struct {
  const char *name;
  TRITONSERVER_DataType datatype;
  const int64_t *shape;
  uint64_t dim_count;
  const void *base;
  size_t byte_size;
} Output;

static TRITONSERVER_Error *read_output(TRITONSERVER_InferenceResponse *response, Output *output) {
  TRITONSERVER_MemoryType type;
  int64_t id;
  void *userp;
  return TRITONSERVER_InferenceResponseOutput(
      response, 0, &output->name, &output->datatype, &output->shape, &output->dim_count, &output->base,
      &output->byte_size, &type, &id, &userp);
}

static TRITONSERVER_Error *write_output(TRITONBACKEND_Response *response, const Output *from, void **buffer) {
  TRITONBACKEND_Output *output;
  CHECK(TRITONBACKEND_ResponseOutput(
      response, &output, "OUTPUT0", from->datatype, from->shape, (uint32_t)from->dim_count));
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  CHECK(TRITONBACKEND_OutputBuffer(output, buffer, from->byte_size, &type, &id));
  if (from->byte_size != 0) memcpy(*buffer, from->base, from->byte_size);
  return NULL;
}

static TRITONSERVER_Error *pass_on(Call *call, TRITONSERVER_InferenceResponse *response) {
  TRITONBACKEND_Response *mine;
  Output output;
  void *buffer;
  CHECK(TRITONBACKEND_ResponseNewFromFactory(&mine, call->factory));
  TRITONSERVER_Error *error = TRITONSERVER_InferenceResponseError(response);
  uint32_t count = 0;
  if (error == NULL) error = TRITONSERVER_InferenceResponseOutputCount(response, &count);
  if (error == NULL && count == 1) {
    error = read_output(response, &output);
    if (error == NULL) error = write_output(mine, &output, &buffer);
  }
  TRITONSERVER_Error *failure = TRITONBACKEND_ResponseSend(mine, 0, error);
  TRITONSERVER_ErrorDelete(error);
  return failure;
}

/* The last response of a call that passes them on has come, and its request. */
static void finish(Call *call) {
  report(TRITONBACKEND_ResponseFactorySendFlags(call->factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  report(TRITONBACKEND_ResponseFactoryDelete(call->factory));
  report(TRITONBACKEND_RequestRelease(call->asked, TRITONSERVER_REQUEST_RELEASE_ALL));
  end(call);
  free(call);
}

/* ---- what is done ---- */

static TRITONSERVER_Error *call_once(
    TRITONSERVER_Server *server, const Wish *wish, TRITONBACKEND_Response *response, Call *call) {
  Output output;
  void *buffer;
  CHECK(begin(server, wish, call));
  CHECK(TRITONSERVER_ServerInferAsync(server, call->request, NULL));
  wait_for(call);
  if (call->last == NULL) return NULL;
  CHECK(TRITONSERVER_InferenceResponseError(call->last));
  CHECK(read_output(call->last, &output));
  return write_output(response, &output, &buffer);
}

/* Two calls at once, whose answers are added. */
static TRITONSERVER_Error *sum(
    TRITONSERVER_Server *server, const Wish *wish, TRITONBACKEND_Response *response, Call *calls) {
  Output output, other;
  void *buffer;
  for (int index = 0; index < 2; ++index) CHECK(begin(server, wish, &calls[index]));
  for (int index = 0; index < 2; ++index) {
    CHECK(TRITONSERVER_ServerInferAsync(server, calls[index].request, NULL));
  }
  for (int index = 0; index < 2; ++index) wait_for(&calls[index]);
  for (int index = 0; index < 2; ++index) CHECK(TRITONSERVER_InferenceResponseError(calls[index].last));
  CHECK(read_output(calls[0].last, &output));
  CHECK(write_output(response, &output, &buffer));
  CHECK(read_output(calls[1].last, &other));
  for (size_t index = 0; index < other.byte_size / sizeof(int32_t); ++index) {
    ((int32_t *)buffer)[index] += ((const int32_t *)other.base)[index];
  }
  return NULL;
}

/* From a response callback: another call, whose answer the callback waits for. */
static TRITONSERVER_Error *call_again(Call *call) {
  Call other = {0};
  TRITONSERVER_Error *error = begin(call->server, call->again, &other);
  if (error == NULL) error = TRITONSERVER_ServerInferAsync(call->server, other.request, NULL);
  if (error == NULL) {
    wait_for(&other);
    error = TRITONSERVER_InferenceResponseError(other.last);
  }
  end(&other);
  return error;
}

/* What there is to tell, as lines. */
typedef struct {
  char text[65536];
  size_t size;
} Said;

static void say(Said *said, const char *format, ...) {
  va_list values;
  va_start(values, format);
  const int size = vsnprintf(said->text + said->size, sizeof(said->text) - said->size, format, values);
  va_end(values);
  if (size > 0) said->size += (size_t)size;
  if (said->size >= sizeof(said->text)) said->size = sizeof(said->text) - 1;
}

static void say_error(Said *said, const char *what, TRITONSERVER_Error *error) {
  if (error == NULL) {
    say(said, "%s: success\n", what);
  } else {
    say(said, "%s: %s: %s\n", what, TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorMessage(error));
  }
  TRITONSERVER_ErrorDelete(error);
}

static TRITONSERVER_Error *say_message(Said *said, TRITONSERVER_Message *message) {
  const char *json;
  size_t size;
  CHECK(TRITONSERVER_MessageSerializeToJson(message, &json, &size));
  say(said, "%.*s", (int)size, json);
  return TRITONSERVER_MessageDelete(message);
}

/* Questions about the server and a model. */
static TRITONSERVER_Error *ask(TRITONSERVER_Server *server, const Wish *wish, Said *said) {
  TRITONSERVER_Message *message = NULL;
  const char *what = wish->what + strlen("ask ");
  bool truth = false;
  uint32_t flags = 0;
  void *nothing = said;
  if (strcmp(what, "is_live") == 0) {
    CHECK(TRITONSERVER_ServerIsLive(server, &truth));
    say(said, "%d", truth);
  } else if (strcmp(what, "is_ready") == 0) {
    CHECK(TRITONSERVER_ServerIsReady(server, &truth));
    say(said, "%d", truth);
  } else if (strcmp(what, "model_is_ready") == 0) {
    CHECK(TRITONSERVER_ServerModelIsReady(server, wish->model, wish->version, &truth));
    say(said, "%d", truth);
  } else if (strcmp(what, "properties") == 0) {
    CHECK(TRITONSERVER_ServerModelBatchProperties(server, wish->model, wish->version, &flags, &nothing));
    say(said, "%u ", flags);
    CHECK(TRITONSERVER_ServerModelTransactionProperties(server, wish->model, wish->version, &flags, NULL));
    say(said, "%u %d", flags, nothing == NULL);
  } else if (strcmp(what, "metadata") == 0) {
    CHECK(TRITONSERVER_ServerMetadata(server, &message));
  } else if (strcmp(what, "model_metadata") == 0) {
    CHECK(TRITONSERVER_ServerModelMetadata(server, wish->model, wish->version, &message));
  } else if (strcmp(what, "model_config") == 0) {
    CHECK(TRITONSERVER_ServerModelConfig(server, wish->model, wish->version, 1, &message));
  } else if (strcmp(what, "config_2") == 0) {
    CHECK(TRITONSERVER_ServerModelConfig(server, wish->model, wish->version, 2, &message));
  } else if (strcmp(what, "model_statistics") == 0) {
    CHECK(TRITONSERVER_ServerModelStatistics(server, wish->model, wish->version, &message));
  } else if (strcmp(what, "index") == 0) {
    CHECK(TRITONSERVER_ServerModelIndex(server, TRITONSERVER_INDEX_FLAG_READY, &message));
  } else if (strcmp(what, "load") == 0) {
    CHECK(TRITONSERVER_ServerLoadModel(server, wish->model));
  } else if (strcmp(what, "unload") == 0) {
    CHECK(TRITONSERVER_ServerUnloadModel(server, wish->model));
  } else if (strcmp(what, "unload_dependents") == 0) {
    CHECK(TRITONSERVER_ServerUnloadModelAndDependents(server, wish->model));
  } else if (strcmp(what, "load_other") == 0) {
    static const char kConfig[] =
        "{\"backend\": \"copying\", \"max_batch_size\": 3, \"input\": [{\"name\": \"INPUT0\", "
        "\"data_type\": \"TYPE_INT32\", \"dims\": [-1]}], \"output\": [{\"name\": \"OUTPUT0\", "
        "\"data_type\": \"TYPE_INT32\", \"dims\": [-1]}]}";
    TRITONSERVER_Parameter *config =
        TRITONSERVER_ParameterNew("config", TRITONSERVER_PARAMETER_STRING, kConfig);
    TRITONSERVER_Parameter *file = TRITONSERVER_ParameterBytesNew("file:1/empty", "", 0);
    const TRITONSERVER_Parameter *parameters[] = {config, file};
    TRITONSERVER_Error *error =
        TRITONSERVER_ServerLoadModelWithParameters(server, wish->model, parameters, 2);
    TRITONSERVER_ParameterDelete(config);
    TRITONSERVER_ParameterDelete(file);
    return error;
  } else if (strcmp(what, "metrics") == 0) {
    TRITONSERVER_Metrics *metrics;
    const char *page;
    size_t size;
    CHECK(TRITONSERVER_ServerMetrics(server, &metrics));
    CHECK(TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &page, &size));
    say(said, "%d", memmem(page, size, "# TYPE nv_inference_count counter", 33) != NULL);
    CHECK(TRITONSERVER_MetricsDelete(metrics));
  }
  return message == NULL ? NULL : say_message(said, message);
}

/* What is wrong with a request before it is sent. */
static TRITONSERVER_Error *make_mistakes(TRITONSERVER_Server *server, const Wish *wish, Said *said) {
  TRITONSERVER_InferenceRequest *request;
  uint64_t number;
  uint32_t low;
  bool truth;
  const char *text;
  const int64_t shape[] = {1, 1};
  char long_id[131];
  memset(long_id, 'x', sizeof(long_id) - 1);
  long_id[sizeof(long_id) - 1] = '\0';
  CHECK(TRITONSERVER_InferenceRequestNew(&request, server, wish->model, -1));
  say_error(said, "cancel", TRITONSERVER_InferenceRequestCancel(request));
  say_error(said, "is cancelled", TRITONSERVER_InferenceRequestIsCancelled(request, &truth));
  say_error(said, "text", TRITONSERVER_InferenceRequestCorrelationIdString(request, &text));
  say_error(said, "number", TRITONSERVER_InferenceRequestCorrelationId(request, &number));
  say_error(said, "long", TRITONSERVER_InferenceRequestSetCorrelationIdString(request, long_id));
  say_error(said, "short", TRITONSERVER_InferenceRequestSetCorrelationIdString(request, "abc"));
  say_error(said, "number of a text", TRITONSERVER_InferenceRequestCorrelationId(request, &number));
  CHECK(TRITONSERVER_InferenceRequestCorrelationIdString(request, &text));
  say(said, "%s\n", text);
  CHECK(TRITONSERVER_InferenceRequestSetPriority(request, 0)); /* no model here has levels */
  CHECK(TRITONSERVER_InferenceRequestPriorityUInt64(request, &number));
  CHECK(TRITONSERVER_InferenceRequestPriority(request, &low));
  say(said, "%d %d ", (int)number, (int)low);
  CHECK(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(request, 8));
  CHECK(TRITONSERVER_InferenceRequestTimeoutMicroseconds(request, &number));
  say(said, "%d ", (int)number);
  CHECK(TRITONSERVER_InferenceRequestSetFlags(request, 3));
  CHECK(TRITONSERVER_InferenceRequestFlags(request, &low));
  say(said, "%d ", (int)low);
  CHECK(TRITONSERVER_InferenceRequestSetId(request, "an id"));
  CHECK(TRITONSERVER_InferenceRequestId(request, &text));
  say(said, "%s\n", text);
  say_error(said, "no input", TRITONSERVER_InferenceRequestAppendInputData(request, "X", "", 0, 0, 0));
  say_error(said, "no such", TRITONSERVER_InferenceRequestRemoveInput(request, "X"));
  say_error(said, "no data", TRITONSERVER_InferenceRequestRemoveAllInputData(request, "X"));
  say_error(said, "raw", TRITONSERVER_InferenceRequestAddRawInput(request, "RAW"));
  say_error(
      said, "beside raw", TRITONSERVER_InferenceRequestAddInput(request, "X", TRITONSERVER_TYPE_INT32, shape, 2));
  CHECK(TRITONSERVER_InferenceRequestRemoveAllInputs(request));
  say_error(
      said, "one", TRITONSERVER_InferenceRequestAddInput(request, "X", TRITONSERVER_TYPE_INT32, shape, 2));
  say_error(
      said, "twice", TRITONSERVER_InferenceRequestAddInput(request, "X", TRITONSERVER_TYPE_INT32, shape, 2));
  say_error(said, "raw beside", TRITONSERVER_InferenceRequestAddRawInput(request, "RAW"));
  say_error(said, "removed", TRITONSERVER_InferenceRequestRemoveInput(request, "X"));
  say_error(said, "output", TRITONSERVER_InferenceRequestAddRequestedOutput(request, "Y"));
  say_error(said, "same output", TRITONSERVER_InferenceRequestAddRequestedOutput(request, "Y"));
  say_error(said, "other output", TRITONSERVER_InferenceRequestRemoveRequestedOutput(request, "Z"));
  say_error(said, "outputs", TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(request));
  return TRITONSERVER_InferenceRequestDelete(request);
}

/* A call whose allocator is asked for all that it may be asked. */
static TRITONSERVER_Error *call_curiously(
    TRITONSERVER_Server *server, const Wish *wish, TRITONBACKEND_Response *response, Call *call, Said *said) {
  CHECK(begin(server, wish, call));
  CHECK(TRITONSERVER_InferenceRequestSetResponseCallback(
      call->request, curious_allocator, NULL, completed, call));
  CHECK(TRITONSERVER_ServerInferAsync(server, call->request, NULL));
  wait_for(call);
  CHECK(TRITONSERVER_InferenceResponseError(call->last));
  const char *text;
  int64_t version;
  uint32_t count;
  Output output;
  void *buffer;
  CHECK(TRITONSERVER_InferenceResponseModel(call->last, &text, &version));
  say(said, "%s %d ", text, (int)version);
  CHECK(TRITONSERVER_InferenceResponseId(call->last, &text));
  say(said, "%s\n", text);
  CHECK(TRITONSERVER_InferenceResponseParameterCount(call->last, &count));
  say(said, "%u parameters\n", count);
  say_error(said, "output", TRITONSERVER_InferenceResponseOutput(
      call->last, 1, &output.name, &output.datatype, &output.shape, &output.dim_count, &output.base,
      &output.byte_size, (TRITONSERVER_MemoryType *)&count, &version, &buffer));
  say_error(said, "label", TRITONSERVER_InferenceResponseOutputClassificationLabel(call->last, 0, 0, &text));
  say(said, "%s\n", text == NULL ? "none" : text);
  CHECK(read_output(call->last, &output));
  CHECK(write_output(response, &output, &buffer));
  CHECK(TRITONBACKEND_InferenceResponseOutput(
      response, 0, &output.name, &output.datatype, &output.shape, &output.dim_count));
  say(said, "%s %d\n", output.name, (int)output.dim_count);
  say_error(said, "mine", TRITONBACKEND_InferenceResponseOutput(
      response, 1, &output.name, &output.datatype, &output.shape, &output.dim_count));
  say_error(said, "named", TRITONBACKEND_InferenceResponseOutputByName(
      response, "OUTPUT0", &output.datatype, &output.shape, &output.dim_count));
  say_error(said, "other", TRITONBACKEND_InferenceResponseOutputByName(
      response, "X", &output.datatype, &output.shape, &output.dim_count));
  say(said, "%d started, %d described\n", asked_count[0] > 0, asked_count[2] > 0);
  return NULL;
}

/* A call that is cancelled at once; and what may not be done to a request in flight. */
static TRITONSERVER_Error *cancel(TRITONSERVER_Server *server, const Wish *wish, Call *call, Said *said) {
  bool truth = false;
  CHECK(begin(server, wish, call));
  CHECK(TRITONSERVER_ServerInferAsync(server, call->request, NULL));
  if (strcmp(wish->what, "cancel and meddle") == 0) {
    say_error(said, "delete", TRITONSERVER_InferenceRequestDelete(call->request));
    say_error(said, "change", TRITONSERVER_InferenceRequestSetId(call->request, "another"));
    say_error(said, "again", TRITONSERVER_ServerInferAsync(server, call->request, NULL));
  }
  CHECK(TRITONSERVER_InferenceRequestIsCancelled(call->request, &truth));
  say(said, "%d ", truth);
  CHECK(TRITONSERVER_InferenceRequestCancel(call->request));
  CHECK(TRITONSERVER_InferenceRequestIsCancelled(call->request, &truth));
  say(said, "%d\n", truth);
  wait_for(call);
  say_error(said, "response", TRITONSERVER_InferenceResponseError(call->last));
  return NULL;
}

/* The only input has neither datatype nor shape. */
static TRITONSERVER_Error *call_raw(
    TRITONSERVER_Server *server, const Wish *wish, TRITONBACKEND_Response *response, Call *call) {
  Output output;
  void *buffer;
  CHECK(begin(server, wish, call));
  CHECK(TRITONSERVER_InferenceRequestRemoveAllInputs(call->request));
  CHECK(TRITONSERVER_InferenceRequestAddRawInput(call->request, "INPUT0"));
  CHECK(TRITONSERVER_InferenceRequestAppendInputData(
      call->request, "INPUT0", wish->input, wish->byte_size, TRITONSERVER_MEMORY_CPU, 0));
  CHECK(TRITONSERVER_ServerInferAsync(server, call->request, NULL));
  wait_for(call);
  CHECK(TRITONSERVER_InferenceResponseError(call->last));
  CHECK(read_output(call->last, &output));
  return write_output(response, &output, &buffer);
}

static TRITONSERVER_Error *answer(
    TRITONSERVER_Server *server, TRITONBACKEND_Request *request, TRITONBACKEND_Response *response) {
  Wish wish;
  CHECK(read_wish(request, &wish));
  Call calls[2] = {0};
  TRITONSERVER_Error *error;
  static _Thread_local Said said;
  said.size = 0;
  said.text[0] = '\0';
  if (strncmp(wish.what, "ask ", 4) == 0) {
    error = ask(server, &wish, &said);
  } else if (strcmp(wish.what, "mistakes") == 0) {
    error = make_mistakes(server, &wish, &said);
  } else if (strcmp(wish.what, "curious") == 0) {
    error = call_curiously(server, &wish, response, calls, &said);
  } else if (strncmp(wish.what, "cancel", 6) == 0) {
    error = cancel(server, &wish, calls, &said);
  } else if (strcmp(wish.what, "raw") == 0) {
    error = call_raw(server, &wish, response, calls);
  } else if (strcmp(wish.what, "again") == 0) {
    calls[0].server = server;
    calls[0].again = &wish;
    error = call_once(server, &wish, response, calls);
  } else if (strcmp(wish.what, "no memory") == 0) {
    calls[0].userp = calls;
    error = call_once(server, &wish, response, calls);
  } else if (strcmp(wish.what, "buffers") == 0) {
    say(&said, "%d", __atomic_load_n(&buffer_count, __ATOMIC_SEQ_CST));
    error = NULL;
  } else if (strcmp(wish.what, "sum") == 0) {
    error = sum(server, &wish, response, calls);
  } else {
    error = call_once(server, &wish, response, calls);
  }
  for (int index = 0; index < 2; ++index) {
    if (calls[index].request != NULL) end(&calls[index]);
  }
  if (error == NULL && said.size != 0) {
    error = TRITONBACKEND_ResponseSetStringParameter(response, "said", said.text);
  }
  return error;
}

/* Passes responses on from the callbacks, while this returns; the last callback ends what is there. */
static TRITONSERVER_Error *stream(TRITONSERVER_Server *server, TRITONBACKEND_Request *request) {
  Wish wish;
  CHECK(read_wish(request, &wish));
  Call *call = calloc(1, sizeof(Call));
  call->asked = request;
  CHECK(TRITONBACKEND_ResponseFactoryNew(&call->factory, request));
  TRITONSERVER_Error *error = begin(server, &wish, call);
  if (error == NULL) error = TRITONSERVER_ServerInferAsync(server, call->request, NULL);
  return error;
}

/* ---- the backend ---- */

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  (void)backend;
  CHECK(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, release, NULL));
  CHECK(TRITONSERVER_ResponseAllocatorNew(&curious_allocator, allocate, release, start));
  CHECK(TRITONSERVER_ResponseAllocatorSetQueryFunction(curious_allocator, query));
  return TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(curious_allocator, describe_buffer);
}

TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend) {
  (void)backend;
  CHECK(TRITONSERVER_ResponseAllocatorDelete(curious_allocator));
  return TRITONSERVER_ResponseAllocatorDelete(allocator);
}

/* The state of a model is whether it is decoupled. */
TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model) {
  TRITONSERVER_Message *config;
  const char *json;
  size_t size;
  CHECK(TRITONBACKEND_ModelConfig(model, 1, &config));
  CHECK(TRITONSERVER_MessageSerializeToJson(config, &json, &size));
  const bool is_decoupled = memmem(json, size, "\"decoupled\":true", 16) != NULL;
  CHECK(TRITONSERVER_MessageDelete(config));
  return TRITONBACKEND_ModelSetState(model, is_decoupled ? model : NULL);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  TRITONBACKEND_Model *model;
  TRITONSERVER_Server *server;
  void *decoupled;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelState(model, &decoupled));
  CHECK(TRITONBACKEND_ModelServer(model, &server));
  for (uint32_t index = 0; index < request_count; ++index) {
    TRITONBACKEND_Request *request = requests[index];
    TRITONBACKEND_Response *response;
    if (decoupled != NULL) {
      CHECK(stream(server, request));
      continue;
    }
    CHECK(TRITONBACKEND_ResponseNew(&response, request));
    TRITONSERVER_Error *error = answer(server, request, response);
    CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
    TRITONSERVER_ErrorDelete(error);
    CHECK(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
