/* Tries of plugins, called in a process that is there for nothing else. What is going to be called is written
 * to the descriptor `report` before it is, so that whoever reads it knows what ended the process, or did not
 * return: "calling <function>", "error <code> <text>", "cannot open <text>", "done", each with a zero byte
 * behind it. */

/* Makes a batch without requests. The arguments are those of `TRITONPY_Model`. */
void TRITONPY_TryStrategy(
    int report, const char *path, const char *name, uint64_t version, const char *location,
    const char *config, bool completes_config, const char *backend_name, const char *backend_location,
    const char *backend_config);
/* Asks a backend for its attributes, and adds them to the report: "group <kind> <count> <devices>" for each
 * preferred instance group, and "parallel <0 or 1>"; kinds are those of `TRITONSERVER_InstanceGroupKind`. Calls
 * nothing of a library that does not define `TRITONBACKEND_GetBackendAttribute`. */
void TRITONPY_AskBackend(
    int report, const char *path, const char *name, const char *location, const char *config);
/* Looks a key up that is not there. */
void TRITONPY_TryCache(int report, const char *path, const char *config);
