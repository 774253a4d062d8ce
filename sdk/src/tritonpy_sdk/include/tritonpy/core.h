/* What every shared object for Triton shares: errors, types, messages, log lines, parameters, metrics.
 *
 * A library that is compiled against these headers works in tritonpy (with tritonpy-abi) and in Triton alike:
 * names, argument orders and numbers are those of Triton's C API. The functions are undefined symbols of your
 * library; the server exports them. Link with nothing.
 *
 * A function that returns `TRITONSERVER_Error *` returns NULL for success. Whoever gets an error owns it:
 * pass it on, or end it with `TRITONSERVER_ErrorDelete`. Strings that come back belong to the object that
 * they came from.
 */
#ifndef TRITONPY_CORE_H
#define TRITONPY_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TRITONPY_EXPORT __attribute__((visibility("default")))
#else
#define TRITONPY_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TRITONSERVER_Error TRITONSERVER_Error;
typedef struct TRITONSERVER_Message TRITONSERVER_Message;
typedef struct TRITONSERVER_Parameter TRITONSERVER_Parameter;
typedef struct TRITONSERVER_BufferAttributes TRITONSERVER_BufferAttributes;
typedef struct TRITONSERVER_MetricFamily TRITONSERVER_MetricFamily;
typedef struct TRITONSERVER_Metric TRITONSERVER_Metric;
typedef struct TRITONSERVER_MetricArgs TRITONSERVER_MetricArgs;

/* ---- versions: a library fits where the major number is the same and the minor one is not smaller ---- */

#define TRITONSERVER_API_VERSION_MAJOR 1
#define TRITONSERVER_API_VERSION_MINOR 34

TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ApiVersion(uint32_t *major, uint32_t *minor);

/* ---- errors ---- */

typedef enum {
  TRITONSERVER_ERROR_UNKNOWN = 0,
  TRITONSERVER_ERROR_INTERNAL = 1,
  TRITONSERVER_ERROR_NOT_FOUND = 2,
  TRITONSERVER_ERROR_INVALID_ARG = 3,
  TRITONSERVER_ERROR_UNAVAILABLE = 4,
  TRITONSERVER_ERROR_UNSUPPORTED = 5,
  TRITONSERVER_ERROR_ALREADY_EXISTS = 6,
  TRITONSERVER_ERROR_CANCELLED = 7
} TRITONSERVER_Error_Code;

/* The text is copied. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *message);
TRITONPY_EXPORT void TRITONSERVER_ErrorDelete(TRITONSERVER_Error *error);
TRITONPY_EXPORT TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error *error);
TRITONPY_EXPORT const char *TRITONSERVER_ErrorCodeString(TRITONSERVER_Error *error);
TRITONPY_EXPORT const char *TRITONSERVER_ErrorMessage(TRITONSERVER_Error *error);

/* ---- types ---- */

typedef enum {
  TRITONSERVER_TYPE_INVALID = 0,
  TRITONSERVER_TYPE_BOOL = 1,
  TRITONSERVER_TYPE_UINT8 = 2,
  TRITONSERVER_TYPE_UINT16 = 3,
  TRITONSERVER_TYPE_UINT32 = 4,
  TRITONSERVER_TYPE_UINT64 = 5,
  TRITONSERVER_TYPE_INT8 = 6,
  TRITONSERVER_TYPE_INT16 = 7,
  TRITONSERVER_TYPE_INT32 = 8,
  TRITONSERVER_TYPE_INT64 = 9,
  TRITONSERVER_TYPE_FP16 = 10,
  TRITONSERVER_TYPE_FP32 = 11,
  TRITONSERVER_TYPE_FP64 = 12,
  TRITONSERVER_TYPE_BYTES = 13,
  TRITONSERVER_TYPE_BF16 = 14
} TRITONSERVER_DataType;

/* Names as in the protocols, such as "FP32"; "<invalid>" for numbers that are none. */
TRITONPY_EXPORT const char *TRITONSERVER_DataTypeString(TRITONSERVER_DataType datatype);
TRITONPY_EXPORT TRITONSERVER_DataType TRITONSERVER_StringToDataType(const char *name);
/* Bytes of one element; 0 for BYTES, whose elements differ. */
TRITONPY_EXPORT uint32_t TRITONSERVER_DataTypeByteSize(TRITONSERVER_DataType datatype);

typedef enum {
  TRITONSERVER_MEMORY_CPU = 0,
  TRITONSERVER_MEMORY_CPU_PINNED = 1,
  TRITONSERVER_MEMORY_GPU = 2
} TRITONSERVER_MemoryType;

TRITONPY_EXPORT const char *TRITONSERVER_MemoryTypeString(TRITONSERVER_MemoryType type);

typedef enum {
  TRITONSERVER_INSTANCEGROUPKIND_AUTO = 0,
  TRITONSERVER_INSTANCEGROUPKIND_CPU = 1,
  TRITONSERVER_INSTANCEGROUPKIND_GPU = 2,
  TRITONSERVER_INSTANCEGROUPKIND_MODEL = 3
} TRITONSERVER_InstanceGroupKind;

TRITONPY_EXPORT const char *TRITONSERVER_InstanceGroupKindString(TRITONSERVER_InstanceGroupKind kind);

