// All that the library exports: Triton's functions, as the headers for authors have them, and what the driver in
// Python calls. Sources include this first, so that the compiler compares definitions with declarations.
#pragma once

#include "tritonpy/batching.h"
#include "tritonpy/cache.h"
#include "tritonpy/core.h"
#include "tritonpy/repo_agent.h"

#pragma GCC visibility push(default)
extern "C" {
#include "host/agents.h"
#include "host/batching.h"
#include "host/caches.h"
#include "host/core.h"
#include "host/logs.h"
#include "host/metrics.h"
#include "host/probe.h"
#include "host/sources.h"
}
#pragma GCC visibility pop
