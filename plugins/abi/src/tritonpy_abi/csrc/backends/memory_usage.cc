#include "backends/memory_usage.h"

#include <string>

#include "backends/objects.h"

namespace tritonpy {

TRITONSERVER_Error* MemoryReport::add(
    const char* function, TRITONSERVER_BufferAttributes* const* usages, uint32_t count) {
  if (count != 0) {
    if (auto* missing = require(usages, function, "usage")) {
      return missing;
    }
  }
  for (uint32_t index = 0; index < count; ++index) {
    if (usages[index] == nullptr) {
      return invalid(std::string(function) + ": usage " + std::to_string(index) + " is NULL");
    }
    const TRITONSERVER_MemoryType type = usages[index]->memory_type;
    if (type < TRITONSERVER_MEMORY_CPU || type > TRITONSERVER_MEMORY_GPU) {
      return invalid("unknown memory type " + std::to_string(static_cast<int>(type)));
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t index = 0; index < count; ++index) {
    const TRITONSERVER_BufferAttributes& usage = *usages[index];
    byte_sizes_[{usage.memory_type, usage.memory_type_id}] = usage.byte_size;
  }
  has_changed_ = true;
  return nullptr;
}

uint32_t MemoryReport::read(TRITONPY_MemoryUsage* to, uint32_t room) {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint32_t count = 0;
  for (const auto& [place, byte_size] : byte_sizes_) {
    if (count == room) {
      break;
    }
    to[count++] = {place.first, place.second, byte_size};
  }
  return count;
}

}  // namespace tritonpy

TRITONSERVER_Error* TRITONBACKEND_ModelReportMemoryUsage(
    TRITONBACKEND_Model* model, TRITONSERVER_BufferAttributes** usage, uint32_t usage_size) {
  TRITONPY_REQUIRE(model);
  if (model->memory == nullptr) {
    return tritonpy::invalid("a batching strategy reports no memory of model '" + model->name + "'");
  }
  return model->memory->add(__func__, usage, usage_size);
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportMemoryUsage(
    TRITONBACKEND_ModelInstance* instance, TRITONSERVER_BufferAttributes** usage, uint32_t usage_size) {
  TRITONPY_REQUIRE(instance);
  return instance->memory->add(__func__, usage, usage_size);
}

bool TRITONPY_MemoryReported(TRITONBACKEND_ModelInstance* instance) {
  const bool of_model = instance->model->memory->take_change();
  return instance->memory->take_change() || of_model;
}

uint32_t TRITONPY_MemoryRead(
    TRITONBACKEND_ModelInstance* instance, bool of_model, TRITONPY_MemoryUsage* usages, uint32_t room) {
  return (of_model ? *instance->model->memory : *instance->memory).read(usages, room);
}
