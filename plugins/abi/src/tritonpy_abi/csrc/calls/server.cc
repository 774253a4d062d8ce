// Questions of a backend about the server and its models.

#include <utility>

#include "batching/objects.h"
#include "calls/objects.h"
#include "guard.h"

using tritonpy::guarded;
using tritonpy::Question;

namespace {

constexpr uint32_t kConfigVersion = 1;

// What asks as part of a batching strategy would hold up the server's loop, which has the answers.
TRITONSERVER_Server* unasked_server() {
  static TRITONSERVER_Server* const server = [] {
    auto* made = new TRITONSERVER_Server;
    made->calls->stop(TRITONSERVER_ERROR_UNSUPPORTED, "a batching strategy cannot ask the server");
    return made;
  }();
  return server;
}

// Asks about a model, or about nothing where there is no name.
Question about(const char* what, const char* model = "", int64_t version = -1) {
  Question question;
  question.what = what;
  question.model = model;
  question.version = version;
  return question;
}

// An error where an argument is NULL.
TRITONSERVER_Error* missing_one(const char* function, const void* server, const void* answer) {
  auto* missing = tritonpy::require(server, function, "server");
  return missing != nullptr ? missing : tritonpy::require(answer, function, "the place of the answer");
}

// Gives the answer as a message.
TRITONSERVER_Error* answer(
    const char* function, TRITONSERVER_Server* server, Question question, TRITONSERVER_Message** message) {
  if (auto* missing = missing_one(function, server, message)) {
    return missing;
  }
  return guarded(function, [&]() -> TRITONSERVER_Error* {
    if (auto* error = server->calls->ask(question)) {
      return error;
    }
    *message = new TRITONSERVER_Message{std::move(question.text)};
    return nullptr;
  });
}

// Gives the answer as a number.
template <typename Number>
TRITONSERVER_Error* answer(
    const char* function, TRITONSERVER_Server* server, Question question, Number* number) {
  if (auto* missing = missing_one(function, server, number)) {
    return missing;
  }
  return guarded(function, [&]() -> TRITONSERVER_Error* {
    if (auto* error = server->calls->ask(question)) {
      return error;
    }
    *number = static_cast<Number>(question.number);
    return nullptr;
  });
}

// Has the server do something.
TRITONSERVER_Error* command(const char* function, TRITONSERVER_Server* server, Question question) {
  if (auto* missing = tritonpy::require(server, function, "server")) {
    return missing;
  }
  return guarded(function, [&] { return server->calls->ask(question); });
}

}  // namespace

struct TRITONSERVER_Metrics {
  TRITONSERVER_Server* server;
  std::string text;
};

TRITONSERVER_Error* TRITONBACKEND_ModelServer(TRITONBACKEND_Model* model, TRITONSERVER_Server** server) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(server);
  *server = model->server == nullptr ? unasked_server() : model->server;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerIsLive(TRITONSERVER_Server* server, bool* live) {
  return answer(__func__, server, about("is_live"), live);
}

TRITONSERVER_Error* TRITONSERVER_ServerIsReady(TRITONSERVER_Server* server, bool* ready) {
  return answer(__func__, server, about("is_ready"), ready);
}

TRITONSERVER_Error* TRITONSERVER_ServerModelIsReady(
    TRITONSERVER_Server* server, const char* model_name, const int64_t model_version, bool* ready) {
  TRITONPY_REQUIRE(model_name);
  return answer(__func__, server, about("model_ready", model_name, model_version), ready);
}

TRITONSERVER_Error* TRITONSERVER_ServerModelBatchProperties(
    TRITONSERVER_Server* server, const char* model_name, const int64_t model_version, uint32_t* flags,
    void** voidp) {
  TRITONPY_REQUIRE(model_name);
  if (voidp != nullptr) {
    *voidp = nullptr;
  }
  return answer(__func__, server, about("batch_properties", model_name, model_version), flags);
}

TRITONSERVER_Error* TRITONSERVER_ServerModelTransactionProperties(
    TRITONSERVER_Server* server, const char* model_name, const int64_t model_version, uint32_t* txn_flags,
    void** voidp) {
  TRITONPY_REQUIRE(model_name);
  if (voidp != nullptr) {
    *voidp = nullptr;
  }
  if (txn_flags != nullptr) {
    *txn_flags = 0;
  }
  return answer(__func__, server, about("transaction_properties", model_name, model_version), txn_flags);
}

