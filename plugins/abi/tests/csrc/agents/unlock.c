/* Lets a model lie locked in the repository: `1/model.py.locked` is `1/model.py` with every byte changed by those
 * of the parameter "key", over and over. The model is loaded from an unlocked copy. */

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tritonpy/repo_agent.h"

static bool copy(const char *from, const char *to, const char *key) {
  FILE *source = fopen(from, "rb"), *target = fopen(to, "wb");
  const size_t length = strlen(key);
  bool done = source != NULL && target != NULL;
  if (done) {
    size_t place = 0;
    for (int byte = getc(source); byte != EOF; byte = getc(source), ++place) {
      putc(length == 0 ? byte : byte ^ key[place % length], target);
    }
  }
  if (source != NULL) {
    fclose(source);
  }
  if (target != NULL) {
    done = fclose(target) == 0 && done;
  }
  return done;
}

static bool unlock(const char *from, const char *to, const char *key) {
  char source[4096], target[4096];
  snprintf(source, sizeof source, "%s/config.pbtxt", from);
  snprintf(target, sizeof target, "%s/config.pbtxt", to);
  if (!copy(source, target, "")) {
    return false;
  }
  snprintf(target, sizeof target, "%s/1", to);
  if (mkdir(target, 0700) != 0) {
    return false;
  }
  snprintf(source, sizeof source, "%s/1/model.py.locked", from);
  snprintf(target, sizeof target, "%s/1/model.py", to);
  return copy(source, target, key);
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, TRITONREPOAGENT_ActionType action) {
  TRITONREPOAGENT_ArtifactType type;
  const char *from = NULL, *to = NULL, *name = NULL, *key = NULL;
  TRITONSERVER_Error *error = NULL;
  if (action != TRITONREPOAGENT_ACTION_LOAD) {
    return NULL;
  }
  if ((error = TRITONREPOAGENT_ModelParameter(agent, model, 0, &name, &key)) != NULL ||
      (error = TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &from)) != NULL ||
      (error = TRITONREPOAGENT_ModelRepositoryLocationAcquire(
           agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, &to)) != NULL) {
    return error;
  }
  if (!unlock(from, to, key)) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "cannot unlock the model");
  }
  return TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, TRITONREPOAGENT_ARTIFACT_FILESYSTEM, to);
}
