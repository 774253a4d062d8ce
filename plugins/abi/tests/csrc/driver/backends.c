/* A backend whose models are executed, cancelled and unloaded by several threads at once, while its own
 * threads answer. Requests are looked after as the driver in Python does it. */
#include "driver.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 6
#define ROUNDS 12
#define BLOCKS 3
#define BLOCK_SIZE 130000

static const char *const kFunctions[TRITONPY_BACKEND_FUNCTION_COUNT] = {
    "TRITONBACKEND_Initialize",
    "TRITONBACKEND_Finalize",
    "TRITONBACKEND_ModelInitialize",
    "TRITONBACKEND_ModelFinalize",
    "TRITONBACKEND_ModelInstanceInitialize",
    "TRITONBACKEND_ModelInstanceFinalize",
    "TRITONBACKEND_ModelInstanceExecute"};

/* They stay for ever: a sanitizer that looks for what is lost has to find them. */
static TRITONSERVER_Server *servers[3 + 3 * THREADS];
static int server_count;

/* Memory for large outputs; where none of it is free, the library has its own. */
static void *memory[BLOCKS];

static void end_data(void *data) {
  for (int index = 0; index < BLOCKS; ++index) {
    if (data == memory[index]) {
      TRITONPY_BlockAdd(data, BLOCK_SIZE);
      return;
    }
  }
  TRITONPY_DataEnd(data);
}

typedef struct {
  TRITONBACKEND_Request *block;
  unsigned char flag;
  int response_count;
  int error_count;
  bool is_final;
  bool is_released;
  bool is_over;
  bool is_executed;
} Asked;

/* A model with the thread that takes its events, or an executor with its own. */
typedef struct {
  TRITONPY_ServedModel *model;
  TRITONPY_Events *events;
  TRITONSERVER_Server *server;
  pthread_t taker;
  pthread_t answerer;
  pthread_mutex_t mutex; /* guards all below, and the order of events */
  Asked asked[THREADS * ROUNDS * BATCH + 1]; /* by tag */
  uint64_t tags;
  uint64_t over_count;
  uint64_t byte_count;
} Served;

/* A block goes when its execution has returned and the backend has released it. */
static void end_block(Asked *asked) {
  if (asked->is_executed && asked->is_released && asked->block != NULL) {
    CHECK(!asked->block->has_scratch);
    free((void *)asked->block->inputs[0].data);
    free(asked->block);
    asked->block = NULL;
  }
}

static void note(
    Served *served, uint64_t tag, bool has_response, bool is_final, bool is_released, bool is_over) {
  Asked *asked = &served->asked[tag];
  CHECK(!asked->is_over);
  CHECK(!(asked->is_final && (has_response || is_final)));
  asked->response_count += has_response;
  asked->is_final |= is_final;
  if (is_released) {
    CHECK(!asked->is_released);
    asked->is_released = true;
    end_block(asked);
  }
  if (is_over) {
    asked->is_over = true;
    served->over_count += 1;
  }
}

static void take_packed(Served *served, const TRITONPY_Records *records) {
  for (uint32_t index = 0; index < records->record_count; ++index) {
    const TRITONPY_Record *first = &records->records[index];
    const TRITONPY_Record *record = first;
    while (record->flags & 16) {
      const char *bytes = record->flags & 64 ? records->bytes + record->place : (const char *)record->place;
      for (uint64_t at = 0; at < record->byte_size; ++at) served->byte_count += bytes[at] == 1;
      if (record->flags & 128) {
        TRITONPY_SentOutput output;
        TRITONPY_OutputKind(served->events, record->kind, &output);
        CHECK(output.dim_count == 2 && (uint64_t)output.shape[1] == record->byte_size);
      }
      if (!(record->flags & 64)) end_data((void *)record->place);
      if (!(record->flags & 32)) break;
      record = &records->records[++index];
    }
    note(served, first->tag, first->flags & 1, first->flags & 2, first->flags & 4, first->flags & 8);
  }
}

static void take_one(Served *served) {
  TRITONPY_Event event;
  if (!TRITONPY_EventsTake(served->events, &event)) return;
  if (event.has_error) {
    CHECK(strcmp(event.error, "told to fail") == 0);
    served->asked[event.tag].error_count += 1;
  }
  for (uint32_t index = 0; index < event.output_count; ++index) end_data(event.outputs[index].data);
  for (uint32_t index = 0; index < event.parameter_count; ++index) {
    CHECK(event.parameters[index].name != NULL);
  }
  const bool answers = event.kind == 0;
  note(
      served, event.tag, answers && event.has_response, answers && event.is_final, event.kind == 1,
      event.kind == 2);
  TRITONPY_EventEnd(&event);
}

