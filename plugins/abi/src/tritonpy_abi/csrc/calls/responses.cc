// Responses of other models, and what a backend can read of its own.

#include "backends/objects.h"
#include "calls/objects.h"
#include "guard.h"

using tritonpy::guarded;

namespace {

TRITONSERVER_Error* out_of_bounds(uint32_t index, size_t count, const char* what) {
  return tritonpy::invalid(
      "out of bounds index " + std::to_string(index) + ": response has " + std::to_string(count) + " " + what);
}

}  // namespace

TRITONSERVER_InferenceResponse::~TRITONSERVER_InferenceResponse() {
  for (const Output& output : outputs) {
    if (output.buffer == nullptr) {
      continue;
    }
    TRITONSERVER_ErrorDelete(guarded("a release function of a response allocator", [&] {
      return allocator->release(
          allocator, output.buffer, output.buffer_userp, output.attributes.byte_size,
          output.attributes.memory_type, output.attributes.memory_type_id);
    }));
  }
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(TRITONSERVER_InferenceResponse* response) {
  TRITONPY_REQUIRE(response);
  return response->has_error ? TRITONSERVER_ErrorNew(response->error_code, response->error.c_str()) : nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseModel(
    TRITONSERVER_InferenceResponse* response, const char** model_name, int64_t* model_version) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(model_name);
  TRITONPY_REQUIRE(model_version);
  *model_name = response->model.c_str();
  *model_version = response->version;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseId(
    TRITONSERVER_InferenceResponse* response, const char** request_id) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(request_id);
  *request_id = response->id.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameterCount(
    TRITONSERVER_InferenceResponse* response, uint32_t* count) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(count);
  *count = static_cast<uint32_t>(response->parameters.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameter(
    TRITONSERVER_InferenceResponse* response, const uint32_t index, const char** name,
    TRITONSERVER_ParameterType* type, const void** value) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(type);
  TRITONPY_REQUIRE(value);
  if (index >= response->parameters.size()) {
    return out_of_bounds(index, response->parameters.size(), "parameters");
  }
  const TRITONSERVER_Parameter& parameter = response->parameters[index];
  *name = parameter.name.c_str();
  *type = parameter.type;
  *value = parameter.value();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputCount(
    TRITONSERVER_InferenceResponse* response, uint32_t* count) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(count);
  *count = static_cast<uint32_t>(response->outputs.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse* response, const uint32_t index, const char** name,
    TRITONSERVER_DataType* datatype, const int64_t** shape, uint64_t* dim_count, const void** base,
    size_t* byte_size, TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id, void** userp) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(datatype);
  TRITONPY_REQUIRE(shape);
  TRITONPY_REQUIRE(dim_count);
  TRITONPY_REQUIRE(base);
  TRITONPY_REQUIRE(byte_size);
  TRITONPY_REQUIRE(memory_type);
  TRITONPY_REQUIRE(memory_type_id);
  TRITONPY_REQUIRE(userp);
  if (index >= response->outputs.size()) {
    return out_of_bounds(index, response->outputs.size(), "outputs");
  }
  const TRITONSERVER_InferenceResponse::Output& output = response->outputs[index];
  *name = output.name.c_str();
  *datatype = output.datatype;
  *shape = output.shape.data();
  *dim_count = output.shape.size();
  *base = output.buffer;
  *byte_size = output.attributes.byte_size;
  *memory_type = output.attributes.memory_type;
  *memory_type_id = output.attributes.memory_type_id;
  *userp = output.buffer_userp;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputClassificationLabel(
    TRITONSERVER_InferenceResponse* response, const uint32_t index, const size_t class_index,
    const char** label) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(label);
  *label = nullptr;
  if (index >= response->outputs.size()) {
    return out_of_bounds(index, response->outputs.size(), "outputs");
  }
  return guarded(__func__, [&]() -> TRITONSERVER_Error* {
    tritonpy::Question question;
    question.what = "label";
    question.model = response->model;
    question.version = response->version;
    const char* const output = response->outputs[index].name.c_str();
    question.tensors.push_back({output, nullptr, &class_index, sizeof(class_index), 0, 0});
    if (auto* error = response->server->calls->ask(question)) {
      return error;
    }
    if (!question.text.empty()) {
      response->labels.push_back(std::move(question.text));
      *label = response->labels.back().c_str();
    }
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceResponseDelete(TRITONSERVER_InferenceResponse* response) {
  delete response;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InferenceResponseOutput(
    TRITONBACKEND_Response* response, const uint32_t index, const char** name,
    TRITONSERVER_DataType* datatype, const int64_t** shape, uint64_t* dim_count) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(datatype);
  TRITONPY_REQUIRE(shape);
  TRITONPY_REQUIRE(dim_count);
  if (index >= response->outputs.size()) {
    return out_of_bounds(index, response->outputs.size(), "outputs");
  }
  const TRITONBACKEND_Output& output = response->outputs[index];
  *name = output.name.c_str();
  *datatype = output.datatype;
  *shape = output.shape.data();
  *dim_count = output.shape.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_InferenceResponseOutputByName(
    TRITONBACKEND_Response* response, const char* name, TRITONSERVER_DataType* datatype,
    const int64_t** shape, uint64_t* dim_count) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(datatype);
  TRITONPY_REQUIRE(shape);
  TRITONPY_REQUIRE(dim_count);
  for (const TRITONBACKEND_Output& output : response->outputs) {
    if (output.name == name) {
      *datatype = output.datatype;
      *shape = output.shape.data();
      *dim_count = output.shape.size();
      return nullptr;
    }
  }
  const std::string text = "Output name " + std::string(name) + "not found.";  // as Triton writes it
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, text.c_str());
}
