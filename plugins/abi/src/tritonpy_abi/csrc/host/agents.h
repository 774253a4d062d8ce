/* Repository agents. Used in a process that has nothing else to do; any thread may call, one at a time for each
 * model. Texts are copied. */

typedef struct TRITONREPOAGENT_Agent TRITONREPOAGENT_Agent;
typedef struct TRITONREPOAGENT_AgentModel TRITONREPOAGENT_AgentModel;

/* Have what the process prints leave with every line, also where its output is a pipe. */
void TRITONPY_AgentPrintLines(void);

/* The one of this process, which is there until it ends: threads of the agent may use it as long. */
TRITONREPOAGENT_Agent *TRITONPY_Agent(void);

/* `room` is a directory for what the agent acquires, or NULL; then `why_no_room` is why there is none. */
TRITONSERVER_Error *TRITONPY_AgentModelNew(
    TRITONREPOAGENT_AgentModel **model, const char *location, const char *config, const char *room,
    const char *why_no_room);
TRITONSERVER_Error *TRITONPY_AgentModelAddParameter(
    TRITONREPOAGENT_AgentModel *model, const char *name, const char *value);
void TRITONPY_AgentModelDelete(TRITONREPOAGENT_AgentModel *model);
/* Where the model is to be loaded from now. */
const char *TRITONPY_AgentModelLocation(TRITONREPOAGENT_AgentModel *model);

/* Call one of the agent's functions: `TRITONREPOAGENT_` and this name. */
TRITONSERVER_Error *TRITONPY_AgentCall(void *function, const char *name, TRITONREPOAGENT_Agent *agent);
TRITONSERVER_Error *TRITONPY_AgentModelCall(
    void *function, const char *name, TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model);
TRITONSERVER_Error *TRITONPY_AgentModelAction(
    void *function, TRITONREPOAGENT_Agent *agent, TRITONREPOAGENT_AgentModel *model, int action);