TRITONSERVER_Error* TRITONSERVER_ServerMetadata(
    TRITONSERVER_Server* server, TRITONSERVER_Message** server_metadata) {
  return answer(__func__, server, about("metadata"), server_metadata);
}

TRITONSERVER_Error* TRITONSERVER_ServerModelMetadata(
    TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    TRITONSERVER_Message** model_metadata) {
  TRITONPY_REQUIRE(model_name);
  return answer(__func__, server, about("model_metadata", model_name, model_version), model_metadata);
}

TRITONSERVER_Error* TRITONSERVER_ServerModelStatistics(
    TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    TRITONSERVER_Message** model_stats) {
  TRITONPY_REQUIRE(model_name);
  return answer(__func__, server, about("model_statistics", model_name, model_version), model_stats);
}

TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(
    TRITONSERVER_Server* server, const char* model_name, const int64_t model_version,
    const uint32_t config_version, TRITONSERVER_Message** model_config) {
  TRITONPY_REQUIRE(model_name);
  if (config_version != kConfigVersion) {
    return tritonpy::invalid(
        "model configuration version " + std::to_string(config_version) +
        " not supported, supported versions are: " + std::to_string(kConfigVersion));
  }
  return answer(__func__, server, about("model_config", model_name, model_version), model_config);
}

TRITONSERVER_Error* TRITONSERVER_ServerModelIndex(
    TRITONSERVER_Server* server, uint32_t flags, TRITONSERVER_Message** model_index) {
  const bool ready_only = (flags & TRITONSERVER_INDEX_FLAG_READY) != 0;
  return answer(__func__, server, about(ready_only ? "ready_index" : "index"), model_index);
}

TRITONSERVER_Error* TRITONSERVER_ServerLoadModel(TRITONSERVER_Server* server, const char* model_name) {
  TRITONPY_REQUIRE(model_name);
  return command(__func__, server, about("load", model_name));
}

TRITONSERVER_Error* TRITONSERVER_ServerLoadModelWithParameters(
    TRITONSERVER_Server* server, const char* model_name, const TRITONSERVER_Parameter** parameters,
    const uint64_t parameter_count) {
  TRITONPY_REQUIRE(model_name);
  if (parameters == nullptr && parameter_count != 0) {
    return tritonpy::invalid("load parameters are not provided while parameter count is non-zero");
  }
  Question question = about("load", model_name);
  for (uint64_t index = 0; index < parameter_count; ++index) {
    if (parameters[index] == nullptr) {
      return tritonpy::invalid(
          std::string(__func__) + ": the parameter with the index " + std::to_string(index) + " is NULL");
    }
    const TRITONSERVER_Parameter& parameter = *parameters[index];
    question.tensors.push_back(
        {parameter.name.c_str(), nullptr, parameter.value(), parameter.byte_size(), 0, parameter.type});
  }
  return command(__func__, server, std::move(question));
}

TRITONSERVER_Error* TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server* server, const char* model_name) {
  TRITONPY_REQUIRE(model_name);
  return command(__func__, server, about("unload", model_name));
}

TRITONSERVER_Error* TRITONSERVER_ServerUnloadModelAndDependents(
    TRITONSERVER_Server* server, const char* model_name) {
  TRITONPY_REQUIRE(model_name);
  return command(__func__, server, about("unload_dependents", model_name));
}

TRITONSERVER_Error* TRITONSERVER_ServerMetrics(TRITONSERVER_Server* server, TRITONSERVER_Metrics** metrics) {
  TRITONPY_REQUIRE(server);
  TRITONPY_REQUIRE(metrics);
  *metrics = new TRITONSERVER_Metrics{server, ""};
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricsFormatted(
    TRITONSERVER_Metrics* metrics, TRITONSERVER_MetricFormat format, const char** base, size_t* byte_size) {
  TRITONPY_REQUIRE(metrics);
  TRITONPY_REQUIRE(base);
  TRITONPY_REQUIRE(byte_size);
  if (format != TRITONSERVER_METRIC_PROMETHEUS) {
    const std::string text = "unknown metrics format '" + std::to_string(static_cast<int>(format)) + "'";
    return tritonpy::invalid(text);
  }
  return guarded(__func__, [&]() -> TRITONSERVER_Error* {
    Question question = about("metrics");
    if (auto* error = metrics->server->calls->ask(question)) {
      return error;
    }
    metrics->text = std::move(question.text);
    *base = metrics->text.c_str();
    *byte_size = metrics->text.size();
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricsDelete(TRITONSERVER_Metrics* metrics) {
  delete metrics;
  return nullptr;
}
