// Metrics of plugins, with Triton's rules and words.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/metric_registry.h"
#include "core/objects.h"
#include "guard.h"

using tritonpy::Family;
using tritonpy::Labels;
using tritonpy::MetricRegistry;
using tritonpy::Series;

struct TRITONSERVER_MetricArgs {
  bool is_histogram = false;
  std::vector<double> bounds;
};

struct TRITONSERVER_MetricFamily {
  std::shared_ptr<Family> family;
  std::atomic<size_t> metric_count{0};
};

struct TRITONSERVER_Metric {
  TRITONSERVER_MetricFamily* family;  // not deleted before this
  Labels labels;
  std::shared_ptr<Series> series;

  TRITONSERVER_MetricKind kind() const { return family->family->kind; }
};

namespace {

constexpr const char* kKinds[] = {"COUNTER", "GAUGE", "HISTOGRAM"};

TRITONSERVER_Error* unsupported(const TRITONSERVER_Metric& metric, const char* what) {
  const std::string text =
      std::string("TRITONSERVER_METRIC_KIND_") + kKinds[metric.kind()] + " does not support " + what;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, text.c_str());
}

bool is_name(const std::string& name, bool may_have_colons) {
  if (name.empty() || name.rfind("__", 0) == 0) {
    return false;
  }
  for (size_t index = 0; index < name.size(); ++index) {
    const char at = name[index];
    const bool is_letter = (at >= 'a' && at <= 'z') || (at >= 'A' && at <= 'Z') || at == '_';
    const bool is_digit = at >= '0' && at <= '9' && index > 0;
    if (!is_letter && !is_digit && !(may_have_colons && at == ':')) {
      return false;
    }
  }
  return true;
}

TRITONSERVER_Error* read_labels(
    const TRITONSERVER_Parameter** parameters, uint64_t count, bool has_buckets, Labels& labels) {
  for (uint64_t index = 0; index < count; ++index) {
    const TRITONSERVER_Parameter* const label = parameters[index];
    if (label == nullptr) {
      return tritonpy::invalid("label " + std::to_string(index) + " of the metric is NULL");
    }
    if (label->type != TRITONSERVER_PARAMETER_STRING) {
      return tritonpy::invalid("Parameter [" + label->name +
                               "] must have a type of TRITONSERVER_PARAMETER_STRING to be added as a label.");
    }
    if (!is_name(label->name, false) || (has_buckets && label->name == "le")) {
      return tritonpy::invalid("Invalid label name: '" + label->name + "'");
    }
    labels[label->name] = label->text;
  }
  return nullptr;
}

TRITONSERVER_Error* read_bounds(
    TRITONSERVER_MetricKind kind, const TRITONSERVER_MetricArgs* args, std::vector<double>& bounds) {
  if (kind != TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    const std::string name = kind == TRITONSERVER_METRIC_KIND_COUNTER ? "counter" : "gauge";
    return args == nullptr ? nullptr
                           : tritonpy::invalid("Unexpected args found in " + name + " Metric constructor.");
  }
  if (args == nullptr) {
    return tritonpy::invalid("Bucket boundaries not found in Metric args.");
  }
  if (!args->is_histogram) {
    return tritonpy::invalid("Metric args not set to histogram kind.");
  }
  bounds = args->bounds;
  if (!bounds.empty() && std::isinf(bounds.back()) && bounds.back() > 0) {
    bounds.pop_back();  // there is such a bucket anyway
  }
  for (size_t index = 0; index < bounds.size(); ++index) {
    const bool is_sorted = index == 0 || bounds[index - 1] < bounds[index];
    if (!is_sorted || !std::isfinite(bounds[index])) {
      return tritonpy::invalid("Bucket Boundaries must be strictly sorted");
    }
  }
  return nullptr;
}

}  // namespace

