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

/* The functions of a library, in the order of the driver's list; NULL for those that it does not define. Calls
 * `TRITONBACKEND_Initialize`; where that fails, nothing is left to be closed. Texts are copied. */
TRITONSERVER_Error *TRITONPY_BackendOpen(
    void *const *functions, const char *name, const char *location, const char *config,
    TRITONBACKEND_Backend **backend);
/* It is gone also if finalising it fails; so are models and instances. */
TRITONSERVER_Error *TRITONPY_BackendClose(TRITONBACKEND_Backend *backend);

/* Calls `TRITONBACKEND_ModelInitialize`. */
TRITONSERVER_Error *TRITONPY_ModelOpen(
    TRITONBACKEND_Backend *backend, const TRITONPY_Model *described, TRITONPY_ServedModel **model);
/* The configuration that the backend has set, or NULL. */
const char *TRITONPY_ModelCompleted(TRITONPY_ServedModel *model);
/* The configuration that counts from here on. */
void TRITONPY_ModelSettle(TRITONPY_ServedModel *model, const char *config, bool is_decoupled);
/* Calls `TRITONBACKEND_ModelFinalize`; events that it leaves can still be taken. */
TRITONSERVER_Error *TRITONPY_ModelFinalize(TRITONPY_ServedModel *model);
/* The model is gone; what its backend still sends is dropped. */
void TRITONPY_ModelEnd(TRITONPY_ServedModel *model);

/* `kind` is a `TRITONSERVER_InstanceGroupKind`, `policy` a JSON object. */
TRITONSERVER_Error *TRITONPY_InstanceOpen(
    TRITONPY_ServedModel *model, const char *name, int kind, int32_t device_id, const char *policy,
    TRITONBACKEND_ModelInstance **instance);
TRITONSERVER_Error *TRITONPY_InstanceClose(TRITONBACKEND_ModelInstance *instance);
/* Calls `TRITONBACKEND_ModelInstanceExecute`; requests are known by their tags in events. Blocks of requests
 * must stay until this returns, and then until they are released. */
TRITONSERVER_Error *TRITONPY_InstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *const *requests, const uint64_t *tags,
    uint32_t count);
/* When the backend's computing began and ended, as it reported for the last execution; 0 where it did not. */
void TRITONPY_InstanceTimes(TRITONBACKEND_ModelInstance *instance, uint64_t *start_ns, uint64_t *end_ns);

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
 * any more; 2 for one that can get no more responses. */
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
  TRITONBACKEND_Response *response; /* what all pointers point into */
} TRITONPY_Event;

/* Wait for events of other threads than those that execute, and for all those of a decoupled model; false when
 * `TRITONPY_EventsStop` was called. */
bool TRITONPY_EventsWait(TRITONPY_ServedModel *model);
void TRITONPY_EventsStop(TRITONPY_ServedModel *model);
/* The next event, if there is one. Without waiting. */
bool TRITONPY_EventsTake(TRITONPY_ServedModel *model, TRITONPY_Event *event);
/* What an event points to is gone, except for the data of outputs. */
void TRITONPY_EventEnd(TRITONPY_Event *event);
void TRITONPY_DataEnd(void *data);
