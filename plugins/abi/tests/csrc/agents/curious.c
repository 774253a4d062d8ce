/* Asks for all there is in every call it gets, and writes what it hears to the file that AGENTS_LOG names.
 *
 * The same questions to two servers give the same file where they answer alike: paths are left out. */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tritonpy/repo_agent.h"

#ifndef NAME
#define NAME "curious"
#endif

typedef TRITONSERVER_Error Error;
typedef TRITONREPOAGENT_Agent Agent;
typedef TRITONREPOAGENT_AgentModel Model;

static const char *const kActions[] = {"LOAD", "LOAD_COMPLETE", "LOAD_FAIL", "UNLOAD", "UNLOAD_COMPLETE"};

static void note(const char *format, ...) {
  FILE *log = fopen(getenv("AGENTS_LOG"), "a");
  va_list arguments;
  va_start(arguments, format);
  fprintf(log, "%s ", NAME);
  vfprintf(log, format, arguments);
  fprintf(log, "\n");
  va_end(arguments);
  fclose(log);
}

/* Whether a question was answered; writes down why not. */
static bool good(const char *question, Error *error) {
  if (error == NULL) {
    return true;
  }
  note("  %s: %s (%d): %s", question, TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorCode(error),
       TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return false;
}

static const char *what_is_at(const char *path) {
  struct stat found;
  char config[4096];
  if (stat(path, &found) != 0) {
    return "nothing";
  }
  snprintf(config, sizeof config, "%s/config.pbtxt", path);
  if (stat(config, &found) == 0) {
    return "a model";
  }
  snprintf(config, sizeof config, "%s/1", path);
  return stat(config, &found) == 0 ? "a model without a configuration" : "an empty directory";
}

static void ask_versions(void) {
  uint32_t to_major = 77, to_minor = 77;
  if (good("version", TRITONREPOAGENT_ApiVersion(&to_major, &to_minor))) {
    note("  version of agents %u.%u", to_major, to_minor);
  }
}

static void ask_states(Agent *agent, Model *model) {
  void *state = NULL;
  if (good("agent's state", TRITONREPOAGENT_State(agent, &state))) {
    note("  agent's state: %s", state == NULL ? "none" : (const char *)state);
  }
  if (model != NULL && good("model's state", TRITONREPOAGENT_ModelState(model, &state))) {
    note("  model's state: %s", state == NULL ? "none" : (const char *)state);
  }
}

static void ask_parameters(Agent *agent, Model *model) {
  uint32_t count = 77;
  const char *name = NULL, *value = NULL;
  if (!good("count", TRITONREPOAGENT_ModelParameterCount(agent, model, &count))) {
    return;
  }
  note("  %u parameters", count);
  for (uint32_t i = 0; i < count + 1; ++i) {
    if (good("parameter", TRITONREPOAGENT_ModelParameter(agent, model, i, &name, &value))) {
      note("  parameter %s=%s", name, value);
    }
  }
}

static bool has(Agent *agent, Model *model, const char *key, const char *wanted) {
  uint32_t count = 0;
  const char *name = NULL, *value = NULL;
  good("count", TRITONREPOAGENT_ModelParameterCount(agent, model, &count));
  for (uint32_t i = 0; i < count; ++i) {
    good("parameter", TRITONREPOAGENT_ModelParameter(agent, model, i, &name, &value));
    if (strcmp(name, key) == 0 && strcmp(value, wanted) == 0) {
      return true;
    }
  }
  return false;
}

static void ask_config(Agent *agent, Model *model) {
  TRITONSERVER_Message *message = NULL;
  const char *json = NULL;
  size_t byte_size = 0;
  good("configuration of version 2", TRITONREPOAGENT_ModelConfig(agent, model, 2, &message));
  if (good("configuration", TRITONREPOAGENT_ModelConfig(agent, model, 1, &message))) {
    if (good("its JSON", TRITONSERVER_MessageSerializeToJson(message, &json, &byte_size))) {
      note("  configuration %.*s", (int)byte_size, json);
    }
    good("its end", TRITONSERVER_MessageDelete(message));
  }
}

static void ask_location(Agent *agent, Model *model, const char *when) {
  TRITONREPOAGENT_ArtifactType type = 77;
  const char *location = NULL;
  if (good("location", TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &location))) {
    size_t length = strlen(location);
    note("  location %s: type %d, %s, %s slash", when, type, what_is_at(location),
         location[length - 1] == '/' ? "with a" : "without a");
  }
}

