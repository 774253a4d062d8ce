// All that the library exports: Triton's functions, as the headers for authors have them, and what the driver in
// Python calls. Sources include this first, so that the compiler compares definitions with declarations.
#pragma once

#include "tritonpy/backend.h"
#include "tritonpy/batching.h"
#include "tritonpy/cache.h"
#include "tritonpy/core.h"
#include "tritonpy/repo_agent.h"
#include "tritonpy/server.h"

#pragma GCC visibility push(default)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"  // an array at the end of a struct may have no length in C
extern "C" {
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
}
#pragma GCC diagnostic pop
#pragma GCC visibility pop
