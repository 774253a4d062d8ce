#include "backends/attributes.h"

#include <algorithm>
#include <limits>
#include <string>

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute* attributes, const TRITONSERVER_InstanceGroupKind kind, const uint64_t count,
    const uint64_t* device_ids, const uint64_t id_count) {
  TRITONPY_REQUIRE(attributes);
  if (kind < TRITONSERVER_INSTANCEGROUPKIND_AUTO || kind > TRITONSERVER_INSTANCEGROUPKIND_MODEL) {
    return tritonpy::invalid("unknown instance group kind " + std::to_string(static_cast<int>(kind)));
  }
  // Counts and numbers of devices are of 32 bits in a configuration.
  constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
  const std::vector<uint64_t> ids(device_ids, device_ids == nullptr ? nullptr : device_ids + id_count);
  if (count > kMost || std::any_of(ids.begin(), ids.end(), [](uint64_t id) { return id > kMost; })) {
    return tritonpy::invalid(
        "an instance group has at most " + std::to_string(kMost) + " instances, and devices up to that number");
  }
  attributes->preferred_groups.push_back({kind, count, ids});
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute* attributes, const bool enabled) {
  TRITONPY_REQUIRE(attributes);
  attributes->loads_instances_in_parallel = enabled;
  return nullptr;
}
