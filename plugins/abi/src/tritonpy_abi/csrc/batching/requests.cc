// What a strategy may ask of a request. The driver has filled it in: nothing here allocates unless it fails.

#include <cstring>
#include <string>

#include "batching/objects.h"

using tritonpy::label;

namespace {

TRITONSERVER_Error* out_of_bounds(
    uint32_t index, uint32_t count, const std::string& before, const char* what) {
  const std::string text = before + "out of bounds index " + std::to_string(index);
  return tritonpy::invalid(text + ": request has " + std::to_string(count) + " " + what);
}

}  // namespace

std::string tritonpy::label(const TRITONBACKEND_Request* request) {
  return std::string("[request id: ") + (request->id[0] == '\0' ? "<id_unknown>" : request->id) + "] ";
}

TRITONSERVER_Error* TRITONBACKEND_RequestId(TRITONBACKEND_Request* request, const char** id) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(id);
  *id = request->id;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request* request, uint64_t* id) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(id);
  if (request->correlation_text != nullptr) {
    return tritonpy::invalid(label(request) + "correlation ID in request is not an unsigned int");
  }
  *id = request->correlation_number;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationIdString(
    TRITONBACKEND_Request* request, const char** id) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(id);
  if (request->correlation_text == nullptr) {
    return tritonpy::invalid(label(request) + "correlation ID in request is not a string");
  }
  *id = request->correlation_text;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestFlags(TRITONBACKEND_Request* request, uint32_t* flags) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(flags);
  *flags = request->flags;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InferenceRequestTimeoutMicroseconds(
    TRITONBACKEND_Request* request, uint64_t* timeout) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(timeout);
  *timeout = request->timeout_us;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameterCount(TRITONBACKEND_Request* request, uint32_t* count) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(count);
  *count = request->parameter_count;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestParameter(
    TRITONBACKEND_Request* request, uint32_t index, const char** key, TRITONSERVER_ParameterType* type,
    const void** value) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(key);
  TRITONPY_REQUIRE(type);
  TRITONPY_REQUIRE(value);
  if (index >= request->parameter_count) {
    return out_of_bounds(index, request->parameter_count, "", "parameters");
  }
  const TRITONPY_RequestParameter& parameter = request->parameters[index];
  *key = parameter.name;
  *type = static_cast<TRITONSERVER_ParameterType>(parameter.type);
  switch (*type) {
    case TRITONSERVER_PARAMETER_INT:
      *value = &parameter.integer;
      break;
    case TRITONSERVER_PARAMETER_BOOL:
      *value = &parameter.boolean;
      break;
    case TRITONSERVER_PARAMETER_DOUBLE:
      *value = &parameter.number;
      break;
    default:
      *value = parameter.text;
      break;
  }
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request* request, uint32_t* count) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(count);
  *count = request->input_count;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputName(
    TRITONBACKEND_Request* request, uint32_t index, const char** name) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(name);
  *name = nullptr;
  if (index >= request->input_count) {
    return out_of_bounds(index, request->input_count, label(request), "inputs");
  }
  *name = request->inputs[index].name;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestInput(
    TRITONBACKEND_Request* request, const char* name, TRITONBACKEND_Input** input) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(input);
  *input = nullptr;
  for (uint32_t index = 0; index < request->input_count; ++index) {
    if (std::strcmp(request->inputs[index].name, name) == 0) {
      *input = &request->inputs[index];
      return nullptr;
    }
  }
  return tritonpy::invalid(label(request) + "unknown request input name " + name);
}

TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(
    TRITONBACKEND_Request* request, uint32_t index, TRITONBACKEND_Input** input) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(input);
  *input = nullptr;
  if (index >= request->input_count) {
    return out_of_bounds(index, request->input_count, label(request), "inputs");
  }
  *input = &request->inputs[index];
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputCount(TRITONBACKEND_Request* request, uint32_t* count) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(count);
  *count = request->output_count;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(
    TRITONBACKEND_Request* request, uint32_t index, const char** name) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(name);
  *name = nullptr;
  if (index >= request->output_count) {
    return out_of_bounds(index, request->output_count, label(request), "requested outputs");
  }
  *name = request->outputs[index];
  return nullptr;
}
