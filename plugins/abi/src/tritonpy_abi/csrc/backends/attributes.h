// What a backend says of itself before its first model.
#pragma once

#include <cstdint>
#include <vector>

#include "core/objects.h"

struct TRITONBACKEND_BackendAttribute {
  struct Group {
    TRITONSERVER_InstanceGroupKind kind;
    uint64_t count;
    std::vector<uint64_t> device_ids;
  };

  std::vector<Group> preferred_groups;
  bool loads_instances_in_parallel = false;
};