static void take(Served *served) {
  TRITONPY_Records records;
  pthread_mutex_lock(&served->mutex);
  do {
    TRITONPY_EventsPack(served->events, &records);
    take_packed(served, &records);
    if (records.has_more) take_one(served);
  } while (records.has_more);
  pthread_mutex_unlock(&served->mutex);
}

static void *take_all(void *argument) {
  Served *served = argument;
  while (TRITONPY_EventsWait(served->events)) take(served);
  return NULL;
}

/* Another model, whose outputs are its inputs; they stay until they have been read. */
static void *answer_all(void *argument) {
  Served *served = argument;
  TRITONPY_Call call;
  while (TRITONPY_ServerTake(served->server, &call)) {
    if (call.kind == 0) {
      const TRITONPY_Called called = {
          .is_final = true, .has_response = true, .outputs = call.tensors, .output_count = call.tensor_count};
      TRITONPY_ServerRespond(served->server, call.tag, &called);
    } else if (call.kind == 2) {
      TRITONPY_ServerLetGo(served->server, call.tag);
    } else if (call.kind == 3) {
      TRITONPY_ServerAnswer(served->server, call.tag, "{}", 2, 1);
    }
  }
  return NULL;
}

static TRITONSERVER_Error *open_model(
    TRITONBACKEND_Backend *backend, const char *config, TRITONSERVER_Server *server,
    TRITONPY_ServedModel **model) {
  const TRITONPY_Model described = {"m", 1, "/models/m", config, true, "b", "/backends", "{}"};
  return TRITONPY_ModelOpen(backend, &described, server, model);
}

static Served *serve(TRITONBACKEND_Backend *backend, bool is_decoupled) {
  Served *served = calloc(1, sizeof(*served));
  pthread_mutex_init(&served->mutex, NULL);
  served->server = servers[__atomic_fetch_add(&server_count, 1, __ATOMIC_RELAXED)] = TRITONPY_ServerNew();
  CHECK(pthread_create(&served->answerer, NULL, answer_all, served) == 0);
  OK(open_model(backend, "{}", served->server, &served->model));
  TRITONPY_ModelSettle(served->model, "{}", is_decoupled, NULL, 0);
  served->events = TRITONPY_ModelEvents(served->model);
  CHECK(pthread_create(&served->taker, NULL, take_all, served) == 0);
  return served;
}

/* All that its requests could get has come; nothing is lost, and nothing comes twice. */
static void end(Served *served) {
  OK(TRITONPY_ModelFinalize(served->model));
  TRITONPY_ServerStop(served->server, TRITONSERVER_ERROR_UNAVAILABLE, "it is unloaded");
  pthread_join(served->answerer, NULL);
  TRITONPY_EventsStop(served->events);
  pthread_join(served->taker, NULL);
  take(served);
  CHECK(served->over_count == served->tags);
  for (uint64_t tag = 1; tag <= served->tags; ++tag) {
    CHECK(served->asked[tag].is_over && served->asked[tag].is_released && served->asked[tag].block == NULL);
  }
  TRITONPY_ModelEnd(served->model);
  pthread_mutex_destroy(&served->mutex);
  free(served);
}

static TRITONBACKEND_Request *make_block(const char *id, uint64_t byte_size) {
  static const int64_t shape[] = {1, 1};
  static const char *const outputs[] = {"OUTPUT0"};
  TRITONBACKEND_Request *block = calloc(1, sizeof(*block) + sizeof(block->inputs[0]));
  block->id = id;
  block->outputs = outputs;
  block->output_count = 1;
  block->input_count = 1;
  block->inputs[0].name = "INPUT0";
  block->inputs[0].shape = shape;
  block->inputs[0].dim_count = 2;
  block->inputs[0].datatype = TRITONSERVER_TYPE_UINT8;
  block->inputs[0].descriptor = -1;
  block->inputs[0].byte_size = byte_size;
  block->inputs[0].data = memset(malloc(byte_size), 1, byte_size);
  return block;
}

static const char *const kIds[2][BATCH] = {
    {"now", "later", "now, three, parameters", "often", "forget", "later, error, call"},
    {"often", "later, call", "twice", "later, three", "now, error", "later, call, gives up"}};
static const char *const kFailing[2][BATCH] = {
    {"now", "now", "often", "forget", "batch: fail", "now"},
    {"now", "often", "batch: throw", "now", "now", "now"}};
static const char *const kWords[] = {"told to fail", "thrown by the plugin"};
static const int kCodes[] = {TRITONSERVER_ERROR_UNAVAILABLE, TRITONSERVER_ERROR_INTERNAL};

