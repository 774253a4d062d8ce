// The functions of repo_agent.h that a server offers.

#include "agents/model.h"
#include "guard.h"

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocation(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model, TRITONREPOAGENT_ArtifactType* type,
    const char** location) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(type);
  TRITONPY_REQUIRE(location);
  *location = model->location(type);
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model, TRITONREPOAGENT_ArtifactType type,
    const char** location) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(location);
  if (type != TRITONREPOAGENT_ARTIFACT_FILESYSTEM) {
    return tritonpy::invalid("Unexpected artifact type, expects 'TRITONREPOAGENT_ARTIFACT_FILESYSTEM'");
  }
  return tritonpy::guarded(__func__, [&] { return model->acquire(location); });
}

// There is one acquired location at most, and it is meant, whatever the caller calls it.
TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryLocationRelease(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model, const char*) {
  TRITONPY_REQUIRE(model);
  return tritonpy::guarded(__func__, [&] { return model->release(); });
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelRepositoryUpdate(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model, TRITONREPOAGENT_ArtifactType type,
    const char* location) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(location);
  return tritonpy::guarded(__func__, [&] { return model->update(type, location); });
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelParameterCount(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model, uint32_t* count) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(count);
  *count = static_cast<uint32_t>(model->parameters.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelParameter(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model, uint32_t index, const char** name,
    const char** value) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(value);
  if (index >= model->parameters.size()) {
    return tritonpy::invalid("index out of range for model parameters");
  }
  *name = model->parameters[index].first.c_str();
  *value = model->parameters[index].second.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelConfig(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model, uint32_t config_version,
    TRITONSERVER_Message** config) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(config);
  if (config_version != 1) {
    return tritonpy::invalid(
        "model configuration version " + std::to_string(config_version) +
        " not supported, supported versions are: 1");
  }
  return TRITONSERVER_MessageNewFromSerializedJson(config, model->config.data(), model->config.size());
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelState(TRITONREPOAGENT_AgentModel* model, void** state) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(state);
  *state = model->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelSetState(TRITONREPOAGENT_AgentModel* model, void* state) {
  TRITONPY_REQUIRE(model);
  model->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_State(TRITONREPOAGENT_Agent* agent, void** state) {
  TRITONPY_REQUIRE(agent);
  TRITONPY_REQUIRE(state);
  *state = agent->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_SetState(TRITONREPOAGENT_Agent* agent, void* state) {
  TRITONPY_REQUIRE(agent);
  agent->state = state;
  return nullptr;
}
