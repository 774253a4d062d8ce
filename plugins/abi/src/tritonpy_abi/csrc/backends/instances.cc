// What a backend may ask of its instances, and what it tells of their executions.

#include "backends/objects.h"

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

// The server counts requests by their responses: it also counts those of which a backend says nothing.
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const bool, const uint64_t,
    const uint64_t, const uint64_t, const uint64_t) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(request);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, const uint64_t, const uint64_t, const uint64_t compute_start_ns,
    const uint64_t compute_end_ns, const uint64_t) {
  TRITONPY_REQUIRE(instance);
  instance->compute_start_ns = compute_start_ns;
  instance->compute_end_ns = compute_end_ns;
  return nullptr;
}
