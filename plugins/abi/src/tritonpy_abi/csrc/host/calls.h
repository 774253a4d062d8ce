/* What a backend asks of the server: inference by other models, and questions.
 *
 * A backend's threads leave what they want in a queue and never enter the interpreter; a thread of the driver
 * takes it from there. What comes back is handed to the backend by threads of this library, which may take as
 * long as the backend's callbacks like.
 */

typedef struct TRITONSERVER_Server TRITONSERVER_Server;

/* Numbers are those of `TRITONSERVER_DataType`. */
typedef struct {
  const char *name;
  const int64_t *shape;
  const void *data;
  uint64_t byte_size;
  uint32_t dim_count;
  int datatype; /* 0 for a raw input, whose datatype and shape are the model's */
} TRITONPY_Tensor;

/* `kind`: 0 for a request, whose bytes stay until `TRITONPY_ServerLetGo`; 1 for one that is cancelled; 2 for an answer
 * whose outputs have been read; 3 for a question. */
typedef struct {
  uint64_t tag;
  int kind;
  const char *question;
  const char *model;
  int64_t version; /* -1 for the model's choice */
  const char *instance; /* that does not go on before the request is answered, or NULL */
  const char *id;
  const char *correlation_text; /* NULL where the id is `correlation_number` */
  uint64_t correlation_number;
  uint64_t priority;
  uint64_t timeout_us;
  uint32_t flags;
  uint32_t tensor_count;
  uint32_t output_count;
  uint32_t parameter_count;
  const TRITONPY_Tensor *tensors; /* the inputs, or what belongs to a question */
  const char *const *outputs; /* none stands for all */
  const TRITONPY_RequestParameter *parameters;
} TRITONPY_Call;

/* What is pointed to is copied, except for the bytes of outputs: they must stay until they have been read. */
typedef struct {
  bool is_final;
  bool has_response; /* not the final flag alone */
  bool has_error;
  int error_code;
  const char *error;
  const TRITONPY_Tensor *outputs;
  const TRITONPY_RequestParameter *parameters;
  uint32_t output_count;
  uint32_t parameter_count;
} TRITONPY_Called;

/* The server of one model; it stays for ever, because backends keep it. */
TRITONSERVER_Server *TRITONPY_ServerNew(void);
/* Wait for the next call; false when `TRITONPY_ServerStop` was called and all are over. What it points to stays
 * until it is answered. */
bool TRITONPY_ServerTake(TRITONSERVER_Server *server, TRITONPY_Call *call);
/* What is asked from here on gets this error; what was asked before is still to be answered. */
void TRITONPY_ServerStop(TRITONSERVER_Server *server, int error_code, const char *error);
/* An answer to a request. Every answer that is not the final flag alone comes back as one that has been read. */
void TRITONPY_ServerRespond(TRITONSERVER_Server *server, uint64_t tag, const TRITONPY_Called *called);
/* The bytes of a request are not used any more: it is released when it is answered, too. */
void TRITONPY_ServerLetGo(TRITONSERVER_Server *server, uint64_t tag);
/* The answer to a question: a text, a number, or both; or an error. */
void TRITONPY_ServerAnswer(
    TRITONSERVER_Server *server, uint64_t tag, const char *text, uint64_t byte_size, int64_t number);
void TRITONPY_ServerRefuse(TRITONSERVER_Server *server, uint64_t tag, int error_code, const char *error);
