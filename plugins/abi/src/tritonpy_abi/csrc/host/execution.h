/* Backends, as the driver has models executed by them.
 *
 * What a backend does to its requests comes back as events, in the order in which it did it: from the thread
 * that executes as from threads of its own, none of which ever enters the interpreter.
 */

typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;
typedef struct TRITONPY_ServedModel TRITONPY_ServedModel;
typedef struct TRITONPY_Events TRITONPY_Events;
typedef struct TRITONPY_Executor TRITONPY_Executor;

/* How many functions a library may define. */
enum { TRITONPY_BACKEND_FUNCTION_COUNT = 8 };

/* The functions of a library, in the order of the driver's list; NULL for those that it does not define. Calls
 * `TRITONBACKEND_Initialize`; where that fails, nothing is left to be closed. Texts are copied. */
TRITONSERVER_Error *TRITONPY_BackendOpen(
    void *const *functions, const char *name, const char *location, const char *config,
    TRITONBACKEND_Backend **backend);
/* It is gone also if finalising it fails; so are models and instances. */
TRITONSERVER_Error *TRITONPY_BackendClose(TRITONBACKEND_Backend *backend);

/* Calls `TRITONBACKEND_ModelInitialize`, which may ask the server already. */
TRITONSERVER_Error *TRITONPY_ModelOpen(
    TRITONBACKEND_Backend *backend, const TRITONPY_Model *described, TRITONSERVER_Server *server,
    TRITONPY_ServedModel **model);
/* The configuration that the backend has set, or NULL. */
const char *TRITONPY_ModelCompleted(TRITONPY_ServedModel *model);
/* What a model remembers of a sequence. Numbers are those of `TRITONSERVER_DataType`. */
typedef struct {
  const char *input_name;
  const char *output_name;
  const int64_t *shape; /* of one request; -1 for any size */
  uint32_t dim_count;
  int datatype;
  bool keeps_content; /* a new one begins as a copy of the one before */
} TRITONPY_State;

/* The configuration that counts from here on. States are copied. */
void TRITONPY_ModelSettle(
    TRITONPY_ServedModel *model, const char *config, bool is_decoupled, const TRITONPY_State *states,
    uint32_t state_count);
/* Calls `TRITONBACKEND_ModelFinalize`; events that it leaves can still be taken. */
TRITONSERVER_Error *TRITONPY_ModelFinalize(TRITONPY_ServedModel *model);
/* The model is gone; what its backend still sends is dropped. */
void TRITONPY_ModelEnd(TRITONPY_ServedModel *model);

typedef struct {
  const char *kind;
  int64_t id;
} TRITONPY_SecondaryDevice;

/* What is copied of an instance: `kind` is a `TRITONSERVER_InstanceGroupKind`, `policy` a JSON object. */
typedef struct {
  const char *name;
  int kind;
  int32_t device_id;
  const char *policy;
  const TRITONPY_SecondaryDevice *secondary_devices;
  uint32_t secondary_device_count;
  const char *const *profiles;
  uint32_t profile_count;
} TRITONPY_Instance;

TRITONSERVER_Error *TRITONPY_InstanceOpen(
    TRITONPY_ServedModel *model, const TRITONPY_Instance *described, TRITONBACKEND_ModelInstance **instance);
TRITONSERVER_Error *TRITONPY_InstanceClose(TRITONBACKEND_ModelInstance *instance);
/* Calls `TRITONBACKEND_ModelInstanceExecute`; requests are known by their tags in events. Blocks of requests
 * must stay until this returns, and then until they are released; their flags of cancellation until they can
 * get no more responses. */
TRITONSERVER_Error *TRITONPY_InstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *const *requests, const uint64_t *tags,
    uint32_t count);
/* Calls `TRITONBACKEND_ModelInstanceReady`, which the library defines; from any thread. */
TRITONSERVER_Error *TRITONPY_InstanceReady(TRITONBACKEND_ModelInstance *instance);
/* When the backend's computing began and ended, as it reported for the last execution; 0 where it did not. */
void TRITONPY_InstanceTimes(TRITONBACKEND_ModelInstance *instance, uint64_t *start_ns, uint64_t *end_ns);

/* The type is a `TRITONSERVER_MemoryType`. */
typedef struct {
  int memory_type;
  int64_t memory_type_id;
  uint64_t byte_size;
} TRITONPY_MemoryUsage;

/* Whether a model or an instance has reported its use of memory since this was asked last; without waiting. */
bool TRITONPY_MemoryReported(TRITONBACKEND_ModelInstance *instance);
/* What an instance, or with `of_model` its model, has reported; at most as many as there is room for. */
uint32_t TRITONPY_MemoryRead(
    TRITONBACKEND_ModelInstance *instance, bool of_model, TRITONPY_MemoryUsage *usages, uint32_t room);

