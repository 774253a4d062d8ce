// One execution with its times, as executors have it.
#pragma once

#include <cstdint>
#include <vector>

#include "api.h"

namespace tritonpy {

// See `TRITONPY_InstanceExecute`.
TRITONPY_Executed execute_timed(
    TRITONBACKEND_ModelInstance* instance, uint64_t batch, const std::vector<TRITONBACKEND_Request*>& requests,
    const std::vector<uint64_t>& tags);

}  // namespace tritonpy
