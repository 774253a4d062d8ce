/* Repository agents: what happens to a model's files before it is loaded, and after it is gone.
 *
 * An agent called NAME is the shared object `NAME/libtritonrepoagent_NAME.so` in `--repoagent-directory`. Of the
 * functions at the end of this page only `TRITONREPOAGENT_ModelAction` is required.
 */
#ifndef TRITONPY_REPO_AGENT_H
#define TRITONPY_REPO_AGENT_H

#include "tritonpy/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TRITONREPOAGENT_Agent TRITONREPOAGENT_Agent;
typedef struct TRITONREPOAGENT_AgentModel TRITONREPOAGENT_AgentModel;

#define TRITONREPOAGENT_API_VERSION_MAJOR 0
#define TRITONREPOAGENT_API_VERSION_MINOR 1

TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ApiVersion(uint32_t *major, uint32_t *minor);

typedef enum {
  TRITONREPOAGENT_ARTIFACT_FILESYSTEM = 0,
  TRITONREPOAGENT_ARTIFACT_REMOTE_FILESYSTEM = 1
} TRITONREPOAGENT_ArtifactType;

/* LOAD, then LOAD_COMPLETE, UNLOAD and UNLOAD_COMPLETE; or LOAD, then LOAD_FAIL. */
typedef enum {
  TRITONREPOAGENT_ACTION_LOAD = 0,
  TRITONREPOAGENT_ACTION_LOAD_COMPLETE = 1,
  TRITONREPOAGENT_ACTION_LOAD_FAIL = 2,
  TRITONREPOAGENT_ACTION_UNLOAD = 3,
  TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE = 4
} TRITONREPOAGENT_ActionType;

/* Where the model's files are, as the agent before this one left them; only to be read. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocation(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, TRITONREPOAGENT_ArtifactType *type,
    const char **location);
/* An empty directory for a changed copy. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, TRITONREPOAGENT_ArtifactType type,
    const char **location);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryLocationRelease(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, const char *location);
/* Have the model loaded from there; during LOAD only. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelRepositoryUpdate(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, TRITONREPOAGENT_ArtifactType type,
    const char *location);
/* What the model's configuration gives to this agent. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelParameterCount(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, uint32_t *count);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelParameter(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, uint32_t index, const char **name,
    const char **value);
/* The configuration as JSON; `config_version` is 1. The message is yours to delete. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelConfig(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, uint32_t config_version,
    TRITONSERVER_Message **config);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelState(TRITONREPOAGENT_AgentModel *model, void **state);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelSetState(TRITONREPOAGENT_AgentModel *model, void *state);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_State(TRITONREPOAGENT_Agent *agent, void **state);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_SetState(TRITONREPOAGENT_Agent *agent, void *state);

/* ---- what an agent defines ---- */

TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent *agent);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_Finalize(TRITONREPOAGENT_Agent *agent);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelInitialize(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model);
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelFinalize(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model);
/* An error during LOAD is the reason for which the model does not load. */
TRITONPY_EXPORT TRITONSERVER_Error *TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, TRITONREPOAGENT_ActionType action);

#ifdef __cplusplus
}
#endif

#endif
