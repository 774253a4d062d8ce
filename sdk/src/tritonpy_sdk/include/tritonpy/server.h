/* The server, as a backend asks it: inference by other models, and questions about them.
 *
 * Work with another model goes in four steps: make a request, give it inputs, a release callback and a response
 * callback with an allocator, hand it to `TRITONSERVER_ServerInferAsync`, and wait for what the callbacks get.
 * Callbacks come from threads of the server, several at once for several requests, in order for one. A function
 * below that asks the server waits for its answer.
 */
#ifndef TRITONPY_SERVER_H
#define TRITONPY_SERVER_H

#include "tritonpy/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TRITONSERVER_Server TRITONSERVER_Server;
typedef struct TRITONSERVER_InferenceRequest TRITONSERVER_InferenceRequest;
typedef struct TRITONSERVER_InferenceResponse TRITONSERVER_InferenceResponse;
typedef struct TRITONSERVER_ResponseAllocator TRITONSERVER_ResponseAllocator;
typedef struct TRITONSERVER_Metrics TRITONSERVER_Metrics;

/* The server that a backend's model is part of; good for as long as the model is. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelServer(
    TRITONBACKEND_Model *model, TRITONSERVER_Server **server);

/* ---- memory for the outputs of responses ---- */

/* Gives memory for an output: at `*buffer`, of the kind at `*actual_memory_type`, which need not be the wished
 * one; the outputs of other models are written to memory of the CPU only. `byte_size` may be 0, and the buffer
 * NULL then. An error becomes that of the response. */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorAllocFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, const char *tensor_name, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, void *userp, void **buffer,
    void **buffer_userp, TRITONSERVER_MemoryType *actual_memory_type, int64_t *actual_memory_type_id);
/* Changes the attributes of a buffer that was just given. */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorBufferAttributesFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, const char *tensor_name,
    TRITONSERVER_BufferAttributes *buffer_attributes, void *userp, void *buffer_userp);
/* Tells the kind of memory that it would give; asked before each output, with the wish in place. */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorQueryFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *userp, const char *tensor_name, size_t *byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);
/* Takes memory back, when its response is deleted. */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorReleaseFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *buffer, void *buffer_userp, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);
/* The outputs that follow are those of another response. */
typedef TRITONSERVER_Error *(*TRITONSERVER_ResponseAllocatorStartFn_t)(
    TRITONSERVER_ResponseAllocator *allocator, void *userp);

/* `start_fn` may be NULL. The allocator must be there until the last response that it serves is deleted. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorNew(
    TRITONSERVER_ResponseAllocator **allocator, TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn, TRITONSERVER_ResponseAllocatorStartFn_t start_fn);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(
    TRITONSERVER_ResponseAllocator *allocator,
    TRITONSERVER_ResponseAllocatorBufferAttributesFn_t buffer_attributes_fn);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorSetQueryFunction(
    TRITONSERVER_ResponseAllocator *allocator, TRITONSERVER_ResponseAllocatorQueryFn_t query_fn);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ResponseAllocatorDelete(
    TRITONSERVER_ResponseAllocator *allocator);

/* ---- a request to another model ----
 *
 * From `TRITONSERVER_ServerInferAsync` to its release callback a request is the server's: it may be cancelled
 * and asked, and is neither changed nor deleted. */

/* Gets the request back, with `TRITONSERVER_REQUEST_RELEASE_ALL`: to be used again, or deleted. */
typedef void (*TRITONSERVER_InferenceRequestReleaseFn_t)(
    TRITONSERVER_InferenceRequest *request, const uint32_t flags, void *userp);
/* Gets a response, to be deleted. With `TRITONSERVER_RESPONSE_COMPLETE_FINAL` it is the last one, or NULL where
 * a decoupled model has nothing more to say. */
typedef void (*TRITONSERVER_InferenceResponseCompleteFn_t)(
    TRITONSERVER_InferenceResponse *response, const uint32_t flags, void *userp);

