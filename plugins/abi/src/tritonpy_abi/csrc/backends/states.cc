// States that a backend makes for the sequences of its requests.

#include "backends/states.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backends/objects.h"
#include "guard.h"

using tritonpy::invalid;
using tritonpy::StateSpec;
using tritonpy::StateSpecs;

namespace {

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t dim : shape) {
    text += (text.empty() ? "[" : ",") + std::to_string(dim);
  }
  return text.empty() ? "[]" : text + "]";
}

bool fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& expected) {
  return std::equal(shape.begin(), shape.end(), expected.begin(), expected.end(), [](int64_t got, int64_t want) {
    return got == want || (want == -1 && got >= 0);
  });
}

// Not an error in Triton, which lets the next request find something else than its configuration says.
TRITONSERVER_Error* misfit(
    const StateSpec& spec, TRITONSERVER_DataType datatype, const std::vector<int64_t>& shape) {
  if (datatype == spec.datatype && fits(shape, spec.shape)) {
    return nullptr;
  }
  return invalid(
      "state '" + spec.output_name + "' is " + TRITONSERVER_DataTypeString(datatype) + " of shape " +
      text_of(shape) + ", expected " + TRITONSERVER_DataTypeString(spec.datatype) + " of shape " +
      text_of(spec.shape) + ", from 'data_type' and 'dims' of the state in 'sequence_batching'");
}

// What the sequence remembers so far, as the request has it among its inputs.
const TRITONBACKEND_Input* content_before(const TRITONBACKEND_Request* request, const StateSpec& spec) {
  for (uint32_t index = 0; spec.keeps_content && index < request->input_count; ++index) {
    if (request->inputs[index].name == spec.input_name) {
      return &request->inputs[index];
    }
  }
  return nullptr;
}

// The bytes of so many elements; 0 where they may have any size.
uint64_t byte_size_of(const TRITONBACKEND_Output& output) {
  uint64_t byte_size = TRITONSERVER_DataTypeByteSize(output.datatype);
  for (const int64_t dim : output.shape) {
    byte_size *= static_cast<uint64_t>(dim);
  }
  return byte_size;
}

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_StateNew(
    TRITONBACKEND_State** state, TRITONBACKEND_Request* request, const char* name,
    const TRITONSERVER_DataType datatype, const int64_t* shape, const uint32_t dim_count) {
  TRITONPY_REQUIRE(state);
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(name);
  *state = nullptr;
  if (dim_count != 0) {
    TRITONPY_REQUIRE(shape);
  }
  if (request->reply == nullptr) {
    return invalid(std::string(__func__) + ": the request is not being executed, or was released before");
  }
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    const tritonpy::ReplyHold& reply = *tritonpy::reply_of(request);
    const StateSpecs& specs = reply->state_specs();
    if (specs.all.empty()) {
      return invalid(
          "unable to add state '" + std::string(name) + "'. State configuration is missing for model '" +
          specs.model_name + "'.");
    }
    const auto spec = std::find_if(
        specs.all.begin(), specs.all.end(), [&](const StateSpec& each) { return each.output_name == name; });
    if (spec == specs.all.end()) {
      return invalid("state '" + std::string(name) + "' is not a valid state name.");
    }
    const std::vector<int64_t> dims(shape, shape + dim_count);
    if (auto* error = misfit(*spec, datatype, dims)) {
      return error;
    }
    auto made = std::make_unique<TRITONBACKEND_State>(reply.get());
    made->before = content_before(request, *spec);
    made->value.name = name;
    made->value.datatype = datatype;
    made->value.shape = dims;
    *state = reply->keep(std::move(made));
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONBACKEND_StateBuffer(
    TRITONBACKEND_State* state, void** buffer, const uint64_t buffer_byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) {
  TRITONPY_REQUIRE(state);
  TRITONPY_REQUIRE(buffer);
  TRITONPY_REQUIRE(memory_type);
  TRITONPY_REQUIRE(memory_type_id);
  *buffer = nullptr;
  TRITONBACKEND_Output& value = state->value;
  if (!value.has_buffer || value.byte_size != buffer_byte_size) {
    void* data = std::realloc(value.data, buffer_byte_size == 0 ? 1 : buffer_byte_size);
    if (data == nullptr) {
      const std::string text =
          "cannot allocate " + std::to_string(buffer_byte_size) + " bytes for state '" + value.name + "'";
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, text.c_str());
    }
    value.data = data;
    if (!value.has_buffer && state->before != nullptr && state->before->data != nullptr) {
      std::memcpy(data, state->before->data, std::min(buffer_byte_size, state->before->byte_size));
    }
    value.has_buffer = true;
    value.byte_size = value.attributes.byte_size = buffer_byte_size;
  }
  *buffer = value.data;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_StateBufferAttributes(
    TRITONBACKEND_State* state, TRITONSERVER_BufferAttributes** buffer_attributes) {
  TRITONPY_REQUIRE(state);
  TRITONPY_REQUIRE(buffer_attributes);
  *buffer_attributes = &state->value.attributes;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_StateUpdate(TRITONBACKEND_State* state) {
  TRITONPY_REQUIRE(state);
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    TRITONBACKEND_Output& value = state->value;
    if (!value.has_buffer) {
      return invalid(
          "state '" + value.name + "' has no buffer to be updated from: TRITONBACKEND_StateBuffer makes one");
    }
    const uint64_t expected = byte_size_of(value);
    if (TRITONSERVER_DataTypeByteSize(value.datatype) != 0 && value.byte_size != expected) {
      return invalid(
          "state '" + value.name + "' has a buffer of " + std::to_string(value.byte_size) +
          " bytes, expected " + std::to_string(expected) + " for " +
          TRITONSERVER_DataTypeString(value.datatype) + " of shape " + text_of(value.shape));
    }
    auto carrier = std::make_unique<TRITONBACKEND_Response>(nullptr);
    TRITONBACKEND_Output& sent = carrier->outputs.emplace_back();
    sent.name = value.name;
    sent.datatype = value.datatype;
    sent.shape = value.shape;
    sent.byte_size = value.byte_size;
    sent.data = value.data;
    value.data = nullptr;
    value.has_buffer = false;
    state->reply->update(std::move(carrier));
    return nullptr;
  });
}
