// What stands behind the opaque types of tritonpy/batching.h; requests and inputs are in host/batching.h.
#pragma once

#include <string>

#include "core/objects.h"

namespace tritonpy {
class MemoryReport;
}

struct TRITONBACKEND_Backend {
  std::string name;
  std::string location;
  TRITONSERVER_Message config;
  void* state = nullptr;
  TRITONBACKEND_ExecutionPolicy execution_policy = TRITONBACKEND_EXECUTION_BLOCKING;
};

struct TRITONBACKEND_Model {
  std::string name;
  uint64_t version;
  std::string location;
  std::string config;
  bool completes_config;
  TRITONBACKEND_Backend* backend;
  void* state = nullptr;
  bool is_initializing = false;  // by its backend
  bool is_completed = false;  // the backend has set the configuration
  tritonpy::MemoryReport* memory = nullptr;  // of a model in the hands of a backend
  TRITONSERVER_Server* server = nullptr;  // that answers it; none for a strategy
};

namespace tritonpy {

// As Triton's messages about a request begin.
std::string label(const TRITONBACKEND_Request* request);

// Let go of what the inputs of a request were given while a strategy looked at them.
void clear_scratch(TRITONBACKEND_Request* request);

}  // namespace tritonpy
