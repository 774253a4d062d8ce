// Memory that backends ask the server for: of the CPU, pinned, or of a GPU.
#pragma once

#include <cstdint>

#include "core/objects.h"

namespace tritonpy {

// `buffer` is NULL after an error.
TRITONSERVER_Error* allocate(TRITONSERVER_MemoryType type, int64_t device_id, uint64_t byte_size, void** buffer);
TRITONSERVER_Error* release(TRITONSERVER_MemoryType type, int64_t device_id, void* buffer);

}  // namespace tritonpy
