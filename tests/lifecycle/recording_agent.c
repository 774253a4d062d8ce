/* A repository agent for a real tritonserver: writes down what it is told, and does what its parameters say. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Error Error;
typedef struct Agent Agent;
typedef struct Model Model;

Error* TRITONSERVER_ErrorNew(int code, const char* message);
const char* TRITONSERVER_ErrorMessage(Error* error);
Error* TRITONREPOAGENT_ModelRepositoryLocation(Agent*, Model*, int* type, const char** location);
Error* TRITONREPOAGENT_ModelRepositoryLocationAcquire(Agent*, Model*, int type, const char** location);
Error* TRITONREPOAGENT_ModelRepositoryUpdate(Agent*, Model*, int type, const char* location);
Error* TRITONREPOAGENT_ModelParameterCount(Agent*, Model*, uint32_t* count);
Error* TRITONREPOAGENT_ModelParameter(Agent*, Model*, uint32_t, const char** name, const char** value);

enum { INVALID_ARG = 3, FILESYSTEM = 0, LOAD = 0 };

static const char* ACTIONS[] = {"LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE"};

static void note(const char* what) {
  FILE* log = fopen(getenv("AGENTS_LOG"), "a");
  fprintf(log, "%s %s\n", NAME, what);
  fclose(log);
}

static int has(Agent* agent, Model* model, const char* wanted, const char* value_wanted) {
  uint32_t count = 0;
  const char *name, *value;
  TRITONREPOAGENT_ModelParameterCount(agent, model, &count);
  for (uint32_t i = 0; i < count; ++i) {
    TRITONREPOAGENT_ModelParameter(agent, model, i, &name, &value);
    if (!strcmp(name, wanted) && !strcmp(value, value_wanted)) return 1;
  }
  return 0;
}

Error* TRITONREPOAGENT_ModelAction(Agent* agent, Model* model, int action) {
  note(ACTIONS[action]);
  if (has(agent, model, "raise_in", ACTIONS[action]))
    return TRITONSERVER_ErrorNew(INVALID_ARG, "does not like it");
  if (has(agent, model, "hand_over_in", ACTIONS[action])) {
    int type;
    const char *location, *copy;
    char command[4096];
    TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &location);
    TRITONREPOAGENT_ModelRepositoryLocationAcquire(agent, model, FILESYSTEM, &copy);
    snprintf(command, sizeof command, "cp -r %s/. %s && sed -i 's/ADDED = 1$/ADDED = 7/' %s/1/model.py",
             location, copy, copy);
    if (system(command)) return TRITONSERVER_ErrorNew(INVALID_ARG, "cannot copy");
    Error* refusal = TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, FILESYSTEM, copy);
    if (refusal) note(TRITONSERVER_ErrorMessage(refusal));
  }
  return NULL;
}
