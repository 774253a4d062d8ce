/* Calls of other models, from many threads at once: each request is answered three times, by threads that are not
 * those that asked, and released when both its last answer and its bytes are done with. */
#include "driver.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define REQUESTS 40
#define MOST_OPEN 4096

static TRITONSERVER_Server *server; /* it stays for ever */
static TRITONSERVER_ResponseAllocator *allocator;
static TRITONSERVER_InferenceResponseCompleteFn_t throws;
static pthread_t answering[MOST_OPEN];
static int answering_count;
static int read_count;
static int cancel_count;

static TRITONSERVER_Error *allocate(
    TRITONSERVER_ResponseAllocator *given, const char *name, size_t byte_size, TRITONSERVER_MemoryType type,
    int64_t id, void *userp, void **buffer, void **buffer_userp, TRITONSERVER_MemoryType *actual_type,
    int64_t *actual_id) {
  (void)given, (void)userp, (void)type, (void)id;
  if (strcmp(name, "refused") == 0) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "none");
  *buffer = malloc(byte_size);
  *buffer_userp = NULL;
  *actual_type = strcmp(name, "elsewhere") == 0 ? TRITONSERVER_MEMORY_GPU : TRITONSERVER_MEMORY_CPU;
  *actual_id = 0;
  return NULL;
}

static TRITONSERVER_Error *release(
    TRITONSERVER_ResponseAllocator *given, void *buffer, void *buffer_userp, size_t byte_size,
    TRITONSERVER_MemoryType type, int64_t id) {
  (void)given, (void)buffer_userp, (void)byte_size, (void)type, (void)id;
  free(buffer);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "nobody hears of this");
}

/* ---- the server's side ---- */

typedef struct {
  uint64_t tag;
  uint64_t byte_size;
  const void *data;
  char name[16];
} Asked;

static void *answer(void *argument) {
  Asked *asked = argument;
  const int64_t shape[] = {(int64_t)asked->byte_size};
  const TRITONPY_Tensor output = {asked->name, shape, asked->data, asked->byte_size, 1, TRITONSERVER_TYPE_INT8};
  const TRITONPY_RequestParameter parameter = {"p", TRITONSERVER_PARAMETER_INT, NULL, 7, 0, false};
  TRITONPY_Called called = {0};
  called.has_response = true;
  called.outputs = &output;
  called.output_count = 1;
  called.parameters = &parameter;
  called.parameter_count = 1;
  for (int number = 0; number < 3; ++number) TRITONPY_ServerRespond(server, asked->tag, &called);
  called = (TRITONPY_Called){0};
  called.is_final = true;
  TRITONPY_ServerRespond(server, asked->tag, &called);
  TRITONPY_ServerRespond(server, asked->tag, &called); /* it is over: nothing happens */
  TRITONPY_ServerLetGo(server, asked->tag);
  free(asked);
  return NULL;
}

static void *take(void *argument) {
  (void)argument;
  TRITONPY_Call call;
  while (TRITONPY_ServerTake(server, &call)) {
    if (call.kind == 0) {
      CHECK(call.tensor_count == 1 && call.version == -1 && call.output_count == 0);
      Asked *asked = calloc(1, sizeof(Asked));
      asked->tag = call.tag;
      /* The bytes of this one are read until it is let go. */
      asked->data = call.tensors[0].data;
      asked->byte_size = call.tensors[0].byte_size;
      strncpy(asked->name, call.tensors[0].name, sizeof(asked->name) - 1);
      CHECK(answering_count < MOST_OPEN);
      CHECK(pthread_create(&answering[answering_count++], NULL, answer, asked) == 0);
    } else if (call.kind == 1) {
      cancel_count += 1;
    } else if (call.kind == 2) {
      read_count += 1;
    } else if (strcmp(call.model, "missing") == 0) {
      TRITONPY_ServerRefuse(server, call.tag, TRITONSERVER_ERROR_NOT_FOUND, "there is no such model");
    } else {
      TRITONPY_ServerAnswer(server, call.tag, "{}", 2, 5);
    }
  }
  return NULL;
}

/* ---- the backend's side ---- */

typedef struct Mine Mine;
struct Mine {
  pthread_mutex_t mutex; /* guards what follows */
  pthread_cond_t changed;
  int response_count;
  int error_count;
  bool is_answered;
  bool is_released;
  bool asks_again;
  const char *name;
};

static void call(const char *name, bool asks_again, Mine *mine);

static void completed(TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp) {
  Mine *mine = userp;
  bool has_failed = false;
  if (response != NULL) {
    const char *model;
    int64_t version;
    uint32_t count;
    TRITONSERVER_Error *error = TRITONSERVER_InferenceResponseError(response);
    has_failed = error != NULL;
    TRITONSERVER_ErrorDelete(error);
    OK(TRITONSERVER_InferenceResponseModel(response, &model, &version));
    CHECK(version == 5);
    OK(TRITONSERVER_InferenceResponseParameterCount(response, &count));
    CHECK(count == 1);
    OK(TRITONSERVER_InferenceResponseDelete(response));
  }
  if (mine->asks_again && flags != 0) {
    Mine other; /* whose answers this callback waits for */
    call("again", false, &other);
    CHECK(other.response_count == 3);
  }
  pthread_mutex_lock(&mine->mutex);
  mine->response_count += response != NULL;
  mine->error_count += has_failed;
  mine->is_answered = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  pthread_cond_broadcast(&mine->changed);
  pthread_mutex_unlock(&mine->mutex);
  if (strcmp(mine->name, "throwing") == 0) throws(NULL, 0, NULL);
}