/* -1 is the version that the model's policy chooses. An error where the model takes no requests. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestNew(
    TRITONSERVER_InferenceRequest **request, TRITONSERVER_Server *server, const char *model_name,
    const int64_t model_version);
/* An error while the server has it. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestDelete(
    TRITONSERVER_InferenceRequest *request);

TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestId(
    TRITONSERVER_InferenceRequest *request, const char **id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetId(
    TRITONSERVER_InferenceRequest *request, const char *id);
/* `TRITONSERVER_RequestFlag`, combined. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestFlags(
    TRITONSERVER_InferenceRequest *request, uint32_t *flags);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetFlags(
    TRITONSERVER_InferenceRequest *request, uint32_t flags);
/* An error where the id is of the other kind. 0, or "", belongs to no sequence. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestCorrelationId(
    TRITONSERVER_InferenceRequest *request, uint64_t *correlation_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestCorrelationIdString(
    TRITONSERVER_InferenceRequest *request, const char **correlation_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationId(
    TRITONSERVER_InferenceRequest *request, uint64_t correlation_id);
/* At most 128 bytes. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetCorrelationIdString(
    TRITONSERVER_InferenceRequest *request, const char *correlation_id);
/* 0 is the model's default. The first one is an error where the level has more than 32 bits. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestPriority(
    TRITONSERVER_InferenceRequest *request, uint32_t *priority);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestPriorityUInt64(
    TRITONSERVER_InferenceRequest *request, uint64_t *priority);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetPriority(
    TRITONSERVER_InferenceRequest *request, uint32_t priority);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetPriorityUInt64(
    TRITONSERVER_InferenceRequest *request, uint64_t priority);
/* In the queue of the model; 0 for none. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest *request, uint64_t *timeout_us);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest *request, uint64_t timeout_us);

TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddInput(
    TRITONSERVER_InferenceRequest *request, const char *name, const TRITONSERVER_DataType datatype,
    const int64_t *shape, uint64_t dim_count);
/* The only input, with the datatype and shape that the model's only input has; a -1 in it is found from the
 * bytes, and all of them are one element of BYTES. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddRawInput(
    TRITONSERVER_InferenceRequest *request, const char *name);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveInput(
    TRITONSERVER_InferenceRequest *request, const char *name);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllInputs(
    TRITONSERVER_InferenceRequest *request);
/* Bytes that follow those that the input has; they must stay until the request is released. Memory of GPUs is
 * refused. Of BYTES each element is a length of four bytes, the lowest first, and so many bytes. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest *request, const char *name, const void *base, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id);
/* Other bytes for the instances of one host policy. They are kept, and not used: another process has the model,
 * and gets the bytes that all instances may have. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    TRITONSERVER_InferenceRequest *request, const char *name, const void *base, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, const char *host_policy_name);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    TRITONSERVER_InferenceRequest *request, const char *name, const void *base,
    TRITONSERVER_BufferAttributes *buffer_attributes);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllInputData(
    TRITONSERVER_InferenceRequest *request, const char *name);
/* Without any, all outputs are asked for. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestAddRequestedOutput(
    TRITONSERVER_InferenceRequest *request, const char *name);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    TRITONSERVER_InferenceRequest *request, const char *name);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    TRITONSERVER_InferenceRequest *request);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetStringParameter(
    TRITONSERVER_InferenceRequest *request, const char *name, const char *value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetIntParameter(
    TRITONSERVER_InferenceRequest *request, const char *name, const int64_t value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetBoolParameter(
    TRITONSERVER_InferenceRequest *request, const char *name, const bool value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetDoubleParameter(
    TRITONSERVER_InferenceRequest *request, const char *name, const double value);

/* Both are required, and stay for the next time. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest *request, TRITONSERVER_InferenceRequestReleaseFn_t release_fn,
    void *release_userp);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest *request, TRITONSERVER_ResponseAllocator *allocator, void *allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void *response_userp);

/* The request is the server's from here on, unless this returns an error. Whatever becomes of it, also a
 * refusal by the model, comes to the callbacks: the last response, and then the release. `trace` may be NULL. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerInferAsync(
    TRITONSERVER_Server *server, TRITONSERVER_InferenceRequest *request, TRITONSERVER_InferenceTrace *trace);
/* Has the model give up; the response and the release come all the same. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestCancel(
    TRITONSERVER_InferenceRequest *request);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceRequestIsCancelled(
    TRITONSERVER_InferenceRequest *request, bool *is_cancelled);

/* ---- a response of another model ---- */