TRITONSERVER_Error* TRITONSERVER_MetricFamilyNew(
    TRITONSERVER_MetricFamily** family, TRITONSERVER_MetricKind kind, const char* name,
    const char* description) {
  TRITONPY_REQUIRE(family);
  TRITONPY_REQUIRE(name);
  TRITONPY_REQUIRE(description);
  if (kind < TRITONSERVER_METRIC_KIND_COUNTER || kind > TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    return tritonpy::invalid("Unsupported kind passed to MetricFamily constructor.");
  }
  if (!is_name(name, true)) {
    return tritonpy::invalid("Invalid metric name: '" + std::string(name) + "'");
  }
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    std::shared_ptr<Family> held = MetricRegistry::get().hold(name, description, kind);
    if (held == nullptr) {
      return tritonpy::invalid("Family name already exists with different type: '" + std::string(name) + "'");
    }
    *family = new TRITONSERVER_MetricFamily{std::move(held)};
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricFamilyDelete(TRITONSERVER_MetricFamily* family) {
  if (family == nullptr) {
    return nullptr;
  }
  if (family->metric_count != 0) {
    return TRITONSERVER_ErrorNew(
        TRITONSERVER_ERROR_INTERNAL,
        "Must call MetricDelete on all dependent metrics before calling MetricFamilyDelete.");
  }
  MetricRegistry::get().release(*family->family);
  delete family;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_GetMetricFamilyKind(
    TRITONSERVER_MetricFamily* family, TRITONSERVER_MetricKind* kind) {
  TRITONPY_REQUIRE(family);
  TRITONPY_REQUIRE(kind);
  *kind = family->family->kind;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricArgsNew(TRITONSERVER_MetricArgs** args) {
  TRITONPY_REQUIRE(args);
  *args = new TRITONSERVER_MetricArgs;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricArgsSetHistogram(
    TRITONSERVER_MetricArgs* args, const double* bounds, uint64_t count) {
  TRITONPY_REQUIRE(args);
  if (count != 0) {
    TRITONPY_REQUIRE(bounds);
  }
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    args->bounds.assign(bounds, bounds + count);
    args->is_histogram = true;
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricArgsDelete(TRITONSERVER_MetricArgs* args) {
  delete args;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricNew(
    TRITONSERVER_Metric** metric, TRITONSERVER_MetricFamily* family, const TRITONSERVER_Parameter** labels,
    uint64_t label_count) {
  return TRITONSERVER_MetricNewWithArgs(metric, family, labels, label_count, nullptr);
}

TRITONSERVER_Error* TRITONSERVER_MetricNewWithArgs(
    TRITONSERVER_Metric** metric, TRITONSERVER_MetricFamily* family, const TRITONSERVER_Parameter** labels,
    uint64_t label_count, const TRITONSERVER_MetricArgs* args) {
  TRITONPY_REQUIRE(metric);
  TRITONPY_REQUIRE(family);
  if (label_count != 0) {
    TRITONPY_REQUIRE(labels);
  }
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    const TRITONSERVER_MetricKind kind = family->family->kind;
    std::vector<double> bounds;
    if (TRITONSERVER_Error* const error = read_bounds(kind, args, bounds)) {
      return error;
    }
    auto made = std::make_unique<TRITONSERVER_Metric>(TRITONSERVER_Metric{family, {}, nullptr});
    const bool has_buckets = kind == TRITONSERVER_METRIC_KIND_HISTOGRAM;
    if (TRITONSERVER_Error* const error = read_labels(labels, label_count, has_buckets, made->labels)) {
      return error;
    }
    made->series = MetricRegistry::get().join(*family->family, made->labels, bounds);
    ++family->metric_count;
    *metric = made.release();
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_MetricDelete(TRITONSERVER_Metric* metric) {
  if (metric == nullptr) {
    return nullptr;
  }
  MetricRegistry::get().leave(*metric->family->family, metric->labels);
  --metric->family->metric_count;
  delete metric;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricValue(TRITONSERVER_Metric* metric, double* value) {
  TRITONPY_REQUIRE(metric);
  TRITONPY_REQUIRE(value);
  if (metric->kind() == TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    return unsupported(*metric, "Value");
  }
  *value = metric->series->value.load(std::memory_order_relaxed);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricIncrement(TRITONSERVER_Metric* metric, double value) {
  TRITONPY_REQUIRE(metric);
  if (metric->kind() == TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    return unsupported(*metric, "Increment");
  }
  if (metric->kind() == TRITONSERVER_METRIC_KIND_COUNTER && value < 0) {
    return tritonpy::invalid(
        "TRITONSERVER_METRIC_KIND_COUNTER can only be incremented monotonically by non-negative values.");
  }
  metric->series->add(value);
  MetricRegistry::get().note_change();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricSet(TRITONSERVER_Metric* metric, double value) {
  TRITONPY_REQUIRE(metric);
  if (metric->kind() != TRITONSERVER_METRIC_KIND_GAUGE) {
    return unsupported(*metric, "Set");
  }
  metric->series->set(value);
  MetricRegistry::get().note_change();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MetricObserve(TRITONSERVER_Metric* metric, double value) {
  TRITONPY_REQUIRE(metric);
  if (metric->kind() != TRITONSERVER_METRIC_KIND_HISTOGRAM) {
    return unsupported(*metric, "Observe");
  }
  metric->series->observe(value);
  MetricRegistry::get().note_change();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_GetMetricKind(TRITONSERVER_Metric* metric, TRITONSERVER_MetricKind* kind) {
  TRITONPY_REQUIRE(metric);
  TRITONPY_REQUIRE(kind);
  *kind = metric->kind();
  return nullptr;
}

char* TRITONPY_MetricsRead(size_t* byte_size) {
  const std::string json = MetricRegistry::get().json();
  if (json.empty()) {
    return nullptr;
  }
  auto* const copy = static_cast<char*>(std::malloc(json.size()));
  if (copy != nullptr) {
    std::memcpy(copy, json.data(), json.size());
    *byte_size = json.size();
  }
  return copy;
}

void TRITONPY_MetricsFree(char* json) { std::free(json); }

void TRITONPY_MetricsWait(void) { MetricRegistry::get().wait(); }

bool TRITONPY_MetricsChanged(void) { return MetricRegistry::get().take_change(); }

const volatile bool* TRITONPY_MetricsFlag(void) { return MetricRegistry::get().flag(); }
