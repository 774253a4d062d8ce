/* A program that uses the library as the driver in Python does, for sanitizers: it has no Python in it, whose
 * memory they do not understand. It ends at the first thing that is not as it should be. */
#ifndef DRIVER_H
#define DRIVER_H

#include "tritonpy/backend.h"
#include "tritonpy/cache.h"
#include "tritonpy/core.h"
#include "tritonpy/repo_agent.h"
#include "tritonpy/server.h"

#include "host/agents.h"
#include "host/batching.h"
#include "host/caches.h"
#include "host/calls.h"
#include "host/core.h"
#include "host/execution.h"
#include "host/logs.h"
#include "host/metrics.h"
#include "host/probe.h"
#include "host/sources.h"

#define THREADS 4

#define CHECK(condition) check(condition, #condition, __FILE__, __LINE__)
/* NULL, that is. */
#define OK(call) check_error(call, -1, "", #call, __FILE__, __LINE__)
/* An error with this code, and these words in its text. */
#define FAILS(code, words, call) check_error(call, code, words, #call, __FILE__, __LINE__)

void check(bool holds, const char *what, const char *file, int line);
void check_error(
    TRITONSERVER_Error *error, int code, const char *words, const char *what, const char *file, int line);
/* Run a function on `THREADS` threads at once, each with its number. */
void on_threads(void (*function)(int number, void *argument), void *argument);
/* A function, or a variable, of the shared object that is tried. */
void *function_of(const char *name);
/* The shared object, as it was named on the command line. */
const char *plugin_path(void);

void drive_core(void);
void drive_logs(void);
void drive_metrics(void);
void drive_strategies(void);
void drive_agents(void);
void drive_caches(void);
void drive_backends(void);
void drive_calls(void);
void drive_probe(void);

void make_race(void);
void make_leak(void);
void make_overrun(void);

#endif
