#include "backends/execute_timed.h"

#include <chrono>

#include "backends/objects.h"

namespace {

uint64_t now_ns() {
  using std::chrono::nanoseconds;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(now).count());
}

}  // namespace

TRITONPY_Executed tritonpy::execute_timed(
    TRITONBACKEND_ModelInstance* instance, uint64_t batch, const std::vector<TRITONBACKEND_Request*>& requests,
    const std::vector<uint64_t>& tags) {
  TRITONPY_Executed done{};
  done.batch = batch;
  done.start_ns = now_ns();
  done.error =
      TRITONPY_InstanceExecute(instance, requests.data(), tags.data(), static_cast<uint32_t>(requests.size()));
  done.end_ns = now_ns();
  const bool is_reported = instance->compute_start_ns != 0 && instance->compute_end_ns != 0;
  done.compute_start_ns = is_reported ? instance->compute_start_ns : done.start_ns;
  done.compute_end_ns = is_reported ? instance->compute_end_ns : done.end_ns;
  done.reports_memory = TRITONPY_MemoryReported(instance) ? 1 : 0;
  return done;
}
