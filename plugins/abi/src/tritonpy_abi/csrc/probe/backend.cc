#include <array>
#include <string>

#include "backends/attributes.h"
#include "guard.h"
#include "probe/report.h"

namespace {

constexpr const char* kAttribute = "TRITONBACKEND_GetBackendAttribute";

std::string text_of(const TRITONBACKEND_BackendAttribute::Group& group) {
  std::string text = std::to_string(group.kind) + " " + std::to_string(group.count);
  for (const uint64_t id : group.device_ids) {
    text += " " + std::to_string(id);
  }
  return text;
}

}  // namespace

void TRITONPY_AskBackend(
    int descriptor, const char* path, const char* name, const char* location, const char* config) {
  const tritonpy::Report report(descriptor);
  void* handle = report.open(path);
  if (handle == nullptr) {
    return;
  }
  const auto ask = reinterpret_cast<decltype(&TRITONBACKEND_GetBackendAttribute)>(TRITONPY_Symbol(handle, kAttribute));
  if (ask == nullptr) {
    return report.done();
  }
  // Without functions for models: there are none here.
  std::array<void*, TRITONPY_BACKEND_FUNCTION_COUNT> functions{};
  functions[0] = TRITONPY_Symbol(handle, "TRITONBACKEND_Initialize");
  functions[1] = TRITONPY_Symbol(handle, "TRITONBACKEND_Finalize");
  TRITONBACKEND_Backend* backend = nullptr;
  report.calling("TRITONBACKEND_Initialize");
  if (auto* error = TRITONPY_BackendOpen(functions.data(), name, location, config, &backend)) {
    return report.failed(error);
  }
  TRITONBACKEND_BackendAttribute attributes;
  report.calling(kAttribute);
  if (auto* error = tritonpy::guarded(kAttribute, [&] { return ask(backend, &attributes); })) {
    return report.failed(error);
  }
  for (const auto& group : attributes.preferred_groups) {
    report.tell("group", text_of(group));
  }
  report.tell("parallel", attributes.loads_instances_in_parallel ? "1" : "0");
  report.calling("TRITONBACKEND_Finalize");
  TRITONSERVER_ErrorDelete(TRITONPY_BackendClose(backend));
  report.done();
}
