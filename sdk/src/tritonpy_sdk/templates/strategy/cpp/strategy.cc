// The batching strategy xyz: requests of different tenants never share a batch.
//
// A client says whom it asks for in a parameter of its request; a model may call that parameter otherwise:
//   parameters { key: "TENANT_PARAMETER" value { string_value: "customer" } }
#include <exception>
#include <optional>
#include <string>

#include "tritonpy/batching.h"
#include "tritonpy/parameters.h"

using Error = TRITONSERVER_Error *;

// What this strategy knows of a model. Calls for one model never overlap: nothing here needs a lock.
struct TRITONBACKEND_Batcher {
  std::string parameter;
};

// One attempt at a batch: the name of the parameter, and what its first request says there.
struct Attempt {
  const std::string &parameter;
  std::optional<std::string> tenant;
};

// Exceptions must not leave through a C function: this makes errors of them.
template <typename Body>
static Error guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::exception &exception) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, exception.what());
  }
}

// Once, while a model is loaded. An error is the reason for which it does not load.
Error TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  return guarded([&]() -> Error {
    char name[64] = "tenant";
    if (Error error = tritonpy_model_parameter(model, "TENANT_PARAMETER", name, sizeof name)) return error;
    *batcher = new TRITONBACKEND_Batcher{name};
    return nullptr;
  });
}

// Once, when the model is unloaded.
Error TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  delete batcher;
  return nullptr;
}

// An attempt begins, often for requests that an attempt before has seen.
Error TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  return guarded([&]() -> Error {
    *userp = new Attempt{batcher->parameter, std::nullopt};
    return nullptr;
  });
}

// May the request join? A no closes the batch. Whoever says nothing is a tenant too, called "".
Error TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  return guarded([&]() -> Error {
    auto &attempt = *static_cast<Attempt *>(userp);
    TRITONSERVER_ParameterType type;
    const void *value;
    const char *const parameter = attempt.parameter.c_str();
    if (Error error = tritonpy_request_parameter(request, parameter, &type, &value)) return error;
    const bool is_text = value != nullptr && type == TRITONSERVER_PARAMETER_STRING;
    const std::string tenant = is_text ? static_cast<const char *>(value) : "";
    if (!attempt.tenant) attempt.tenant = tenant;
    *should_include = *attempt.tenant == tenant;
    return nullptr;
  });
}

// The batch has left, or the attempt is given up.
Error TRITONBACKEND_ModelBatchFinalize(void *userp) {
  delete static_cast<Attempt *>(userp);
  return nullptr;
}