/* NULL where it has none; yours, to be ended. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceResponseError(
    TRITONSERVER_InferenceResponse *response);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceResponseModel(
    TRITONSERVER_InferenceResponse *response, const char **model_name, int64_t *model_version);
/* That of its request. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceResponseId(
    TRITONSERVER_InferenceResponse *response, const char **request_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceResponseParameterCount(
    TRITONSERVER_InferenceResponse *response, uint32_t *count);
/* `*value` points to what `*type` says; see `TRITONSERVER_ParameterNew`. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceResponseParameter(
    TRITONSERVER_InferenceResponse *response, const uint32_t index, const char **name,
    TRITONSERVER_ParameterType *type, const void **value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutputCount(
    TRITONSERVER_InferenceResponse *response, uint32_t *count);
/* `*base` is the allocator's buffer, and `*userp` what it gave with it. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse *response, const uint32_t index, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint64_t *dim_count, const void **base,
    size_t *byte_size, TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id, void **userp);
/* Has the allocator take its buffers back. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceResponseDelete(
    TRITONSERVER_InferenceResponse *response);

/* The name of an element of an output, by the model's label file; NULL where it has none. It stays with the
 * response. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_InferenceResponseOutputClassificationLabel(
    TRITONSERVER_InferenceResponse *response, const uint32_t index, const size_t class_index,
    const char **label);

/* ---- questions about the server and its models ----
 *
 * -1 is the version that the model's policy chooses. A message that comes back is yours, to be deleted; it holds
 * what the HTTP protocol answers in the same case. */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerIsLive(TRITONSERVER_Server *server, bool *live);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerIsReady(TRITONSERVER_Server *server, bool *ready);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerModelIsReady(
    TRITONSERVER_Server *server, const char *model_name, const int64_t model_version, bool *ready);

typedef enum { TRITONSERVER_BATCH_UNKNOWN = 1, TRITONSERVER_BATCH_FIRST_DIM = 2 } TRITONSERVER_ModelBatchFlag;

typedef enum {
  TRITONSERVER_TXN_ONE_TO_ONE = 1,
  TRITONSERVER_TXN_DECOUPLED = 2
} TRITONSERVER_ModelTxnPropertyFlag;

/* `voidp` may be NULL, and gets NULL. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerModelBatchProperties(
    TRITONSERVER_Server *server, const char *model_name, const int64_t model_version, uint32_t *flags,
    void **voidp);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerModelTransactionProperties(
    TRITONSERVER_Server *server, const char *model_name, const int64_t model_version, uint32_t *txn_flags,
    void **voidp);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerMetadata(
    TRITONSERVER_Server *server, TRITONSERVER_Message **server_metadata);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerModelMetadata(
    TRITONSERVER_Server *server, const char *model_name, const int64_t model_version,
    TRITONSERVER_Message **model_metadata);
/* Of all models where the name is "". */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerModelStatistics(
    TRITONSERVER_Server *server, const char *model_name, const int64_t model_version,
    TRITONSERVER_Message **model_stats);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerModelConfig(
    TRITONSERVER_Server *server, const char *model_name, const int64_t model_version,
    const uint32_t config_version, TRITONSERVER_Message **model_config);

typedef enum { TRITONSERVER_INDEX_FLAG_READY = 1 } TRITONSERVER_ModelIndexFlag;

TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerModelIndex(
    TRITONSERVER_Server *server, uint32_t flags, TRITONSERVER_Message **model_index);

/* ---- models are loaded and unloaded: only where the server runs in the control mode explicit ---- */

/* Waits until the model serves. What served before does so until then, and for good if this fails. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerLoadModel(
    TRITONSERVER_Server *server, const char *model_name);
/* `config` is a text with the configuration as JSON; any other parameter is a file of the model, with bytes, such
 * as `file:1/model.onnx`. Where there are files, they are all that the model has. Parameters stay yours. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerLoadModelWithParameters(
    TRITONSERVER_Server *server, const char *model_name, const TRITONSERVER_Parameter **parameters,
    const uint64_t parameter_count);
/* Returns at once: the model answers what it has accepted. A model that is not there is no error. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerUnloadModel(
    TRITONSERVER_Server *server, const char *model_name);
/* Also the models that an ensemble is made of. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerUnloadModelAndDependents(
    TRITONSERVER_Server *server, const char *model_name);

/* ---- the page of metrics ---- */

typedef enum { TRITONSERVER_METRIC_PROMETHEUS = 0 } TRITONSERVER_MetricFormat;

/* Yours, to be deleted. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ServerMetrics(
    TRITONSERVER_Server *server, TRITONSERVER_Metrics **metrics);
/* The page as it is now; it stays with the object, until this is called again. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricsFormatted(
    TRITONSERVER_Metrics *metrics, TRITONSERVER_MetricFormat format, const char **base, size_t *byte_size);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics *metrics);

/* ---- an output in a response of your own, as it was made ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutput(
    TRITONBACKEND_Response *response, const uint32_t index, const char **name,
    TRITONSERVER_DataType *datatype, const int64_t **shape, uint64_t *dim_count);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_InferenceResponseOutputByName(
    TRITONBACKEND_Response *response, const char *name, TRITONSERVER_DataType *datatype,
    const int64_t **shape, uint64_t *dim_count);

#ifdef __cplusplus
}
#endif

#endif