static void make_batch(
    Served *served, const char *const *ids, TRITONBACKEND_Request **blocks, uint64_t *tags) {
  pthread_mutex_lock(&served->mutex);
  for (int index = 0; index < BATCH; ++index) {
    tags[index] = ++served->tags;
    Asked *asked = &served->asked[tags[index]];
    asked->block = blocks[index] = make_block(ids[index], index == 1 ? 100000 : 8);
    blocks[index]->cancel_flag = &asked->flag;
  }
  pthread_mutex_unlock(&served->mutex);
}

static void note_executed(Served *served, const uint64_t *tags) {
  pthread_mutex_lock(&served->mutex);
  for (int index = 0; index < BATCH; ++index) {
    served->asked[tags[index]].is_executed = true;
    end_block(&served->asked[tags[index]]);
  }
  pthread_mutex_unlock(&served->mutex);
}

/* One batch; the requests' tags come back. */
static TRITONSERVER_Error *execute(
    Served *served, TRITONBACKEND_ModelInstance *instance, const char *const *ids, uint64_t *tags) {
  TRITONBACKEND_Request *blocks[BATCH];
  make_batch(served, ids, blocks, tags);
  TRITONSERVER_Error *error = TRITONPY_InstanceExecute(instance, blocks, tags, BATCH);
  take(served);
  note_executed(served, tags);
  return error;
}

static TRITONBACKEND_ModelInstance *open_instance(Served *served, int number) {
  TRITONBACKEND_ModelInstance *instance;
  char name[8];
  snprintf(name, sizeof(name), "m_%d", number);
  const TRITONPY_Instance described = {
      .name = name, .kind = TRITONSERVER_INSTANCEGROUPKIND_CPU, .policy = "{\"cpu\": {}}"};
  OK(TRITONPY_InstanceOpen(served->model, &described, &instance));
  return instance;
}

static void execute_all(int number, void *argument) {
  Served *served = argument;
  TRITONBACKEND_ModelInstance *instance = open_instance(served, number);
  uint64_t tags[BATCH], start_ns, end_ns;
  for (int round = 0; round < ROUNDS; ++round) {
    if (round % 4 == 3) {
      const int throws = round % 8 == 7;
      FAILS(kCodes[throws], kWords[throws], execute(served, instance, kFailing[throws], tags));
    } else {
      OK(execute(served, instance, kIds[round % 2], tags));
      TRITONPY_InstanceTimes(instance, &start_ns, &end_ns);
      CHECK(start_ns == 2 && end_ns == 3);
    }
    /* While the backend's threads go on. */
    for (int index = 0; index < BATCH; ++index) {
      __atomic_store_n(&served->asked[tags[index]].flag, 1, __ATOMIC_RELAXED);
    }
  }
  OK(TRITONPY_InstanceClose(instance));
}

static void *run(void *executor) {
  TRITONPY_ExecutorRun(executor);
  return NULL;
}

#define AHEAD 3
#define ROOM 2

/* An instance with an executor, whose batches this thread submits and takes. */
typedef struct {
  Served served; /* its events */
  TRITONPY_Executor *executor;
  uint64_t tags[ROUNDS][BATCH];
  int submitted_count;
  int over_count;
} Fed;

/* Requests of its model that it has not answered when it ends; they stay until the model has gone. */
static Fed *fed[THREADS];
static int fed_count;

static void take_executed(Fed *each, int timeout_ms) {
  struct pollfd descriptor = {.fd = TRITONPY_ExecutorDescriptor(each->executor), .events = POLLIN};
  TRITONPY_Executed executed[ROOM];
  if (poll(&descriptor, 1, timeout_ms) <= 0) return;
  const uint32_t count = TRITONPY_ExecutorTake(each->executor, executed, ROOM);
  take(&each->served);
  for (uint32_t index = 0; index < count; ++index) {
    const int round = (int)executed[index].batch;
    if (round % 4 == 3) {
      const int throws = round % 8 == 7;
      FAILS(kCodes[throws], kWords[throws], executed[index].error);
    } else {
      OK(executed[index].error);
      CHECK(executed[index].compute_start_ns == 2 && executed[index].compute_end_ns == 3);
    }
    CHECK(executed[index].start_ns <= executed[index].end_ns);
    note_executed(&each->served, each->tags[round]);
    each->over_count += 1;
  }
}

static void submit(Fed *each, int round) {
  TRITONBACKEND_Request *blocks[BATCH];
  const int throws = round % 8 == 7;
  make_batch(&each->served, round % 4 == 3 ? kFailing[throws] : kIds[round % 2], blocks, each->tags[round]);
  OK(TRITONPY_ExecutorSubmit(each->executor, (uint64_t)round, blocks, each->tags[round], BATCH));
  each->submitted_count += 1;
}

static void withdraw(Fed *each, int round) {
  if (!TRITONPY_ExecutorWithdraw(each->executor, (uint64_t)round)) return;
  CHECK(!TRITONPY_ExecutorWithdraw(each->executor, (uint64_t)round));
  each->submitted_count -= 1;
  for (int index = 0; index < BATCH; ++index) {
    note(&each->served, each->tags[round][index], false, true, true, true);
  }
  note_executed(&each->served, each->tags[round]);
}