/* Numbers are those of `TRITONSERVER_DataType`. */
typedef struct {
  const char *name;
  const int64_t *shape;
  void *data; /* NULL where there are no bytes; yours, to be ended with `TRITONPY_DataEnd` */
  uint64_t byte_size;
  uint32_t dim_count;
  int datatype;
} TRITONPY_SentOutput;

/* `kind`: 0 for a response, or the final flag alone; 1 for a request that is released: its block is not used
 * any more; 2 for one that can get no more responses; 3 for a state of its sequence, an output of `response`;
 * 4 for a request that is released to be executed again; 5 for one that counts as failed; 6 for an activity
 * of its trace, whose name is `error`, at `time_ns`. */
typedef struct {
  uint64_t tag;
  int kind;
  bool is_final;
  bool has_response;
  bool has_error;
  int error_code;
  const char *error;
  const TRITONPY_SentOutput *outputs;
  uint32_t output_count;
  const TRITONPY_RequestParameter *parameters;
  uint32_t parameter_count;
  uint64_t time_ns;
  TRITONBACKEND_Response *response; /* what all pointers point into */
} TRITONPY_Event;

/* What happens to the requests of a model, but for those that an executor has; goes with the model. */
TRITONPY_Events *TRITONPY_ModelEvents(TRITONPY_ServedModel *model);
/* Wait for events of other threads than those that execute, and for all those of a decoupled model; false when
 * `TRITONPY_EventsStop` was called. */
bool TRITONPY_EventsWait(TRITONPY_Events *events);
void TRITONPY_EventsStop(TRITONPY_Events *events);
/* What happened to a request, as events in one piece of memory. `flags` is the sum of
 *   1   a response, 2 the final flag: the response is final, or the flag came alone;
 *   4   the request is released, 8 no more responses can come: as the kinds 1 and 2 of an event;
 *   16  an output of the response, 32 another output of it is in the next record;
 *   64  the output's bytes are in `bytes`, from `place` on; otherwise `place` is their address, and they are yours,
 *       to be ended with `TRITONPY_DataEnd`;
 *   128 its `kind` is new: `TRITONPY_OutputKind` describes it, and whatever had that number is gone. */
typedef struct {
  uint64_t tag;
  uint64_t byte_size;
  uint64_t place;
  uint32_t kind; /* of the output: what it has beside its bytes */
  uint32_t flags;
} TRITONPY_Record;

/* Valid until they are asked for again. */
typedef struct {
  const TRITONPY_Record *records;
  const char *bytes;
  uint64_t byte_size; /* of `bytes` */
  uint32_t record_count;
  bool has_more; /* an event that no record can describe is the next one */
} TRITONPY_Records;

/* Leave the events of a request where they are, until it is no longer held: its client is slow. A thread of the
 * backend that sends many more responses waits meanwhile. */
void TRITONPY_EventsHold(TRITONPY_Events *events, uint64_t tag, bool is_held);
/* Take what there is up to an event that no record can describe: an error, or a response with parameters. By one
 * thread at a time. Without waiting. */
void TRITONPY_EventsPack(TRITONPY_Events *events, TRITONPY_Records *records);
/* Name, datatype and shape of outputs; the rest of it is not set. */
void TRITONPY_OutputKind(TRITONPY_Events *events, uint32_t kind, TRITONPY_SentOutput *output);
/* The next event, if there is one. Without waiting. */
bool TRITONPY_EventsTake(TRITONPY_Events *events, TRITONPY_Event *event);
/* What an event points to is gone, except for the data of outputs. */
void TRITONPY_EventEnd(TRITONPY_Event *event);
void TRITONPY_DataEnd(void *data);

/* An execution that is over. Times are of the steady clock, in nanoseconds; those of the computing are as the
 * backend reported them, and where it did not those of the execution. */
typedef struct {
  uint64_t batch;
  uint64_t start_ns;
  uint64_t compute_start_ns;
  uint64_t compute_end_ns;
  uint64_t end_ns;
  TRITONSERVER_Error *error; /* what the execution returned; yours */
  uint64_t reports_memory; /* as `TRITONPY_MemoryReported` */
} TRITONPY_Executed;

/* Executes an instance's batches on a thread that the driver lends it, so that the interpreter has no part in
 * it: what is submitted is executed, and what has happened is there to be taken. */
