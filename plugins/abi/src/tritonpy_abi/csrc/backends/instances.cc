// What a backend may ask of its instances, and what it tells of their executions.

#include <string>

#include "backends/objects.h"

namespace {

TRITONSERVER_Error* out_of_bounds(uint32_t index, size_t count, const char* what) {
  return tritonpy::invalid("out of bounds index " + std::to_string(index) + ": instance is configured with " +
                           std::to_string(count) + " " + what);
}

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance* instance, const char** name) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(name);
  *name = instance->name.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(
    TRITONBACKEND_ModelInstance* instance, TRITONSERVER_InstanceGroupKind* kind) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(kind);
  *kind = instance->kind;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(
    TRITONBACKEND_ModelInstance* instance, int32_t* device_id) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(device_id);
  *device_id = instance->device_id;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceHostPolicy(
    TRITONBACKEND_ModelInstance* instance, TRITONSERVER_Message** policy) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(policy);
  *policy = &instance->policy;
  return nullptr;
}

// Passive instances are none that a worker or a thread is made for.
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceIsPassive(
    TRITONBACKEND_ModelInstance* instance, bool* is_passive) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(is_passive);
  *is_passive = false;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
    TRITONBACKEND_ModelInstance* instance, uint32_t* count) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(count);
  *count = static_cast<uint32_t>(instance->secondary_devices.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
    TRITONBACKEND_ModelInstance* instance, uint32_t index, const char** kind, int64_t* id) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(kind);
  TRITONPY_REQUIRE(id);
  if (index >= instance->secondary_devices.size()) {
    return out_of_bounds(index, instance->secondary_devices.size(), "secondary devices");
  }
  *kind = instance->secondary_devices[index].first.c_str();
  *id = instance->secondary_devices[index].second;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceProfileCount(
    TRITONBACKEND_ModelInstance* instance, uint32_t* count) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(count);
  *count = static_cast<uint32_t>(instance->profiles.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceProfileName(
    TRITONBACKEND_ModelInstance* instance, const uint32_t index, const char** profile_name) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(profile_name);
  *profile_name = nullptr;
  if (index >= instance->profiles.size()) {
    return out_of_bounds(index, instance->profiles.size(), "profiles");
  }
  *profile_name = instance->profiles[index].c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Model** model) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(model);
  *model = instance->model;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance, void** state) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(state);
  *state = instance->state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance, void* state) {
  TRITONPY_REQUIRE(instance);
  instance->state = state;
  return nullptr;
}
