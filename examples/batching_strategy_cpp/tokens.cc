// A batching strategy in C++ that remembers: a batch has at most so many tokens, and the load says how many.
//
// Each batch that leaves requests behind doubles the budget, up to MAX_TOKENS: executions become fewer and
// larger. Each CALM_MILLISECONDS without one halve it, down to MIN_TOKENS: the first batches after a calm are
// small and quick. A model sets these, and TOKENS_INPUT, in its configuration:
//   parameters { key: "MIN_TOKENS" value { string_value: "32" } }
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "tritonpy/batching.h"
#include "tritonpy/parameters.h"

namespace {

using Clock = std::chrono::steady_clock;

// An error of Triton's as an exception.
struct Failure : std::runtime_error {
  Failure(TRITONSERVER_Error_Code code, const std::string &text) : std::runtime_error(text), code(code) {}
  TRITONSERVER_Error_Code code;
};

// For every call of the server: go on, or throw.
void check(TRITONSERVER_Error *error) {
  if (error == nullptr) return;
  const Failure failure(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  throw failure;
}

// For every function of ours: exceptions must not leave through C, so they become errors again.
template <typename Body>
TRITONSERVER_Error *guarded(Body body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Failure &failure) {
    return TRITONSERVER_ErrorNew(failure.code, failure.what());
  } catch (const std::exception &exception) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, exception.what());
  }
}

// A gauge on the server's metrics page; without one, where the server has none.
class Gauge {
 public:
  Gauge(const char *name, const char *description, TRITONBACKEND_Model *model) {
    const char *model_name;
    check(TRITONBACKEND_ModelName(model, &model_name));
    const std::unique_ptr<TRITONSERVER_Parameter, decltype(&TRITONSERVER_ParameterDelete)> label(
        TRITONSERVER_ParameterNew("model", TRITONSERVER_PARAMETER_STRING, model_name),
        TRITONSERVER_ParameterDelete);
    const TRITONSERVER_Parameter *labels[] = {label.get()};
    ignore(TRITONSERVER_MetricFamilyNew(&family_, TRITONSERVER_METRIC_KIND_GAUGE, name, description));
    if (family_ != nullptr) ignore(TRITONSERVER_MetricNew(&metric_, family_, labels, 1));
  }
  Gauge(const Gauge &) = delete;
  ~Gauge() {
    if (metric_ != nullptr) ignore(TRITONSERVER_MetricDelete(metric_));
    if (family_ != nullptr) ignore(TRITONSERVER_MetricFamilyDelete(family_));
  }
  void set(uint64_t value) {
    if (metric_ != nullptr) ignore(TRITONSERVER_MetricSet(metric_, static_cast<double>(value)));
  }

 private:
  static void ignore(TRITONSERVER_Error *error) {
    if (error != nullptr) TRITONSERVER_ErrorDelete(error);
  }

  TRITONSERVER_MetricFamily *family_ = nullptr;
  TRITONSERVER_Metric *metric_ = nullptr;
};

uint64_t number(TRITONBACKEND_Model *model, const char *key, const char *preset) {
  char text[64];
  std::strcpy(text, preset);
  check(tritonpy_model_parameter(model, key, text, sizeof text));
  uint64_t value = 0;
  const char *const end = text + std::strlen(text);
  const auto [stop, problem] = std::from_chars(text, end, value);
  if (problem != std::errc() || stop != end || value == 0) {
    throw Failure(
        TRITONSERVER_ERROR_INVALID_ARG,
        std::string("parameter ") + key + ": got '" + text + "', expected a whole number, 1 or more");
  }
  return value;
}

}  // namespace

// What this strategy knows of a model. Calls for one model never overlap, so that nothing here needs a lock.
struct TRITONBACKEND_Batcher {
  explicit TRITONBACKEND_Batcher(TRITONBACKEND_Model *model)
      : least(number(model, "MIN_TOKENS", "32")),
        most(std::max(least, number(model, "MAX_TOKENS", "1024"))),
        calm(number(model, "CALM_MILLISECONDS", "10000")),
        budget(least),
        changed(Clock::now()),
        gauge("batch_token_budget", "Tokens that a batch may have now", model) {
    check(tritonpy_model_parameter(model, "TOKENS_INPUT", input, sizeof input));
    gauge.set(budget);
  }

  void set(uint64_t tokens, Clock::time_point now) {
    budget = std::clamp(tokens, least, most);
    changed = now;
    gauge.set(budget);
  }

  char input[64] = "TOKENS";
  const uint64_t least;
  const uint64_t most;
  const std::chrono::milliseconds calm;
  uint64_t budget;
  Clock::time_point changed;
  Gauge gauge;
};

namespace {

// One attempt at a batch. It may be given up and begun again for the same requests: what it has found out
// counts when it is over.
class Attempt {
 public:
  explicit Attempt(TRITONBACKEND_Batcher &batcher) : batcher_(batcher) {}

  bool take(TRITONBACKEND_Request *request) {
    const uint64_t tokens = tokens_of(request);
    // What is larger than the budget has to run alone: Triton asks again and again about what is never taken.
    is_full_ = tokens_ > 0 && tokens_ + tokens > batcher_.budget;
    if (!is_full_) tokens_ += tokens;
    return !is_full_;
  }

  void end() const {
    const auto now = Clock::now();
    if (is_full_) {
      batcher_.set(batcher_.budget * 2, now);
    } else if (now - batcher_.changed >= batcher_.calm) {
      batcher_.set(batcher_.budget / 2, now);
    }
  }

 private:
  uint64_t tokens_of(TRITONBACKEND_Request *request) const {
    TRITONBACKEND_Input *input;
    const int64_t *shape;
    uint32_t dim_count;
    check(TRITONBACKEND_RequestInput(request, batcher_.input, &input));
    check(TRITONBACKEND_InputProperties(input, nullptr, nullptr, &shape, &dim_count, nullptr, nullptr));
    uint64_t tokens = 1;
    for (uint32_t dim = 0; dim < dim_count; ++dim) tokens *= static_cast<uint64_t>(shape[dim]);
    return tokens;
  }

  TRITONBACKEND_Batcher &batcher_;
  uint64_t tokens_ = 0;
  bool is_full_ = false;
};

}  // namespace

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  return guarded([&] { *batcher = new TRITONBACKEND_Batcher(model); });
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  delete batcher;
  return nullptr;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  // It is our own object: the C API calls it const, but it was made without.
  return guarded([&] { *userp = new Attempt(const_cast<TRITONBACKEND_Batcher &>(*batcher)); });
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  return guarded([&] { *should_include = static_cast<Attempt *>(userp)->take(request); });
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  const std::unique_ptr<Attempt> attempt(static_cast<Attempt *>(userp));
  return guarded([&] { attempt->end(); });
}
