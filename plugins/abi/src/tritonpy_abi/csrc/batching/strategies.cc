// A strategy at work for one version of one model. Its calls come from one thread at a time; the driver sees
// to that.

#include <memory>

#include "batching/objects.h"
#include "guard.h"

namespace {

using BatcherInitialize = decltype(&TRITONBACKEND_ModelBatcherInitialize);
using BatcherFinalize = decltype(&TRITONBACKEND_ModelBatcherFinalize);
using BatchInitialize = decltype(&TRITONBACKEND_ModelBatchInitialize);
using BatchInclude = decltype(&TRITONBACKEND_ModelBatchIncludeRequest);
using BatchFinalize = decltype(&TRITONBACKEND_ModelBatchFinalize);

}  // namespace

struct TRITONPY_Strategy {
  TRITONPY_Strategy(void* const* functions, const TRITONPY_Model& described)
      : batcher_initialize(reinterpret_cast<BatcherInitialize>(functions[0])),
        batcher_finalize(reinterpret_cast<BatcherFinalize>(functions[1])),
        batch_initialize(reinterpret_cast<BatchInitialize>(functions[2])),
        batch_include(reinterpret_cast<BatchInclude>(functions[3])),
        batch_finalize(reinterpret_cast<BatchFinalize>(functions[4])),
        backend{described.backend_name, described.backend_location, {described.backend_config}},
        model{
            described.name,
            described.version,
            described.location,
            described.config,
            described.completes_config,
            &backend} {}

  const BatcherInitialize batcher_initialize;
  const BatcherFinalize batcher_finalize;
  const BatchInitialize batch_initialize;
  const BatchInclude batch_include;
  const BatchFinalize batch_finalize;
  TRITONBACKEND_Backend backend;
  TRITONBACKEND_Model model;
  TRITONBACKEND_Batcher* batcher = nullptr;  // the strategy's own, given back as it came
  void* userp = nullptr;  // likewise, for the attempt that is open
  bool is_open = false;
};

namespace {

// The error that stands for the request, or nullptr and whether it joins.
TRITONSERVER_Error* include(TRITONPY_Strategy* strategy, TRITONBACKEND_Request* request, bool* joins) {
  *joins = false;
  TRITONSERVER_Error* error = tritonpy::guarded("TRITONBACKEND_ModelBatchIncludeRequest", [&] {
    bool should_include = false;
    TRITONSERVER_Error* refusal = strategy->batch_include(request, strategy->userp, &should_include);
    *joins = should_include;  // not where it throws
    return refusal;
  });
  if (request->has_scratch) {
    tritonpy::clear_scratch(request);
  }
  return error;
}

// For an error that changes nothing.
void log_and_delete(const std::string& what, TRITONSERVER_Error* error) {
  const std::string text = what + ": " + TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  TRITONSERVER_ErrorDelete(
      TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, text.c_str()));
}

}  // namespace

TRITONSERVER_Error* TRITONPY_StrategyOpen(
    void* const* functions, const TRITONPY_Model* model, TRITONPY_Strategy** strategy) {
  return tritonpy::guarded("TRITONBACKEND_ModelBatcherInitialize", [&]() -> TRITONSERVER_Error* {
    auto opened = std::make_unique<TRITONPY_Strategy>(functions, *model);
    if (TRITONSERVER_Error* error = opened->batcher_initialize(&opened->batcher, &opened->model)) {
      return error;
    }
    *strategy = opened.release();
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONPY_StrategyClose(TRITONPY_Strategy* strategy) {
  const std::unique_ptr<TRITONPY_Strategy> closed(strategy);
  TRITONSERVER_Error* of_batch = TRITONPY_BatchEnd(strategy);
  TRITONSERVER_Error* of_batcher = tritonpy::guarded(
      "TRITONBACKEND_ModelBatcherFinalize", [&] { return strategy->batcher_finalize(strategy->batcher); });
  if (of_batcher == nullptr) {
    return of_batch;
  }
  if (of_batch != nullptr) {
    log_and_delete("TRITONBACKEND_ModelBatchFinalize", of_batch);
  }
  return of_batcher;
}

TRITONSERVER_Error* TRITONPY_BatchBegin(TRITONPY_Strategy* strategy) {
  if (strategy->is_open) {
    return nullptr;
  }
  void* userp = nullptr;
  TRITONSERVER_Error* error = tritonpy::guarded("TRITONBACKEND_ModelBatchInitialize", [&] {
    return strategy->batch_initialize(strategy->batcher, &userp);
  });
  strategy->is_open = error == nullptr;
  strategy->userp = strategy->is_open ? userp : nullptr;
  return error;
}

uint32_t TRITONPY_BatchInclude(
    TRITONPY_Strategy* strategy, TRITONBACKEND_Request* const* requests, uint32_t count,
    TRITONSERVER_Error** error) {
  *error = TRITONPY_BatchBegin(strategy);
  if (*error != nullptr) {
    return 0;
  }
  for (uint32_t index = 0; index < count; ++index) {
    bool joins;
    *error = include(strategy, requests[index], &joins);
    if (*error != nullptr && joins) {
      log_and_delete(
          tritonpy::label(requests[index]) + "included in spite of an error of its strategy", *error);
      *error = nullptr;
    }
    if (!joins) {
      return index;
    }
  }
  return count;
}

TRITONSERVER_Error* TRITONPY_BatchEnd(TRITONPY_Strategy* strategy) {
  void* userp = strategy->userp;
  strategy->userp = nullptr;
  const bool was_open = strategy->is_open;
  strategy->is_open = false;
  if (!was_open || userp == nullptr) {
    return nullptr;  // a strategy that keeps nothing of a batch has nothing to end, as in Triton
  }
  return tritonpy::guarded(
      "TRITONBACKEND_ModelBatchFinalize", [&] { return strategy->batch_finalize(userp); });
}
