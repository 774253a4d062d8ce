/* An agent with several models, each loaded and unloaded by a thread of its own. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static TRITONSERVER_Error *act(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, TRITONREPOAGENT_ActionType action) {
  return TRITONPY_AgentModelAction(function_of("TRITONREPOAGENT_ModelAction"), agent, model, action);
}

static TRITONREPOAGENT_AgentModel *make_model(
    TRITONREPOAGENT_Agent *agent, const char *room, const char *value) {
  TRITONREPOAGENT_AgentModel *model;
  OK(TRITONPY_AgentModelNew(&model, "/models/m", "{}", room, "there is no room"));
  OK(TRITONPY_AgentModelAddParameter(model, "first", "value"));
  OK(TRITONPY_AgentModelAddParameter(model, "second", value));
  OK(TRITONPY_AgentModelCall(
      function_of("TRITONREPOAGENT_ModelInitialize"), "TRITONREPOAGENT_ModelInitialize", agent, model));
  return model;
}

static void end_model(TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model) {
  OK(TRITONPY_AgentModelCall(
      function_of("TRITONREPOAGENT_ModelFinalize"), "TRITONREPOAGENT_ModelFinalize", agent, model));
  TRITONPY_AgentModelDelete(model);
}

static void drive_model(int number, void *argument) {
  TRITONREPOAGENT_Agent *agent = argument;
  (void)number;
  for (int round = 0; round < 10; ++round) {
    char room[] = "/tmp/driver-XXXXXX";
    CHECK(mkdtemp(room) != NULL);
    TRITONREPOAGENT_AgentModel *model = make_model(agent, room, "another value");
    CHECK(strcmp(TRITONPY_AgentModelLocation(model), "/models/m") == 0);
    OK(act(agent, model, TRITONREPOAGENT_ACTION_LOAD));
    CHECK(strncmp(TRITONPY_AgentModelLocation(model), room, strlen(room)) == 0);
    CHECK(access(TRITONPY_AgentModelLocation(model), W_OK) == 0);
    OK(act(agent, model, TRITONREPOAGENT_ACTION_LOAD_COMPLETE));
    OK(act(agent, model, TRITONREPOAGENT_ACTION_UNLOAD));
    OK(act(agent, model, TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE));
    CHECK(access(TRITONPY_AgentModelLocation(model), F_OK) != 0);
    end_model(agent, model);
    CHECK(rmdir(room) == 0);
  }
}

static void drive_fault(TRITONREPOAGENT_Agent *agent, const char *value, int code, const char *words) {
  TRITONREPOAGENT_AgentModel *model = make_model(agent, NULL, value);
  FAILS(code, words, act(agent, model, TRITONREPOAGENT_ACTION_LOAD));
  end_model(agent, model);
}

void drive_agents(void) {
  TRITONREPOAGENT_Agent *agent = TRITONPY_Agent();
  TRITONPY_AgentPrintLines();
  OK(TRITONPY_AgentCall(function_of("TRITONREPOAGENT_Initialize"), "TRITONREPOAGENT_Initialize", agent));
  on_threads(drive_model, agent);
  drive_fault(agent, "fail", TRITONSERVER_ERROR_UNAVAILABLE, "told to fail");
  drive_fault(agent, "throw", TRITONSERVER_ERROR_INTERNAL, "thrown by the plugin");
  drive_fault(agent, "throw an integer", TRITONSERVER_ERROR_INTERNAL, "no std::exception");
  drive_fault(agent, "value", TRITONSERVER_ERROR_INTERNAL, "there is no room");
  OK(TRITONPY_AgentCall(function_of("TRITONREPOAGENT_Finalize"), "TRITONREPOAGENT_Finalize", agent));
}
