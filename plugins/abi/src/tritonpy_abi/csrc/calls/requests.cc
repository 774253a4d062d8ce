// Requests that a backend makes to other models.

#include <algorithm>
#include <limits>
#include <utility>

#include "calls/objects.h"
#include "guard.h"

using tritonpy::guarded;
using tritonpy::invalid;
using tritonpy::Question;
using tritonpy::RequestInput;

namespace {

constexpr size_t kLongestCorrelationId = 128;

std::string label(const TRITONSERVER_InferenceRequest* request) {
  return "[request id: " + (request->id.empty() ? "<id_unknown>" : request->id) + "] ";
}

// Changes a request, unless the server has it.
template <typename Change>
TRITONSERVER_Error* change(const char* function, TRITONSERVER_InferenceRequest* request, Change&& change) {
  if (auto* missing = tritonpy::require(request, function, "request")) {
    return missing;
  }
  return guarded(function, [&]() -> TRITONSERVER_Error* {
    const std::lock_guard<std::mutex> lock(request->mutex);
    if (request->flight != nullptr) {
      return invalid(
          label(request) + function + ": the server has the request, until its release callback is called");
    }
    return change();
  });
}

TRITONSERVER_Error* find(
    TRITONSERVER_InferenceRequest* request, const char* name, RequestInput** input) {
  for (RequestInput& each : request->inputs) {
    if (each.name == name) {
      *input = &each;
      return nullptr;
    }
  }
  return invalid(label(request) + "input '" + name + "' does not exist in request");
}

TRITONSERVER_Error* append(
    TRITONSERVER_InferenceRequest* request, const char* name, const void* base, size_t byte_size,
    TRITONSERVER_MemoryType memory_type) {
  if (memory_type == TRITONSERVER_MEMORY_GPU) {
    const std::string text =
        label(request) + "input '" + name + "' lies in memory of a GPU; expected memory of the CPU";
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, text.c_str());
  }
  RequestInput* input;
  if (auto* error = find(request, name, &input)) {
    return error;
  }
  if (byte_size != 0) {
    input->parts.push_back({base, byte_size});
  }
  return nullptr;
}

template <typename Value>
TRITONSERVER_Error* set_parameter(
    const char* function, TRITONSERVER_InferenceRequest* request, const char* name,
    TRITONSERVER_ParameterType type, const Value* value) {
  if (auto* missing = tritonpy::require(name, function, "name")) {
    return missing;
  }
  return change(function, request, [&]() -> TRITONSERVER_Error* {
    request->parameters.emplace_back(name, type, value);
    return nullptr;
  });
}

}  // namespace

TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(
    TRITONSERVER_InferenceRequest** request, TRITONSERVER_Server* server, const char* model_name,
    const int64_t model_version) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(server);
  TRITONPY_REQUIRE(model_name);
  return guarded(__func__, [&]() -> TRITONSERVER_Error* {
    Question question;
    question.what = "model_version";
    question.model = model_name;
    question.version = model_version;
    if (auto* error = server->calls->ask(question)) {
      return error;
    }
    auto made = std::make_unique<TRITONSERVER_InferenceRequest>();
    made->server = server;
    made->model = model_name;
    made->version = model_version;
    made->actual_version = question.number;
    *request = made.release();
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(TRITONSERVER_InferenceRequest* request) {
  if (request == nullptr) {
    return nullptr;
  }
  if (auto* error = change(__func__, request, [] { return nullptr; })) {
    return error;
  }
  delete request;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestId(
    TRITONSERVER_InferenceRequest* request, const char** id) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(id);
  *id = request->id.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetId(
    TRITONSERVER_InferenceRequest* request, const char* id) {
  TRITONPY_REQUIRE(id);
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    request->id = id;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestFlags(
    TRITONSERVER_InferenceRequest* request, uint32_t* flags) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(flags);
  *flags = request->flags;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetFlags(
    TRITONSERVER_InferenceRequest* request, uint32_t flags) {
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    request->flags = flags;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationId(
    TRITONSERVER_InferenceRequest* request, uint64_t* correlation_id) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(correlation_id);
  if (request->has_correlation_text) {
    return invalid("given request's correlation id is not an unsigned int");
  }
  *correlation_id = request->correlation_number;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationIdString(
    TRITONSERVER_InferenceRequest* request, const char** correlation_id) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(correlation_id);
  if (!request->has_correlation_text) {
    return invalid("given request's correlation id is not a string");
  }
  *correlation_id = request->correlation_text.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetCorrelationId(
    TRITONSERVER_InferenceRequest* request, uint64_t correlation_id) {
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    request->has_correlation_text = false;
    request->correlation_number = correlation_id;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetCorrelationIdString(
    TRITONSERVER_InferenceRequest* request, const char* correlation_id) {
  TRITONPY_REQUIRE(correlation_id);
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    std::string text = correlation_id;
    if (text.size() > kLongestCorrelationId) {
      return TRITONSERVER_ErrorNew(
          TRITONSERVER_ERROR_UNSUPPORTED, "string correlation ID cannot be longer than 128 characters");
    }
    request->has_correlation_text = true;
    request->correlation_text = std::move(text);
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestPriority(
    TRITONSERVER_InferenceRequest* request, uint32_t* priority) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(priority);
  if (request->priority > std::numeric_limits<uint32_t>::max()) {
    return invalid(
        "request priority overflows uint32_t, use TRITONSERVER_InferenceRequestPriorityUInt64, priority=" +
        std::to_string(request->priority));
  }
  *priority = static_cast<uint32_t>(request->priority);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestPriorityUInt64(
    TRITONSERVER_InferenceRequest* request, uint64_t* priority) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(priority);
  *priority = request->priority;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetPriority(
    TRITONSERVER_InferenceRequest* request, uint32_t priority) {
  return TRITONSERVER_InferenceRequestSetPriorityUInt64(request, priority);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetPriorityUInt64(
    TRITONSERVER_InferenceRequest* request, uint64_t priority) {
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    request->priority = priority;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest* request, uint64_t* timeout_us) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(timeout_us);
  *timeout_us = request->timeout_us;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(
    TRITONSERVER_InferenceRequest* request, uint64_t timeout_us) {
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    request->timeout_us = timeout_us;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(
    TRITONSERVER_InferenceRequest* request, const char* name, const TRITONSERVER_DataType datatype,
    const int64_t* shape, uint64_t dim_count) {
  TRITONPY_REQUIRE(name);
  if (dim_count != 0) {
    TRITONPY_REQUIRE(shape);
  }
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    if (datatype < TRITONSERVER_TYPE_BOOL || datatype > TRITONSERVER_TYPE_BF16) {
      return invalid(
          label(request) + "input '" + name +
          "' has no datatype: " + std::to_string(static_cast<int>(datatype)));
    }
    for (const RequestInput& each : request->inputs) {
      if (each.name == name) {
        return invalid(label(request) + "input '" + name + "' already exists in request");
      }
    }
    request->inputs.push_back({name, datatype, std::vector<int64_t>(shape, shape + dim_count), {}});
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRawInput(
    TRITONSERVER_InferenceRequest* request, const char* name) {
  TRITONPY_REQUIRE(name);
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    if (!request->inputs.empty()) {
      return invalid(
          label(request) + "raw input '" + name + "' can't be added to request with other inputs");
    }
    request->inputs.push_back({name, TRITONSERVER_TYPE_INVALID, {}, {}});
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveInput(
    TRITONSERVER_InferenceRequest* request, const char* name) {
  TRITONPY_REQUIRE(name);
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    for (auto each = request->inputs.begin(); each != request->inputs.end(); ++each) {
      if (each->name == name) {
        request->inputs.erase(each);
        return nullptr;
      }
    }
    RequestInput* missing;
    return find(request, name, &missing);
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputs(TRITONSERVER_InferenceRequest* request) {
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    request->inputs.clear();
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest* request, const char* name, const void* base, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t) {
  TRITONPY_REQUIRE(name);
  if (byte_size != 0) {
    TRITONPY_REQUIRE(base);
  }
  return change(__func__, request, [&] { return append(request, name, base, byte_size, memory_type); });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    TRITONSERVER_InferenceRequest* request, const char* name, const void* base, size_t byte_size,
    TRITONSERVER_MemoryType, int64_t, const char* host_policy_name) {
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(host_policy_name);
  if (byte_size != 0) {
    TRITONPY_REQUIRE(base);
  }
  return change(__func__, request, [&] {
    RequestInput* input;
    return find(request, name, &input);  // for one policy: instances have what is for all
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    TRITONSERVER_InferenceRequest* request, const char* name, const void* base,
    TRITONSERVER_BufferAttributes* buffer_attributes) {
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(buffer_attributes);
  if (buffer_attributes->byte_size != 0) {
    TRITONPY_REQUIRE(base);
  }
  return change(__func__, request, [&] {
    return append(request, name, base, buffer_attributes->byte_size, buffer_attributes->memory_type);
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputData(
    TRITONSERVER_InferenceRequest* request, const char* name) {
  TRITONPY_REQUIRE(name);
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    RequestInput* input;
    if (auto* error = find(request, name, &input)) {
      return error;
    }
    input->parts.clear();
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRequestedOutput(
    TRITONSERVER_InferenceRequest* request, const char* name) {
  TRITONPY_REQUIRE(name);
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    auto& outputs = request->outputs;
    if (std::find(outputs.begin(), outputs.end(), name) == outputs.end()) {
      outputs.emplace_back(name);
    }
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    TRITONSERVER_InferenceRequest* request, const char* name) {
  TRITONPY_REQUIRE(name);
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    auto& outputs = request->outputs;
    outputs.erase(std::remove(outputs.begin(), outputs.end(), name), outputs.end());
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    TRITONSERVER_InferenceRequest* request) {
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    request->outputs.clear();
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetStringParameter(
    TRITONSERVER_InferenceRequest* request, const char* name, const char* value) {
  TRITONPY_REQUIRE(value);
  return set_parameter(__func__, request, name, TRITONSERVER_PARAMETER_STRING, value);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetIntParameter(
    TRITONSERVER_InferenceRequest* request, const char* name, const int64_t value) {
  return set_parameter(__func__, request, name, TRITONSERVER_PARAMETER_INT, &value);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetBoolParameter(
    TRITONSERVER_InferenceRequest* request, const char* name, const bool value) {
  return set_parameter(__func__, request, name, TRITONSERVER_PARAMETER_BOOL, &value);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetDoubleParameter(
    TRITONSERVER_InferenceRequest* request, const char* name, const double value) {
  return set_parameter(__func__, request, name, TRITONSERVER_PARAMETER_DOUBLE, &value);
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_InferenceRequestReleaseFn_t release_fn,
    void* release_userp) {
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    request->release = release_fn;
    request->release_userp = release_userp;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_ResponseAllocator* allocator, void* allocator_userp,
    TRITONSERVER_InferenceResponseCompleteFn_t response_fn, void* response_userp) {
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    request->allocator = allocator;
    request->allocator_userp = allocator_userp;
    request->complete = response_fn;
    request->complete_userp = response_userp;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerInferAsync(
    TRITONSERVER_Server* server, TRITONSERVER_InferenceRequest* request, TRITONSERVER_InferenceTrace*) {
  TRITONPY_REQUIRE(server);
  return change(__func__, request, [&]() -> TRITONSERVER_Error* {
    if (request->release == nullptr || request->complete == nullptr || request->allocator == nullptr) {
      return invalid(
          label(request) +
          "TRITONSERVER_ServerInferAsync: the request needs a release callback, a response callback and a "
          "response allocator");
    }
    const auto flight = std::make_shared<tritonpy::Flight>(request, server->calls);
    request->flight = flight;
    request->was_sent = true;
    request->is_cancelled = false;
    if (auto* error = server->calls->infer(flight)) {
      request->flight.reset();
      return error;
    }
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCancel(TRITONSERVER_InferenceRequest* request) {
  TRITONPY_REQUIRE(request);
  const std::lock_guard<std::mutex> lock(request->mutex);
  if (!request->was_sent) {
    return TRITONSERVER_ErrorNew(
        TRITONSERVER_ERROR_INTERNAL,
        "It is not possible to cancel an inference request before calling TRITONSERVER_InferAsync.");
  }
  request->is_cancelled = true;
  if (request->flight != nullptr) {
    request->server->calls->cancel(request->flight->tag);
  }
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestIsCancelled(
    TRITONSERVER_InferenceRequest* request, bool* is_cancelled) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(is_cancelled);
  const std::lock_guard<std::mutex> lock(request->mutex);
  if (!request->was_sent) {
    return TRITONSERVER_ErrorNew(
        TRITONSERVER_ERROR_INTERNAL,
        "It is not possible to query cancellation status before calling TRITONSERVER_InferAsync.");
  }
  *is_cancelled = request->is_cancelled;
  return nullptr;
}