/* Half of them end while the backend's threads still answer: what those send is dropped. */
static void execute_natively(int number, void *argument) {
  Fed *each = fed[__atomic_fetch_add(&fed_count, 1, __ATOMIC_RELAXED)] = calloc(1, sizeof(*each));
  pthread_t thread;
  pthread_mutex_init(&each->served.mutex, NULL);
  each->served.model = ((Served *)argument)->model;
  TRITONBACKEND_ModelInstance *instance = open_instance(&each->served, number);
  OK(TRITONPY_ExecutorNew(instance, &each->executor));
  each->served.events = TRITONPY_ExecutorEvents(each->executor);
  CHECK(pthread_create(&thread, NULL, run, each->executor) == 0);
  for (int round = 0; round < ROUNDS; ++round) {
    submit(each, round);
    while (each->submitted_count - each->over_count > AHEAD) take_executed(each, -1);
    if (round % 3 == 2) withdraw(each, round);
  }
  TRITONPY_ExecutorStop(each->executor);
  pthread_join(thread, NULL);
  OK(TRITONPY_InstanceClose(instance));
  if (number % 2 == 0) {
    while (each->submitted_count != each->over_count || each->served.over_count != each->served.tags) {
      take_executed(each, -1);
    }
  } else {
    take_executed(each, 0);
  }
  TRITONPY_ExecutorEnd(each->executor);
}

static void end_fed(void) {
  for (int index = 0; index < fed_count; ++index) {
    for (uint64_t tag = 1; tag <= fed[index]->served.tags; ++tag) {
      Asked *asked = &fed[index]->served.asked[tag];
      asked->is_executed = asked->is_released = true;
      end_block(asked);
    }
    pthread_mutex_destroy(&fed[index]->served.mutex);
    free(fed[index]);
  }
  fed_count = 0;
}

/* One that never runs. */
static void leave_alone(int number, void *argument) {
  TRITONBACKEND_ModelInstance *instance = open_instance(argument, number);
  TRITONPY_Executor *executor;
  OK(TRITONPY_ExecutorNew(instance, &executor));
  TRITONPY_ExecutorStop(executor);
  TRITONPY_ExecutorRun(executor);
  OK(TRITONPY_InstanceClose(instance));
  TRITONPY_ExecutorEnd(executor);
}

/* Models come and go beside those that are executed. */
static void come_and_go(int number, void *argument) {
  TRITONPY_ServedModel *model;
  FAILS(TRITONSERVER_ERROR_UNAVAILABLE, "told to fail", open_model(argument, "{\"fail\": 1}", NULL, &model));
  FAILS(TRITONSERVER_ERROR_INTERNAL, "by the plugin", open_model(argument, "{\"throw\": 1}", NULL, &model));
  OK(open_model(argument, "{\"completes\": true}", NULL, &model));
  CHECK(strcmp(TRITONPY_ModelCompleted(model), "{\"completes\": true}") == 0);
  OK(TRITONPY_ModelFinalize(model));
  TRITONPY_ModelEnd(model);
  for (int round = 0; round < 3; ++round) {
    Served *served = serve(argument, round % 2 == 0);
    execute_all(number, served);
    end(served);
  }
}

void drive_backends(void) {
  void *functions[TRITONPY_BACKEND_FUNCTION_COUNT] = {NULL};
  for (int index = 0; index < TRITONPY_BACKEND_FUNCTION_COUNT && kFunctions[index] != NULL; ++index) {
    functions[index] = function_of(kFunctions[index]);
  }
  for (int index = 0; index < BLOCKS; ++index) {
    memory[index] = malloc(BLOCK_SIZE);
    TRITONPY_BlockAdd(memory[index], BLOCK_SIZE);
  }
  TRITONBACKEND_Backend *backend;
  OK(TRITONPY_BackendOpen(functions, "b", "/backends", "{}", &backend));
  for (int is_decoupled = 0; is_decoupled < 2; ++is_decoupled) {
    Served *served = serve(backend, is_decoupled);
    on_threads(execute_all, served);
    end(served);
  }
  Served *served = serve(backend, false);
  on_threads(execute_natively, served);
  on_threads(leave_alone, served);
  end(served);
  end_fed();
  on_threads(come_and_go, backend);
  OK(TRITONPY_BackendClose(backend));
  int returned_count = 0;
  for (void *block = TRITONPY_BlockWithdraw(); block != NULL; block = TRITONPY_BlockWithdraw()) {
    returned_count += 1;
    free(block);
  }
  CHECK(returned_count == BLOCKS);
}
