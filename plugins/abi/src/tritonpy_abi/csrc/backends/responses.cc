// Requests that are executed, and what is answered to them.

#include <cstdlib>
#include <new>

#include "backends/objects.h"
#include "guard.h"

using tritonpy::ReplyHold;

namespace {

// The error of a request that no backend has (any more), or nullptr.
TRITONSERVER_Error* not_executed(const TRITONBACKEND_Request* request, const char* function) {
  if (__atomic_load_n(&request->reply, __ATOMIC_ACQUIRE) != nullptr) {
    return nullptr;
  }
  return tritonpy::invalid(
      std::string(function) + ": the request is not being executed, or was released before");
}

template <typename Value>
TRITONSERVER_Error* add_parameter(
    const char* function, TRITONBACKEND_Response* response, const char* name, TRITONSERVER_ParameterType type,
    const Value* value) {
  return tritonpy::guarded(function, [&]() -> TRITONSERVER_Error* {
    for (auto& parameter : response->parameters) {
      if (parameter.name == name) {
        parameter = TRITONSERVER_Parameter(name, type, value);
        return nullptr;
      }
    }
    response->parameters.emplace_back(name, type, value);
    return nullptr;
  });
}

}  // namespace

TRITONBACKEND_Output::~TRITONBACKEND_Output() {
  if (data != nullptr && block.data != nullptr) {
    tritonpy::return_block(block);
  } else {
    std::free(data);
  }
}

TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request, uint32_t release_flags) {
  TRITONPY_REQUIRE(request);
  if (auto* error = not_executed(request, __func__)) {
    return error;
  }
  const bool is_again = release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE;
  if (!is_again && release_flags != TRITONSERVER_REQUEST_RELEASE_ALL) {
    return tritonpy::invalid(
        "TRITONBACKEND_RequestRelease: unknown release flags " + std::to_string(release_flags));
  }
  // Of threads that release it at the same time the first one does.
  void* const held = __atomic_exchange_n(&request->reply, nullptr, __ATOMIC_ACQ_REL);
  const std::unique_ptr<ReplyHold> hold(static_cast<ReplyHold*>(held));
  if (hold == nullptr) {
    return not_executed(request, __func__);
  }
  if (request->has_scratch) {
    tritonpy::clear_scratch(request);
  }
  // From here on the block may be gone.
  if (is_again) {
    (*hold)->reschedule();
  } else {
    (*hold)->released();
  }
  return nullptr;
}