TRITONSERVER_Error *TRITONPY_ExecutorNew(TRITONBACKEND_ModelInstance *instance, TRITONPY_Executor **executor);
/* It may be read when there is something to be taken: executions, or events of other threads. */
int TRITONPY_ExecutorDescriptor(TRITONPY_Executor *executor);
/* Those of the requests that are submitted; they go with the executor. */
TRITONPY_Events *TRITONPY_ExecutorEvents(TRITONPY_Executor *executor);
/* Executes on this thread until it is stopped, and what was submitted by then is executed. Once. */
void TRITONPY_ExecutorRun(TRITONPY_Executor *executor);
void TRITONPY_ExecutorStop(TRITONPY_Executor *executor);
/* See `TRITONPY_InstanceExecute`. After an error nothing is submitted. */
TRITONSERVER_Error *TRITONPY_ExecutorSubmit(
    TRITONPY_Executor *executor, uint64_t batch, TRITONBACKEND_Request *const *requests, const uint64_t *tags,
    uint32_t count);
/* True where the batch was not begun, and never will be. */
bool TRITONPY_ExecutorWithdraw(TRITONPY_Executor *executor, uint64_t batch);
/* Executions that are over, in their order; at most as many as there is room for. All events of them are there to
 * be taken afterwards. Where more are left, the descriptor can be read at once. */
uint32_t TRITONPY_ExecutorTake(TRITONPY_Executor *executor, TRITONPY_Executed *executed, uint32_t room);
/* It does not run any more, or never did; what its requests are still sent is dropped. */
void TRITONPY_ExecutorEnd(TRITONPY_Executor *executor);

/* Executes what the server sends to a worker as frames, from the socket and back to it, so that the interpreter has
 * no part in it: batches whose tensors stand in their frames, and whose requests are all answered, with one
 * response each, and released when their execution returns. All else is left to the driver. */
typedef struct TRITONPY_FrameExecutor TRITONPY_FrameExecutor;
typedef struct TRITONPY_FrameBatch TRITONPY_FrameBatch;

/* Texts are copied; all else must stay. */
typedef struct {
  int descriptor; /* of the socket */
  const char *received; /* what was read from it before */
  uint64_t received_byte_size;
  const unsigned char *cancel_flags; /* of requests, by their slots */
  uint64_t cancel_flag_count;
  const char *const *outputs; /* of the model, in order */
  uint32_t output_count;
  uint64_t inline_byte_size; /* of the largest output in a frame */
  const bool *const *news; /* what is true while metrics are to be told before an answer is sent */
  uint32_t news_count;
} TRITONPY_FrameChannel;

/* A frame, or a batch that was executed. */
typedef struct {
  const char *frame; /* with its length; valid until the next one is asked for */
  uint64_t byte_size;
  TRITONPY_FrameBatch *executed; /* the batch of the frame; yours. NULL where the frame is to be read */
  uint64_t first_tag; /* of the requests of that batch */
  TRITONPY_Executed execution; /* of that batch */
} TRITONPY_NextFrame;

TRITONPY_FrameExecutor *TRITONPY_FrameExecutorNew(
    TRITONBACKEND_ModelInstance *instance, const TRITONPY_FrameChannel *channel);
/* Execute until there is something for the driver; false when the server has closed the channel. By one thread. */
bool TRITONPY_FrameExecutorNext(TRITONPY_FrameExecutor *executor, TRITONPY_NextFrame *next);
/* Of the requests of batches that the driver was given when they were executed; they go with the executor. */
TRITONPY_Events *TRITONPY_FrameExecutorEvents(TRITONPY_FrameExecutor *executor);
/* The number of the batch that is executed now; 0 for none. From any thread. */
uint64_t TRITONPY_FrameExecutorRunning(TRITONPY_FrameExecutor *executor);
/* Leave all that follows to the driver. By the thread that asks for frames. */
void TRITONPY_FrameExecutorRest(TRITONPY_FrameExecutor *executor);
/* A frame that is no batch and no request for anything from the server: a reply; in `next` nothing else is set.
 * By another thread than the one that executes. */
bool TRITONPY_FrameExecutorReply(TRITONPY_FrameExecutor *executor, TRITONPY_NextFrame *next);
/* Send a frame between those of executions; false when the server is gone. From any thread. */
bool TRITONPY_FrameExecutorWrite(TRITONPY_FrameExecutor *executor, const char *frame, uint64_t byte_size);
/* What its requests are still sent is dropped; nobody is in one of its functions. */
void TRITONPY_FrameExecutorEnd(TRITONPY_FrameExecutor *executor);
/* The memory of its requests is gone: they are released. */
void TRITONPY_FrameBatchEnd(TRITONPY_FrameBatch *batch);

/* Memory for an output of a backend, until an event brings that output, at this address. */
void TRITONPY_BlockAdd(void *data, uint64_t byte_size);
/* The one that has been there for the longest time without being used is yours again; NULL when all are used. */
void *TRITONPY_BlockWithdraw(void);
