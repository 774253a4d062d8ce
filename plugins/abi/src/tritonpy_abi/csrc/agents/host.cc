#include <cstdio>

#include "agents/model.h"
#include "guard.h"

void TRITONPY_AgentPrintLines(void) { std::setvbuf(stdout, nullptr, _IOLBF, 0); }

TRITONREPOAGENT_Agent* TRITONPY_Agent(void) {
  static TRITONREPOAGENT_Agent agent;
  return &agent;
}

TRITONSERVER_Error* TRITONPY_AgentModelNew(
    TRITONREPOAGENT_AgentModel** model, const char* location, const char* config, const char* room,
    const char* why_no_room) {
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    *model = new TRITONREPOAGENT_AgentModel(location, config, room, why_no_room);
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONPY_AgentModelAddParameter(
    TRITONREPOAGENT_AgentModel* model, const char* name, const char* value) {
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    model->parameters.emplace_back(name, value);
    return nullptr;
  });
}

void TRITONPY_AgentModelDelete(TRITONREPOAGENT_AgentModel* model) { delete model; }

const char* TRITONPY_AgentModelLocation(TRITONREPOAGENT_AgentModel* model) {
  TRITONREPOAGENT_ArtifactType type;
  return model->location(&type);
}

TRITONSERVER_Error* TRITONPY_AgentCall(void* function, const char* name, TRITONREPOAGENT_Agent* agent) {
  const auto call = reinterpret_cast<decltype(&TRITONREPOAGENT_Initialize)>(function);
  return tritonpy::guarded(name, [&] { return call(agent); });
}

TRITONSERVER_Error* TRITONPY_AgentModelCall(
    void* function, const char* name, TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model) {
  const auto call = reinterpret_cast<decltype(&TRITONREPOAGENT_ModelInitialize)>(function);
  return tritonpy::guarded(name, [&] { return call(agent, model); });
}

TRITONSERVER_Error* TRITONPY_AgentModelAction(
    void* function, TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model, int action) {
  const auto call = reinterpret_cast<decltype(&TRITONREPOAGENT_ModelAction)>(function);
  const auto type = static_cast<TRITONREPOAGENT_ActionType>(action);
  model->begin(type);
  return tritonpy::guarded("TRITONREPOAGENT_ModelAction", [&] { return call(agent, model, type); });
}
