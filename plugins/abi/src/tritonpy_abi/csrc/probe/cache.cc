#include <cstdlib>
#include <type_traits>

#include "caches/calls.h"
#include "probe/report.h"

namespace {

constexpr const char* kUnknownKey = "tritonpy:a key that is not there";

// False where one is missing: the server says which.
bool find(void* handle, tritonpy::CacheFunctions* functions) {
  const auto symbol = [handle](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(TRITONPY_Symbol(handle, name));
    return *function != nullptr;
  };
  return symbol("TRITONCACHE_CacheInitialize", &functions->initialize) &&
         symbol("TRITONCACHE_CacheFinalize", &functions->finalize) &&
         symbol("TRITONCACHE_CacheLookup", &functions->lookup) &&
         symbol("TRITONCACHE_CacheInsert", &functions->insert);
}

}  // namespace

void TRITONPY_TryCache(int descriptor, const char* path, const char* config) {
  const tritonpy::Report report(descriptor);
  void* handle = report.open(path);
  tritonpy::CacheFunctions functions{};
  if (handle == nullptr) {
    return;
  }
  if (!find(handle, &functions)) {
    return report.done();
  }
  TRITONCACHE_Cache* cache = nullptr;
  report.calling("TRITONCACHE_CacheInitialize");
  if (auto* error = tritonpy::call_initialize(functions, config, &cache)) {
    return report.failed(error);
  }
  report.calling("TRITONCACHE_CacheLookup");
  tritonpy::FoundEntry found;
  // Not found, as a rule; whatever else it says, the server is told as well when it asks.
  TRITONSERVER_ErrorDelete(tritonpy::call_lookup(functions, cache, kUnknownKey, &found));
  std::free(found.data);
  report.calling("TRITONCACHE_CacheFinalize");
  TRITONSERVER_ErrorDelete(tritonpy::call_finalize(functions, cache));
  report.done();
}
