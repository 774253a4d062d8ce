// Traces of requests, as their backend sees them.

#include "backends/objects.h"
#include "guard.h"

TRITONSERVER_Error* TRITONBACKEND_RequestTrace(
    TRITONBACKEND_Request* request, TRITONSERVER_InferenceTrace** trace) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(trace);
  *trace = request->reply == nullptr ? nullptr : (*tritonpy::reply_of(request))->trace();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceId(TRITONSERVER_InferenceTrace* trace, uint64_t* id) {
  TRITONPY_REQUIRE(trace);
  TRITONPY_REQUIRE(id);
  *id = trace->id;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceParentId(TRITONSERVER_InferenceTrace* trace, uint64_t* parent_id) {
  TRITONPY_REQUIRE(trace);
  TRITONPY_REQUIRE(parent_id);
  *parent_id = trace->parent_id;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelName(
    TRITONSERVER_InferenceTrace* trace, const char** model_name) {
  TRITONPY_REQUIRE(trace);
  TRITONPY_REQUIRE(model_name);
  *model_name = trace->model_name.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceModelVersion(
    TRITONSERVER_InferenceTrace* trace, int64_t* model_version) {
  TRITONPY_REQUIRE(trace);
  TRITONPY_REQUIRE(model_version);
  *model_version = trace->model_version;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceRequestId(
    TRITONSERVER_InferenceTrace* trace, const char** request_id) {
  TRITONPY_REQUIRE(trace);
  TRITONPY_REQUIRE(request_id);
  *request_id = trace->request_id.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceContext(
    TRITONSERVER_InferenceTrace* trace, const char** trace_context) {
  TRITONPY_REQUIRE(trace);
  TRITONPY_REQUIRE(trace_context);
  *trace_context = trace->context.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceSetContext(
    TRITONSERVER_InferenceTrace* trace, const char* trace_context) {
  TRITONPY_REQUIRE(trace);
  TRITONPY_REQUIRE(trace_context);
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    trace->context = trace_context;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceTraceReportActivity(
    TRITONSERVER_InferenceTrace* trace, uint64_t timestamp, const char* name) {
  TRITONPY_REQUIRE(trace);
  TRITONPY_REQUIRE(name);
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    trace->reply->note(name, timestamp);
    return nullptr;
  });
}
