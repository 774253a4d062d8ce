/* Batching strategies: which requests go together.
 *
 * A strategy is a shared object that defines the five functions at the end of this page, all of them. Name it
 * in a model's configuration (`TRITON_BATCH_STRATEGY_PATH`), or call it `batchstrategy.so` and put it beside
 * the model.
 */
#ifndef TRITONPY_BATCHING_H
#define TRITONPY_BATCHING_H

#include "tritonpy/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TRITONSERVER_Server TRITONSERVER_Server;
typedef struct TRITONBACKEND_Backend TRITONBACKEND_Backend;
typedef struct TRITONBACKEND_Model TRITONBACKEND_Model;
typedef struct TRITONBACKEND_Request TRITONBACKEND_Request;
typedef struct TRITONBACKEND_Input TRITONBACKEND_Input;
/* Yours: the server never looks inside. */
typedef struct TRITONBACKEND_Batcher TRITONBACKEND_Batcher;

#define TRITONBACKEND_API_VERSION_MAJOR 1
#define TRITONBACKEND_API_VERSION_MINOR 19

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ApiVersion(uint32_t *major, uint32_t *minor);

typedef enum { TRITONBACKEND_ARTIFACT_FILESYSTEM = 0 } TRITONBACKEND_ArtifactType;

typedef enum {
  TRITONBACKEND_EXECUTION_BLOCKING = 0,
  TRITONBACKEND_EXECUTION_DEVICE_BLOCKING = 1
} TRITONBACKEND_ExecutionPolicy;

/* ---- the model ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelName(TRITONBACKEND_Model *model, const char **name);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelVersion(TRITONBACKEND_Model *model, uint64_t *version);
/* Where the model's directory is. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelRepository(
    TRITONBACKEND_Model *model, TRITONBACKEND_ArtifactType *type, const char **location);
/* The configuration as JSON; `config_version` is 1. The message is yours to delete. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelConfig(
    TRITONBACKEND_Model *model, uint32_t config_version, TRITONSERVER_Message **config);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelAutoCompleteConfig(
    TRITONBACKEND_Model *model, bool *auto_complete_config);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelBackend(
    TRITONBACKEND_Model *model, TRITONBACKEND_Backend **backend);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelState(TRITONBACKEND_Model *model, void **state);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelSetState(TRITONBACKEND_Model *model, void *state);

/* ---- its backend ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendName(
    TRITONBACKEND_Backend *backend, const char **name);
/* As JSON, `{"cmdline": {…}}`. The message stays the backend's: do not delete it. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendConfig(
    TRITONBACKEND_Backend *backend, TRITONSERVER_Message **config);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendExecutionPolicy(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_ExecutionPolicy *policy);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendArtifacts(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_ArtifactType *type, const char **location);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendState(TRITONBACKEND_Backend *backend, void **state);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_BackendSetState(
    TRITONBACKEND_Backend *backend, void *state);

/* ---- a request; it may be read until the call that brought it returns ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestId(TRITONBACKEND_Request *request, const char **id);
/* An error where the id is a text. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationId(
    TRITONBACKEND_Request *request, uint64_t *id);
/* An error where the id is a number. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestCorrelationIdString(
    TRITONBACKEND_Request *request, const char **id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestFlags(
    TRITONBACKEND_Request *request, uint32_t *flags);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestIsCancelled(
    TRITONBACKEND_Request *request, bool *is_cancelled);
/* What the client gave, in microseconds; 0 for none. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request *request, uint64_t *timeout);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestParameterCount(
    TRITONBACKEND_Request *request, uint32_t *count);
/* `value` points to what the type says, as for `TRITONSERVER_ParameterNew`. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestParameter(
    TRITONBACKEND_Request *request, uint32_t index, const char **key, TRITONSERVER_ParameterType *type,
    const void **value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(
    TRITONBACKEND_Request *request, uint32_t *count);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestInputName(
    TRITONBACKEND_Request *request, uint32_t index, const char **name);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestInput(
    TRITONBACKEND_Request *request, const char *name, TRITONBACKEND_Input **input);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestInputByIndex(
    TRITONBACKEND_Request *request, uint32_t index, TRITONBACKEND_Input **input);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestOutputCount(
    TRITONBACKEND_Request *request, uint32_t *count);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_RequestOutputName(
    TRITONBACKEND_Request *request, uint32_t index, const char **name);

/* ---- an input; pass NULL for what you do not want to know ---- */

/* `shape` has `dim_count` numbers, the batch's first where the model batches. `byte_size` counts the bytes
 * that came, in `buffer_count` buffers: none where no bytes came. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_InputProperties(
    TRITONBACKEND_Input *input, const char **name, TRITONSERVER_DataType *datatype, const int64_t **shape,
    uint32_t *dim_count, uint64_t *byte_size, uint32_t *buffer_count);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_InputPropertiesForHostPolicy(
    TRITONBACKEND_Input *input, const char *host_policy, const char **name, TRITONSERVER_DataType *datatype,
    const int64_t **shape, uint32_t *dim_count, uint64_t *byte_size, uint32_t *buffer_count);
/* Memory type and id: what you would like on the way in, what it is on the way out. Do not write to the
 * bytes. NULL and 0 bytes, without an error, for an index behind the last. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_InputBuffer(
    TRITONBACKEND_Input *input, uint32_t index, const void **buffer, uint64_t *byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_InputBufferForHostPolicy(
    TRITONBACKEND_Input *input, const char *host_policy, uint32_t index, const void **buffer,
    uint64_t *byte_size,
    TRITONSERVER_MemoryType *memory_type, int64_t *memory_type_id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_InputBufferAttributes(
    TRITONBACKEND_Input *input, uint32_t index, const void **buffer,
    TRITONSERVER_BufferAttributes **attributes);

/* ---- what a strategy defines: all five, or it is none ----
 *
 * Calls for one model never overlap, but two models may be asked at the same time. A strategy narrows what
 * the dynamic batcher would do; `max_batch_size`, shapes, preferred sizes and delays hold all the same.
 */

/* Once for each version of a model that is loaded. Set `*batcher` to whatever you want to get back. An error
 * is the reason for which the model does not load; `ModelBatcherFinalize` is not called then. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher);
/* A new attempt at a batch; set `*userp` to what you want to know about it. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(
    const TRITONBACKEND_Batcher *batcher, void **userp);
/* Whether the request joins the attempt; false closes it. An error fails the request. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include);
/* The attempt is over: the batch has left, or is begun anew. Not called where `userp` is NULL. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp);

#ifdef __cplusplus
}
#endif

#endif
