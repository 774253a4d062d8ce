// What only backends may do to themselves and their models; what strategies may ask too is in batching/.

#include "backends/memory.h"
#include "backends/objects.h"
#include "guard.h"

struct TRITONBACKEND_MemoryManager {};

namespace {

constexpr uint32_t kConfigVersion = 1;

TRITONBACKEND_MemoryManager memory_manager;

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_BackendSetExecutionPolicy(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_ExecutionPolicy policy) {
  TRITONPY_REQUIRE(backend);
  if (policy != TRITONBACKEND_EXECUTION_BLOCKING && policy != TRITONBACKEND_EXECUTION_DEVICE_BLOCKING) {
    return tritonpy::invalid("unknown execution policy " + std::to_string(static_cast<int>(policy)));
  }
  backend->execution_policy = policy;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendMemoryManager(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_MemoryManager** manager) {
  TRITONPY_REQUIRE(backend);
  TRITONPY_REQUIRE(manager);
  *manager = &memory_manager;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_MemoryManagerAllocate(
    TRITONBACKEND_MemoryManager* manager, void** buffer, const TRITONSERVER_MemoryType memory_type,
    const int64_t memory_type_id, const uint64_t byte_size) {
  TRITONPY_REQUIRE(manager);
  TRITONPY_REQUIRE(buffer);
  return tritonpy::allocate(memory_type, memory_type_id, byte_size, buffer);
}

TRITONSERVER_Error* TRITONBACKEND_MemoryManagerFree(
    TRITONBACKEND_MemoryManager* manager, void* buffer, const TRITONSERVER_MemoryType memory_type,
    const int64_t memory_type_id) {
  TRITONPY_REQUIRE(manager);
  return tritonpy::release(memory_type, memory_type_id, buffer);
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(
    TRITONBACKEND_Model* model, const uint32_t config_version, TRITONSERVER_Message* config) {
  TRITONPY_REQUIRE(model);
  TRITONPY_REQUIRE(config);
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    if (config_version != kConfigVersion) {
      return tritonpy::invalid(
          "model configuration version " + std::to_string(config_version) +
          " not supported, supported versions are: " + std::to_string(kConfigVersion));
    }
    if (!model->is_initializing || !model->completes_config) {
      return tritonpy::invalid(
          "the configuration of model '" + model->name +
          "' can be set by its backend in TRITONBACKEND_ModelInitialize, where "
          "TRITONBACKEND_ModelAutoCompleteConfig says so, and nowhere else");
    }
    model->config = config->json;
    model->is_completed = true;
    return nullptr;
  });
}