static void released(TRITONSERVER_InferenceRequest *request, const uint32_t flags, void *userp) {
  Mine *mine = userp;
  CHECK(flags == TRITONSERVER_REQUEST_RELEASE_ALL);
  OK(TRITONSERVER_InferenceRequestDelete(request));
  pthread_mutex_lock(&mine->mutex);
  mine->is_released = true;
  pthread_cond_broadcast(&mine->changed);
  pthread_mutex_unlock(&mine->mutex);
}

static void call(const char *name, bool asks_again, Mine *mine) {
  static const int64_t shape[] = {8};
  TRITONSERVER_InferenceRequest *request;
  TRITONSERVER_BufferAttributes *attributes;
  char *bytes = malloc(8);
  memcpy(bytes, "12345678", 8);
  memset(mine, 0, sizeof(*mine));
  mine->name = name;
  mine->asks_again = asks_again;
  pthread_mutex_init(&mine->mutex, NULL);
  pthread_cond_init(&mine->changed, NULL);
  OK(TRITONSERVER_BufferAttributesNew(&attributes));
  OK(TRITONSERVER_BufferAttributesSetByteSize(attributes, 4));
  OK(TRITONSERVER_InferenceRequestNew(&request, server, "model", -1));
  OK(TRITONSERVER_InferenceRequestAddInput(request, name, TRITONSERVER_TYPE_INT8, shape, 1));
  OK(TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(request, name, bytes, attributes));
  OK(TRITONSERVER_InferenceRequestAppendInputData(request, name, bytes + 4, 4, TRITONSERVER_MEMORY_CPU, 0));
  OK(TRITONSERVER_BufferAttributesDelete(attributes));
  FAILS(3, "needs a release callback", TRITONSERVER_ServerInferAsync(server, request, NULL));
  OK(TRITONSERVER_InferenceRequestSetReleaseCallback(request, released, mine));
  OK(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, NULL, completed, mine));
  OK(TRITONSERVER_InferenceRequestSetStringParameter(request, "text", "value"));
  OK(TRITONSERVER_ServerInferAsync(server, request, NULL));
  pthread_mutex_lock(&mine->mutex);
  while (!mine->is_answered || !mine->is_released) pthread_cond_wait(&mine->changed, &mine->mutex);
  pthread_mutex_unlock(&mine->mutex);
  pthread_mutex_destroy(&mine->mutex);
  pthread_cond_destroy(&mine->changed);
  free(bytes);
}

static void call_many(int number, void *argument) {
  (void)argument;
  Mine mine;
  TRITONSERVER_InferenceRequest *request;
  for (int index = 0; index < REQUESTS; ++index) {
    call("plain", index % 8 == number, &mine);
    CHECK(mine.response_count == 3 && mine.error_count == 0);
  }
  call("refused", false, &mine);
  CHECK(mine.error_count == 3);
  call("elsewhere", false, &mine);
  CHECK(mine.error_count == 3);
  FAILS(2, "no such model", TRITONSERVER_InferenceRequestNew(&request, server, "missing", -1));
}

void drive_calls(void) {
  pthread_t taker;
  Mine mine;
  bool truth;
  TRITONSERVER_InferenceRequest *request;
  TRITONSERVER_Metrics *metrics;
  const char *page;
  size_t size;
  *(void **)&throws = function_of("throw_at_once");
  server = TRITONPY_ServerNew();
  CHECK(pthread_create(&taker, NULL, take, NULL) == 0);
  OK(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, release, NULL));
  on_threads(call_many, NULL);
  call("throwing", false, &mine);
  CHECK(mine.response_count == 3);
  OK(TRITONSERVER_ServerIsLive(server, &truth));
  OK(TRITONSERVER_ServerMetrics(server, &metrics));
  OK(TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &page, &size));
  CHECK(size == 2 && memcmp(page, "{}", 2) == 0);
  OK(TRITONSERVER_MetricsDelete(metrics));
  const TRITONSERVER_Parameter *nothing = NULL;
  FAILS(3, "is NULL", TRITONSERVER_ServerLoadModelWithParameters(server, "model", &nothing, 1));
  TRITONPY_ServerStop(server, TRITONSERVER_ERROR_UNAVAILABLE, "it is over");
  CHECK(pthread_join(taker, NULL) == 0);
  for (int index = 0; index < answering_count; ++index) pthread_join(answering[index], NULL);
  CHECK(read_count == 3 * answering_count);
  CHECK(cancel_count == 0);
  FAILS(4, "it is over", TRITONSERVER_InferenceRequestNew(&request, server, "model", -1));
  OK(TRITONSERVER_ResponseAllocatorDelete(allocator));
}
