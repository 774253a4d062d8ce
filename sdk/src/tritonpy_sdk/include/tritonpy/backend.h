/* Backends: what executes models.
 *
 * A backend is a shared object `libtriton_<name>.so` that defines the functions at the end of this page. Only
 * `TRITONBACKEND_ModelInstanceExecute` is required. A model asks for it with `backend: "<name>"`.
 */
#ifndef TRITONPY_BACKEND_H
#define TRITONPY_BACKEND_H

#include "tritonpy/batching.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TRITONSERVER_InferenceTrace TRITONSERVER_InferenceTrace;
typedef struct TRITONBACKEND_MemoryManager TRITONBACKEND_MemoryManager;
typedef struct TRITONBACKEND_BackendAttribute TRITONBACKEND_BackendAttribute;
typedef struct TRITONBACKEND_ModelInstance TRITONBACKEND_ModelInstance;
typedef struct TRITONBACKEND_Response TRITONBACKEND_Response;
typedef struct TRITONBACKEND_ResponseFactory TRITONBACKEND_ResponseFactory;
typedef struct TRITONBACKEND_Output TRITONBACKEND_Output;

typedef enum {
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1,
  TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
} TRITONSERVER_RequestFlag;

typedef enum {
  TRITONSERVER_REQUEST_RELEASE_ALL = 1,
  TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
} TRITONSERVER_RequestReleaseFlag;

typedef enum { TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1 } TRITONSERVER_ResponseCompleteFlag;

/* ---- the backend; the first function is for `TRITONBACKEND_Initialize` ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendSetExecutionPolicy(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_ExecutionPolicy policy);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendMemoryManager(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_MemoryManager **manager);
/* Memory of the CPU only; pinned memory is asked for in vain, as where there is no GPU. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_MemoryManagerAllocate(
    TRITONBACKEND_MemoryManager *manager, void **buffer, const TRITONSERVER_MemoryType memory_type,
    const int64_t memory_type_id, const uint64_t byte_size);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_MemoryManagerFree(
    TRITONBACKEND_MemoryManager *manager, void *buffer, const TRITONSERVER_MemoryType memory_type,
    const int64_t memory_type_id);

/* ---- the model: only in `TRITONBACKEND_ModelInitialize`, and where `TRITONBACKEND_ModelAutoCompleteConfig`
 * says so. The message stays yours. ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelSetConfig(
    TRITONBACKEND_Model *model, const uint32_t config_version, TRITONSERVER_Message *config);

/* ---- an instance ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceName(
    TRITONBACKEND_ModelInstance *instance, const char **name);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceKind(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_InstanceGroupKind *kind);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceDeviceId(
    TRITONBACKEND_ModelInstance *instance, int32_t *device_id);
/* An object with one member, the policy's name. The message stays the instance's: do not delete it. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceHostPolicy(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_Message **policy);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceIsPassive(
    TRITONBACKEND_ModelInstance *instance, bool *is_passive);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceModel(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Model **model);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceState(
    TRITONBACKEND_ModelInstance *instance, void **state);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSetState(
    TRITONBACKEND_ModelInstance *instance, void *state);

/* ---- statistics: nanoseconds of the monotonic clock ----
 *
 * Report each request before it is released, and each execution once, before it returns. */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request *request, const bool success,
    const uint64_t exec_start_ns, const uint64_t compute_start_ns, const uint64_t compute_end_ns,
    const uint64_t exec_end_ns);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance *instance, const uint64_t batch_size, const uint64_t exec_start_ns,
    const uint64_t compute_start_ns, const uint64_t compute_end_ns, const uint64_t exec_end_ns);

/* ---- a request that is executed: yours from the successful return of Execute until you release it ---- */

/* The trace is NULL for a request that is not traced. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestTrace(
    TRITONBACKEND_Request *request, TRITONSERVER_InferenceTrace **trace);
/* Where an output of this name will lie: in the memory of the CPU, whatever is wished for. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestOutputBufferProperties(
    TRITONBACKEND_Request *request, const char *name, size_t *byte_size, TRITONSERVER_MemoryType *memory_type,
    int64_t *memory_type_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestRelease(
    TRITONBACKEND_Request *request, uint32_t release_flags);

/* ---- responses; from any thread. A factory outlives its request ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseNew(
    TRITONBACKEND_Response **response, TRITONBACKEND_Request *request);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryNew(
    TRITONBACKEND_ResponseFactory **factory, TRITONBACKEND_Request *request);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryDelete(
    TRITONBACKEND_ResponseFactory *factory);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseNewFromFactory(
    TRITONBACKEND_Response **response, TRITONBACKEND_ResponseFactory *factory);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseFactorySendFlags(
    TRITONBACKEND_ResponseFactory *factory, const uint32_t send_flags);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseFactoryIsCancelled(
    TRITONBACKEND_ResponseFactory *factory, bool *is_cancelled);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseSetStringParameter(
    TRITONBACKEND_Response *response, const char *name, const char *value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseSetIntParameter(
    TRITONBACKEND_Response *response, const char *name, const int64_t value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseSetBoolParameter(
    TRITONBACKEND_Response *response, const char *name, const bool value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseSetDoubleParameter(
    TRITONBACKEND_Response *response, const char *name, const double value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseOutput(
    TRITONBACKEND_Response *response, TRITONBACKEND_Output **output, const char *name,
    const TRITONSERVER_DataType datatype, const int64_t *shape, const uint32_t dim_count);
/* Takes the response, unless it returns an error; `error` stays yours, and the client gets its code and text
 * instead of the outputs. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseSend(
    TRITONBACKEND_Response *response, const uint32_t send_flags, TRITONSERVER_Error *error);
/* Only for one that was not sent. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response *response);

/* ---- an output: one buffer, good until its response is sent or deleted ---- */

/* `memory_type` and `memory_type_id` are wishes, and then what was given: memory of the CPU. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_OutputBuffer(
    TRITONBACKEND_Output *output, void **buffer, const uint64_t byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_OutputBufferAttributes(
    TRITONBACKEND_Output *output, TRITONSERVER_BufferAttributes **attributes);

/* ---- yours to define ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(
    TRITONBACKEND_ModelInstance *instance);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(
    TRITONBACKEND_ModelInstance *instance);
/* Where it succeeds it answers and releases each request, now or later. Where it returns an error the requests
 * stay the server's, and their clients get the error. The array is the server's again in any case. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count);

#ifdef __cplusplus
}
#endif

#endif