// A request that is cancelled leaves the queue at once: no strategy is asked for it any more.
TRITONSERVER_Error* TRITONBACKEND_RequestIsCancelled(TRITONBACKEND_Request* request, bool* is_cancelled) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(is_cancelled);
  *is_cancelled = request->reply != nullptr && (*tritonpy::reply_of(request))->is_cancelled();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestOutputBufferProperties(
    TRITONBACKEND_Request* request, const char* name, size_t*, TRITONSERVER_MemoryType* memory_type,
    int64_t* memory_type_id) {
  TRITONPY_REQUIRE(request);
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(memory_type);
  TRITONPY_REQUIRE(memory_type_id);
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNew(
    TRITONBACKEND_Response** response, TRITONBACKEND_Request* request) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(request);
  if (auto* error = not_executed(request, __func__)) {
    return error;
  }
  *response = new TRITONBACKEND_Response(*tritonpy::reply_of(request));
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(
    TRITONBACKEND_ResponseFactory** factory, TRITONBACKEND_Request* request) {
  TRITONPY_REQUIRE(factory);
  TRITONPY_REQUIRE(request);
  if (auto* error = not_executed(request, __func__)) {
    return error;
  }
  *factory = new TRITONBACKEND_ResponseFactory{*tritonpy::reply_of(request)};
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryDelete(TRITONBACKEND_ResponseFactory* factory) {
  delete factory;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(
    TRITONBACKEND_Response** response, TRITONBACKEND_ResponseFactory* factory) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(factory);
  *response = new TRITONBACKEND_Response(factory->reply);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(
    TRITONBACKEND_ResponseFactory* factory, const uint32_t send_flags) {
  TRITONPY_REQUIRE(factory);
  if ((send_flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) == 0) {
    return nullptr;
  }
  std::unique_ptr<TRITONBACKEND_Response> nothing;
  return factory->reply->send(nothing, true);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryIsCancelled(
    TRITONBACKEND_ResponseFactory* factory, bool* is_cancelled) {
  TRITONPY_REQUIRE(factory);
  TRITONPY_REQUIRE(is_cancelled);
  *is_cancelled = factory->reply->is_cancelled();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetStringParameter(
    TRITONBACKEND_Response* response, const char* name, const char* value) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(value);
  return add_parameter(__func__, response, name, TRITONSERVER_PARAMETER_STRING, value);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetIntParameter(
    TRITONBACKEND_Response* response, const char* name, const int64_t value) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(name);
  return add_parameter(__func__, response, name, TRITONSERVER_PARAMETER_INT, &value);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetBoolParameter(
    TRITONBACKEND_Response* response, const char* name, const bool value) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(name);
  return add_parameter(__func__, response, name, TRITONSERVER_PARAMETER_BOOL, &value);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSetDoubleParameter(
    TRITONBACKEND_Response* response, const char* name, const double value) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(name);
  return add_parameter(__func__, response, name, TRITONSERVER_PARAMETER_DOUBLE, &value);
}

TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(
    TRITONBACKEND_Response* response, TRITONBACKEND_Output** output, const char* name,
    const TRITONSERVER_DataType datatype, const int64_t* shape, const uint32_t dim_count) {
  TRITONPY_REQUIRE(response);
  TRITONPY_REQUIRE(output);
  TRITONPY_REQUIRE(name);
  if (dim_count != 0) {
    TRITONPY_REQUIRE(shape);
  }
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    if (TRITONSERVER_StringToDataType(TRITONSERVER_DataTypeString(datatype)) != datatype ||
        datatype == TRITONSERVER_TYPE_INVALID) {
      return tritonpy::invalid(
          "output '" + std::string(name) + "' has no datatype: " + std::to_string(static_cast<int>(datatype)));
    }
    std::vector<int64_t> dims(shape, shape + dim_count);
    for (const int64_t dim : dims) {
      if (dim < 0) {
        return tritonpy::invalid(
            "output '" + std::string(name) + "' has a dimension of " + std::to_string(dim) +
            ", and expected is 0 or more");
      }
    }
    TRITONBACKEND_Output& made = response->outputs.emplace_back();
    made.name = name;
    made.datatype = datatype;
    made.shape = std::move(dims);
    *output = &made;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONBACKEND_ResponseSend(
    TRITONBACKEND_Response* response, const uint32_t send_flags, TRITONSERVER_Error* error) {
  TRITONPY_REQUIRE(response);
  std::unique_ptr<TRITONBACKEND_Response> sent(response);
  if (error != nullptr) {
    sent->has_error = true;
    sent->error_code = static_cast<int>(TRITONSERVER_ErrorCode(error));
    sent->error = TRITONSERVER_ErrorMessage(error);
  }
  // Held until the end of this call: when nobody holds it, no response follows.
  const ReplyHold reply = std::move(sent->reply);
  TRITONSERVER_Error* refusal = reply->send(sent, (send_flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0);
  if (refusal != nullptr) {
    sent->reply = reply;
    sent.release();  // the caller's, to be deleted
  }
  return refusal;
}

TRITONSERVER_Error* TRITONBACKEND_ResponseDelete(TRITONBACKEND_Response* response) {
  delete response;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(
    TRITONBACKEND_Output* output, void** buffer, const uint64_t byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) {
  TRITONPY_REQUIRE(output);
  TRITONPY_REQUIRE(buffer);
  TRITONPY_REQUIRE(memory_type);
  TRITONPY_REQUIRE(memory_type_id);
  *buffer = nullptr;
  if (output->has_buffer) {
    return TRITONSERVER_ErrorNew(
        TRITONSERVER_ERROR_ALREADY_EXISTS, ("allocated buffer for output '" + output->name + "' already exists").c_str());
  }
  if (byte_size != 0) {
    output->block = tritonpy::take_block(byte_size);
    output->data = output->block.data != nullptr ? output->block.data : std::malloc(byte_size);
    if (output->data == nullptr) {
      const std::string text =
          "cannot allocate " + std::to_string(byte_size) + " bytes for output '" + output->name + "'";
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, text.c_str());
    }
  }
  output->has_buffer = true;
  output->byte_size = output->attributes.byte_size = byte_size;
  *buffer = output->data;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_OutputBufferAttributes(
    TRITONBACKEND_Output* output, TRITONSERVER_BufferAttributes** attributes) {
  TRITONPY_REQUIRE(output);
  TRITONPY_REQUIRE(attributes);
  *attributes = &output->attributes;
  return nullptr;
}
