#include <algorithm>
#include <array>

#include "probe/report.h"

namespace {

// In the order that `TRITONPY_StrategyOpen` wants them.
constexpr std::array<const char*, 5> kFunctions = {
    "TRITONBACKEND_ModelBatcherInitialize", "TRITONBACKEND_ModelBatcherFinalize",
    "TRITONBACKEND_ModelBatchInitialize", "TRITONBACKEND_ModelBatchIncludeRequest",
    "TRITONBACKEND_ModelBatchFinalize"};

}  // namespace

void TRITONPY_TryStrategy(
    int descriptor, const char* path, const char* name, uint64_t version, const char* location,
    const char* config, bool completes_config, const char* backend_name, const char* backend_location,
    const char* backend_config) {
  const tritonpy::Report report(descriptor);
  void* handle = report.open(path);
  if (handle == nullptr) {
    return;
  }
  std::array<void*, kFunctions.size()> functions{};
  std::transform(kFunctions.begin(), kFunctions.end(), functions.begin(), [handle](const char* function) {
    return TRITONPY_Symbol(handle, function);
  });
  if (std::find(functions.begin(), functions.end(), nullptr) != functions.end()) {
    return report.done();  // the server says which are missing
  }
  const TRITONPY_Model model{name,         version,          location,      config, completes_config,
                             backend_name, backend_location, backend_config};
  TRITONPY_Strategy* strategy = nullptr;
  report.calling(kFunctions[0]);
  if (auto* error = TRITONPY_StrategyOpen(functions.data(), &model, &strategy)) {
    return report.failed(error);
  }
  // These may fail for a reason of the moment. Where they go on failing, requests do so with what they say.
  report.calling(kFunctions[2]);
  TRITONSERVER_ErrorDelete(TRITONPY_BatchBegin(strategy));
  report.calling(kFunctions[4]);
  TRITONSERVER_ErrorDelete(TRITONPY_BatchEnd(strategy));
  report.calling(kFunctions[1]);
  TRITONSERVER_ErrorDelete(TRITONPY_StrategyClose(strategy));
  report.done();
}
