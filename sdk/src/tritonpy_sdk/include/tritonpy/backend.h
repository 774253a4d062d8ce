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
typedef struct TRITONBACKEND_State TRITONBACKEND_State;
typedef struct TRITONBACKEND_ModelInstanceResponseStatistics TRITONBACKEND_ModelInstanceResponseStatistics;

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
/* Pinned memory and that of GPUs come from CUDA's driver, and are refused where there is none. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_MemoryManagerAllocate(
    TRITONBACKEND_MemoryManager *manager, void **buffer, const TRITONSERVER_MemoryType memory_type,
    const int64_t memory_type_id, const uint64_t byte_size);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_MemoryManagerFree(
    TRITONBACKEND_MemoryManager *manager, void *buffer, const TRITONSERVER_MemoryType memory_type,
    const int64_t memory_type_id);

/* ---- attributes; only in `TRITONBACKEND_GetBackendAttribute` ---- */

/* Instances of models whose configuration names no group: the first one of those added that there are devices
 * for. `device_ids` are GPUs, and may be NULL: all of them. With a count of 0 there is one on each of them. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute *attributes, const TRITONSERVER_InstanceGroupKind kind,
    const uint64_t count, const uint64_t *device_ids, const uint64_t id_count);
/* Whether instances of a model may be initialised at the same time; otherwise one is after the other. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute *attributes, const bool enabled);

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
/* An object with one member, named as the policy, and its settings as text: `{"cpu": {"numa-node": "0"}}`. The
 * message stays the instance's: do not delete it. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceHostPolicy(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_Message **policy);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceIsPassive(
    TRITONBACKEND_ModelInstance *instance, bool *is_passive);
/* `secondary_devices` of the instance's group; a kind is such as `KIND_NVDLA`. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
    TRITONBACKEND_ModelInstance *instance, uint32_t *count);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
    TRITONBACKEND_ModelInstance *instance, uint32_t index, const char **kind, int64_t *id);
/* `profile` of the instance's group. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceProfileCount(
    TRITONBACKEND_ModelInstance *instance, uint32_t *count);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceProfileName(
    TRITONBACKEND_ModelInstance *instance, const uint32_t index, const char **profile_name);
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

/* Statistics of one response of a decoupled model, or of its final flag: the model instance, the response factory, and
 * the times; all but the start of its output and the error are required. The server counts responses as they are sent
 * and times them itself: what you report has to be whole, and changes nothing. Yours to delete. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics **response_statistics);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ModelInstance *model_instance);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics,
    TRITONBACKEND_ResponseFactory *response_factory);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_start);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t compute_output_start);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, uint64_t response_end);
/* Stays yours, and is not looked at again. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics, TRITONSERVER_Error *error);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics *response_statistics);
/* Memory that the model, or an instance beyond what its model has, uses now; one entry for each kind of memory and
 * device, which replaces what was reported for it before. The attributes stay yours. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelReportMemoryUsage(
    TRITONBACKEND_Model *model, TRITONSERVER_BufferAttributes **usage, uint32_t usage_size);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReportMemoryUsage(
    TRITONBACKEND_ModelInstance *instance, TRITONSERVER_BufferAttributes **usage, uint32_t usage_size);

/* ---- a request that is executed: yours from the successful return of Execute until you release it ---- */

/* The trace is NULL for a request that is not traced; it is good until the request is released. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestTrace(
    TRITONBACKEND_Request *request, TRITONSERVER_InferenceTrace **trace);
/* Where an output of this name will lie: in the memory of the CPU, whatever is wished for. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestOutputBufferProperties(
    TRITONBACKEND_Request *request, const char *name, size_t *byte_size, TRITONSERVER_MemoryType *memory_type,
    int64_t *memory_type_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestRelease(
    TRITONBACKEND_Request *request, uint32_t release_flags);

/* ---- the trace of a request ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceTraceId(
    TRITONSERVER_InferenceTrace *trace, uint64_t *id);
/* 0 for a trace that is no part of another. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceTraceParentId(
    TRITONSERVER_InferenceTrace *trace, uint64_t *parent_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceTraceModelName(
    TRITONSERVER_InferenceTrace *trace, const char **model_name);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceTraceModelVersion(
    TRITONSERVER_InferenceTrace *trace, int64_t *model_version);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceTraceRequestId(
    TRITONSERVER_InferenceTrace *trace, const char **request_id);
/* JSON for OpenTelemetry's propagators; "" in Triton's own mode. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceTraceContext(
    TRITONSERVER_InferenceTrace *trace, const char **trace_context);
/* Only what you read again is changed, not what the server writes. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceTraceSetContext(
    TRITONSERVER_InferenceTrace *trace, const char *trace_context);
/* A step of your own in the request's trace; in nanoseconds of the monotonic clock, 0 for now. Before the final
 * response. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceTraceReportActivity(
    TRITONSERVER_InferenceTrace *trace, uint64_t timestamp, const char *name);

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

/* ---- what a model remembers of a sequence: the `state` of `sequence_batching` in its configuration ----
 *
 * What it has remembered is one of the request's inputs, called by the state's `input_name`. */

/* What the next request of the sequence gets instead, where you update it; `name` is the state's `output_name`. It
 * is good until the request is released. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_StateNew(
    TRITONBACKEND_State **state, TRITONBACKEND_Request *request, const char *name,
    const TRITONSERVER_DataType datatype, const int64_t *shape, const uint32_t dim_count);
/* Yours to fill, until you update the state. `memory_type` and `memory_type_id` are wishes, and then what was
 * given: memory of the CPU. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_StateBuffer(
    TRITONBACKEND_State *state, void **buffer, const uint64_t buffer_byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_StateBufferAttributes(
    TRITONBACKEND_State *state, TRITONSERVER_BufferAttributes **buffer_attributes);
/* From here on it is what the sequence remembers, if its request does not fail. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_StateUpdate(TRITONBACKEND_State *state);

/* ---- yours to define ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend);
/* Called after `TRITONBACKEND_Initialize`, in a process that executes nothing: before there are instances. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_GetBackendAttribute(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_BackendAttribute *attributes);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(
    TRITONBACKEND_ModelInstance *instance);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceFinalize(
    TRITONBACKEND_ModelInstance *instance);
/* Called when somebody asks whether the model is ready, on any thread, and while it executes or not; an error
 * says that the instance is not. Triton's servers up to 2.51 do not call it. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance *instance);
/* Where it succeeds it answers and releases each request, now or later. Where it returns an error the requests
 * stay the server's, and their clients get the error. The array is the server's again in any case. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count);

#ifdef __cplusplus
}
#endif

#endif
