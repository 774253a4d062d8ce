/* Batching strategies, as the driver hands models and requests to them.
 *
 * A request is a block of memory that the driver owns and fills once, when the request is queued; what it
 * points to is kept by the driver as long. Nothing of it is copied here.
 */

typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;
typedef struct TRITONPY_Strategy TRITONPY_Strategy;

/* Numbers are those of `TRITONSERVER_ParameterType`. */
typedef struct {
  const char *name;
  int type;
  const char *text;
  int64_t integer;
  double number;
  bool boolean;
} TRITONPY_RequestParameter;

/* An input with all of its bytes in one place. `data` is NULL where they are not mapped into this process:
 * they are in a file (`descriptor`, `position`), from which they are read when a strategy asks for them, or
 * where no strategy can have them (`descriptor` is -1). Numbers are those of `TRITONSERVER_DataType` and
 * `TRITONSERVER_MemoryType`. */
typedef struct TRITONBACKEND_Input {
  const char *name;
  const int64_t *shape;
  uint32_t dim_count;
  int datatype;
  const void *data;
  uint64_t byte_size;
  int64_t memory_type_id;
  int64_t position;
  int memory_type;
  int descriptor;
  /* Made when a strategy asks for them, gone when its call returns. */
  void *snapshot;
  void *attributes;
  uint32_t index; /* among the inputs of its request */
} TRITONBACKEND_Input;

/* Texts stay while the block of the request does; `context` is "" where there is none. */
typedef struct {
  uint64_t id;
  uint64_t parent_id;
  int64_t model_version;
  const char *model_name;
  const char *request_id;
  const char *context;
} TRITONPY_Trace;

struct TRITONBACKEND_Request {
  const char *id;
  const char *correlation_text; /* NULL where the id is `correlation_number` */
  uint64_t correlation_number;
  uint64_t timeout_us;
  const TRITONPY_RequestParameter *parameters;
  const char *const *outputs;
  uint32_t parameter_count;
  uint32_t output_count;
  uint32_t input_count;
  uint32_t flags;
  bool has_scratch; /* of its inputs */
  void *reply; /* to whom it is answered, while a backend has it */
  const TRITONPY_Trace *trace; /* NULL where it is not traced, and in a queue */
  const unsigned char *cancel_flag; /* 1 when it was cancelled; NULL where it cannot be */
  TRITONBACKEND_Input inputs[];
};

/* What is copied of a model when its strategy is opened; texts end with a zero, configurations are JSON. */
typedef struct {
  const char *name;
  uint64_t version;
  const char *location;
  const char *config;
  bool completes_config;
  const char *backend_name;
  const char *backend_location;
  const char *backend_config;
} TRITONPY_Model;

/* The five functions of a library, in the order of `tritonpy/batching.h`, for one version of one model; calls
 * its `ModelBatcherInitialize`. Where that fails, nothing is left to be closed. */
TRITONSERVER_Error *TRITONPY_StrategyOpen(
    void *const *functions, const TRITONPY_Model *model, TRITONPY_Strategy **strategy);
/* Finalises the attempt, if one is open, and the batcher; the strategy is gone also if that fails. */
TRITONSERVER_Error *TRITONPY_StrategyClose(TRITONPY_Strategy *strategy);

/* A new attempt at a batch, if none is open; after an error there is none. */
TRITONSERVER_Error *TRITONPY_BatchBegin(TRITONPY_Strategy *strategy);
/* Asks for the requests in their order, until one of them is refused or fails; begins an attempt if none is
 * open. Returns how many may join; `error` is the reason why the next one fails, or NULL. */
uint32_t TRITONPY_BatchInclude(
    TRITONPY_Strategy *strategy, TRITONBACKEND_Request *const *requests, uint32_t count,
    TRITONSERVER_Error **error);
/* The attempt is over, also if finalising it fails; it may have none. */
TRITONSERVER_Error *TRITONPY_BatchEnd(TRITONPY_Strategy *strategy);
