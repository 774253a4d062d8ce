#include <new>

#include "batching/objects.h"
#include "guard.h"

namespace {

constexpr uint32_t kConfigVersion = 1;

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model, const char** name) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(name);
  *name = model->name.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(version);
  *version = model->version;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelRepository(
    TRITONBACKEND_Model* model, TRITONBACKEND_ArtifactType* type, const char** location) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(type);
  TRITONPY_REQUIRE(location);
  *type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = model->location.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelConfig(
    TRITONBACKEND_Model* model, uint32_t config_version, TRITONSERVER_Message** config) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(config);
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    if (config_version != kConfigVersion) {
      return tritonpy::invalid(
          "model configuration version " + std::to_string(config_version) +
          " not supported, supported versions are: " + std::to_string(kConfigVersion));
    }
    *config = new TRITONSERVER_Message{model->config};
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(
    TRITONBACKEND_Model* model, bool* auto_complete_config) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(auto_complete_config);
  *auto_complete_config = model->completes_config;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBackend(TRITONBACKEND_Model* model, TRITONBACKEND_Backend** backend) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(backend);
  *backend = model->backend;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(state);
  *state = model->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  TRITONPY_REQUIRE(model);
  model->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendName(TRITONBACKEND_Backend* backend, const char** name) {
  TRITONPY_REQUIRE(backend);
  TRITONPY_REQUIRE(name);
  *name = backend->name.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendConfig(
    TRITONBACKEND_Backend* backend, TRITONSERVER_Message** config) {
  TRITONPY_REQUIRE(backend);
  TRITONPY_REQUIRE(config);
  *config = &backend->config;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendExecutionPolicy(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_ExecutionPolicy* policy) {
  TRITONPY_REQUIRE(backend);
  TRITONPY_REQUIRE(policy);
  *policy = backend->execution_policy;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendArtifacts(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_ArtifactType* type, const char** location) {
  TRITONPY_REQUIRE(backend);
  TRITONPY_REQUIRE(type);
  TRITONPY_REQUIRE(location);
  *type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = backend->location.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendState(TRITONBACKEND_Backend* backend, void** state) {
  TRITONPY_REQUIRE(backend);
  TRITONPY_REQUIRE(state);
  *state = backend->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend* backend, void* state) {
  TRITONPY_REQUIRE(backend);
  backend->state = state;
  return nullptr;
}
