/* Refuses a model whose files have changed: each parameter "FNV:PATH" has the 64-bit FNV-1a of a file below the
 * model's directory, in hexadecimal. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tritonpy/repo_agent.h"

static const char kPrefix[] = "FNV:";

static bool digest_of(const char *path, uint64_t *digest) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) {
    return false;
  }
  *digest = 0xcbf29ce484222325u;
  for (int byte = getc(file); byte != EOF; byte = getc(file)) {
    *digest = (*digest ^ (uint64_t)byte) * 0x100000001b3u;
  }
  fclose(file);
  return true;
}

static TRITONSERVER_Error *check(const char *location, const char *relative, const char *expected) {
  char path[4096], text[4400];
  uint64_t digest = 0;
  snprintf(path, sizeof path, "%s/%s", location, relative);
  if (!digest_of(path, &digest)) {
    snprintf(text, sizeof text, "there is no file %s", relative);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, text);
  }
  if (digest != strtoull(expected, NULL, 16)) {
    snprintf(text, sizeof text, "%s has the digest %016" PRIx64 ", expected %s", relative, digest, expected);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
  }
  return NULL;
}

TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, TRITONREPOAGENT_ActionType action) {
  TRITONREPOAGENT_ArtifactType type;
  const char *location = NULL;
  uint32_t count = 0;
  if (action != TRITONREPOAGENT_ACTION_LOAD) {
    return NULL;
  }
  TRITONSERVER_Error *error = TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &location);
  if (error == NULL) {
    error = TRITONREPOAGENT_ModelParameterCount(agent, model, &count);
  }
  for (uint32_t i = 0; error == NULL && i < count; ++i) {
    const char *name = NULL, *value = NULL;
    error = TRITONREPOAGENT_ModelParameter(agent, model, i, &name, &value);
    if (error == NULL && strncmp(name, kPrefix, strlen(kPrefix)) == 0) {
      error = check(location, name + strlen(kPrefix), value);
    }
  }
  return error;
}