/* ---- log lines; a message is one line, and lost where its level is switched off ---- */

typedef enum {
  TRITONSERVER_LOG_INFO = 0,
  TRITONSERVER_LOG_WARN = 1,
  TRITONSERVER_LOG_ERROR = 2,
  TRITONSERVER_LOG_VERBOSE = 3
} TRITONSERVER_LogLevel;

TRITONPY_EXPORT bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_LogMessage(
    TRITONSERVER_LogLevel level, const char *filename, int line, const char *message);

/* ---- messages: JSON documents, which are not checked: whoever reads one finds out ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MessageNewFromSerializedJson(
    TRITONSERVER_Message **message, const char *json, size_t byte_size);
/* The bytes belong to the message, and no zero byte need follow them. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MessageSerializeToJson(
    TRITONSERVER_Message *message, const char **json, size_t *byte_size);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MessageDelete(TRITONSERVER_Message *message);

/* ---- parameters: names with values ---- */

typedef enum {
  TRITONSERVER_PARAMETER_STRING = 0,
  TRITONSERVER_PARAMETER_INT = 1,
  TRITONSERVER_PARAMETER_BOOL = 2,
  TRITONSERVER_PARAMETER_DOUBLE = 3,
  TRITONSERVER_PARAMETER_BYTES = 4
} TRITONSERVER_ParameterType;

TRITONPY_EXPORT const char *TRITONSERVER_ParameterTypeString(TRITONSERVER_ParameterType type);
/* `value` points to a zero-terminated text, an int64_t, a bool or a double, of which a copy is kept. NULL
 * comes back for other types. */
TRITONPY_EXPORT TRITONSERVER_Parameter *TRITONSERVER_ParameterNew(
    const char *name, TRITONSERVER_ParameterType type, const void *value);
TRITONPY_EXPORT TRITONSERVER_Parameter *TRITONSERVER_ParameterBytesNew(
    const char *name, const void *bytes, uint64_t byte_size);
TRITONPY_EXPORT void TRITONSERVER_ParameterDelete(TRITONSERVER_Parameter *parameter);

/* ---- where a buffer lies, and how large it is ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesNew(
    TRITONSERVER_BufferAttributes **attributes);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesDelete(
    TRITONSERVER_BufferAttributes *attributes);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetMemoryType(
    TRITONSERVER_BufferAttributes *attributes, TRITONSERVER_MemoryType type);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetMemoryTypeId(
    TRITONSERVER_BufferAttributes *attributes, int64_t id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetCudaIpcHandle(
    TRITONSERVER_BufferAttributes *attributes, void *handle);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesSetByteSize(
    TRITONSERVER_BufferAttributes *attributes, size_t byte_size);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesMemoryType(
    TRITONSERVER_BufferAttributes *attributes, TRITONSERVER_MemoryType *type);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesMemoryTypeId(
    TRITONSERVER_BufferAttributes *attributes, int64_t *id);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesCudaIpcHandle(
    TRITONSERVER_BufferAttributes *attributes, void **handle);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_BufferAttributesByteSize(
    TRITONSERVER_BufferAttributes *attributes, size_t *byte_size);

/* ---- metrics; they appear on the server's metrics port ----
 *
 * Where a family of the name or a metric of the labels is there already, you get hold of the same one. */

typedef enum {
  TRITONSERVER_METRIC_KIND_COUNTER = 0,
  TRITONSERVER_METRIC_KIND_GAUGE = 1,
  TRITONSERVER_METRIC_KIND_HISTOGRAM = 2
} TRITONSERVER_MetricKind;

TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricFamilyNew(
    TRITONSERVER_MetricFamily **family, TRITONSERVER_MetricKind kind, const char *name,
    const char *description);
/* An error while it has metrics. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily *family);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_GetMetricFamilyKind(
    TRITONSERVER_MetricFamily *family, TRITONSERVER_MetricKind *kind);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs **args);
/* Upper bounds of buckets, ascending; +Inf is added. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricArgsSetHistogram(
    TRITONSERVER_MetricArgs *args, const double *bounds, uint64_t count);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs *args);
/* Labels are parameters with string values; they stay the caller's. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricNew(
    TRITONSERVER_Metric **metric, TRITONSERVER_MetricFamily *family, const TRITONSERVER_Parameter **labels,
    uint64_t label_count);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricNewWithArgs(
    TRITONSERVER_Metric **metric, TRITONSERVER_MetricFamily *family, const TRITONSERVER_Parameter **labels,
    uint64_t label_count, const TRITONSERVER_MetricArgs *args);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricDelete(TRITONSERVER_Metric *metric);
/* Of counters and gauges. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricValue(TRITONSERVER_Metric *metric, double *value);
/* Of counters and gauges; a counter takes nothing below 0. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricIncrement(TRITONSERVER_Metric *metric, double value);
/* Of gauges. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricSet(TRITONSERVER_Metric *metric, double value);
/* Of histograms. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_MetricObserve(TRITONSERVER_Metric *metric, double value);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONSERVER_GetMetricKind(
    TRITONSERVER_Metric *metric, TRITONSERVER_MetricKind *kind);

#ifdef __cplusplus
}
#endif

#endif