/* Acquires, updates and releases in all ways. */
static void ask_for_room(Agent *agent, Model *model) {
  const char *first = NULL, *second = NULL, *remote = NULL;
  good("release before", TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, model, "/nowhere"));
  good("acquire a remote one", TRITONREPOAGENT_ModelRepositoryLocationAcquire(
                                   agent, model, TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM, &remote));
  if (good("acquire", TRITONREPOAGENT_ModelRepositoryLocationAcquire(
                          agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, &first))) {
    char kept[4096];
    struct stat found;
    snprintf(kept, sizeof kept, "%s", first);
    note("  acquired %s", what_is_at(kept));
    if (stat(kept, &found) == 0) {
      note("  its mode is %o", found.st_mode & 07777);
    }
    if (good("acquire again", TRITONREPOAGENT_ModelRepositoryLocationAcquire(
                                  agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, &second))) {
      note("  acquired again: %s", strcmp(kept, second) == 0 ? "the same" : "another");
    }
    good("release another", TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, model, "/nowhere"));
    good("release", TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, model, kept));
    note("  released: %s", what_is_at(kept));
    good("release again", TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, model, kept));
  }
}

static void ask_all(Agent *agent, Model *model) {
  ask_states(agent, model);
  ask_location(agent, model, "now");
  ask_parameters(agent, model);
  ask_config(agent, model);
  ask_for_room(agent, model);
}

/* Has the model loaded from a copy of its files, if its parameters say so in this step. */
static void hand_over(Agent *agent, Model *model, const char *step) {
  const char *copy = NULL, *location = NULL;
  char command[9000];
  TRITONREPOAGENT_ArtifactType type;
  if (!has(agent, model, "hand_over_in", step) ||
      !good("location", TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &location)) ||
      !good("acquire", TRITONREPOAGENT_ModelRepositoryLocationAcquire(
                           agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, &copy))) {
    return;
  }
  snprintf(command, sizeof command, "cp -r %s/. %s && sed -i 's/ADDED = 1$/ADDED = 7/' %s/1/model.py", location,
           copy, copy);
  if (system(command) != 0) {
    note("  cannot copy");
  }
  if (has(agent, model, "without", "config.pbtxt")) {
    char config[4096];
    snprintf(config, sizeof config, "%s/config.pbtxt", copy);
    unlink(config);
  }
  good("update of another type",
       TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM, copy));
  good("update", TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, copy));
  ask_location(agent, model, "after the update");
}

Error *TRITONREPOAGENT_Initialize(Agent *agent) {
  note("Initialize");
  ask_versions();
  ask_states(agent, NULL);
  good("set the agent's state", TRITONREPOAGENT_SetState(agent, "set in Initialize"));
  return NULL;
}

Error *TRITONREPOAGENT_Finalize(Agent *agent) {
  note("Finalize");
  ask_states(agent, NULL);
  return NULL;
}

Error *TRITONREPOAGENT_ModelInitialize(Agent *agent, Model *model) {
  note("ModelInitialize");
  ask_all(agent, model);
  hand_over(agent, model, "ModelInitialize");
  good("set the model's state", TRITONREPOAGENT_ModelSetState(model, "set in ModelInitialize"));
  if (has(agent, model, "raise_in", "ModelInitialize")) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_ALREADY_EXISTS, "does not like the model");
  }
  return NULL;
}

Error *TRITONREPOAGENT_ModelFinalize(Agent *agent, Model *model) {
  note("ModelFinalize");
  ask_all(agent, model);
  hand_over(agent, model, "ModelFinalize");
  return NULL;
}

Error *TRITONREPOAGENT_ModelAction(Agent *agent, Model *model, TRITONREPOAGENT_ActionType action) {
  note("ModelAction %s", kActions[action]);
  ask_all(agent, model);
  hand_over(agent, model, kActions[action]);
  if (has(agent, model, "raise_in", kActions[action])) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_ALREADY_EXISTS, "does not like the action");
  }
  return NULL;
}
