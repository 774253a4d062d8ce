#include "core/metric_registry.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "core/text.h"

namespace tritonpy {

namespace {

void add_number(std::string& to, double number) {
  if (std::isfinite(number)) {
    char digits[32];
    std::snprintf(digits, sizeof(digits), "%.17g", number);
    to += digits;
  } else {
    to += std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";  // as Python reads them
  }
}

// Adds what `add` does for each item, with commas between.
template <typename Items, typename Add>
void add_all(std::string& to, const char* brackets, const Items& items, Add&& add) {
  to += brackets[0];
  bool is_first = true;
  for (const auto& item : items) {
    to += std::exchange(is_first, false) ? "" : ",";
    add(item);
  }
  to += brackets[1];
}

void add_series(std::string& to, const Labels& labels, const Series& series) {
  to += "{\"labels\":";
  add_all(to, "{}", labels, [&to](const auto& label) {
    add_quoted(to, label.first);
    to += ':';
    add_quoted(to, label.second);
  });
  to += ",\"set_count\":" + std::to_string(series.set_count.load(std::memory_order_acquire));
  to += ",\"value\":";
  add_number(to, series.value.load(std::memory_order_relaxed));
  to += ",\"bounds\":";
  add_all(to, "[]", series.bounds, [&to](double bound) { add_number(to, bound); });
  to += ",\"counts\":";
  add_all(to, "[]", series.counts, [&to](const std::atomic<uint64_t>& count) {
    to += std::to_string(count.load(std::memory_order_relaxed));
  });
  to += '}';
}

}  // namespace

Series::Series(std::vector<double> its_bounds) : bounds(std::move(its_bounds)), counts(bounds.size() + 1) {}

void Series::add(double to_value) {
  double before = value.load(std::memory_order_relaxed);
  while (!value.compare_exchange_weak(before, before + to_value, std::memory_order_relaxed)) {
  }
}

void Series::set(double to) {
  value.store(to, std::memory_order_relaxed);
  set_count.fetch_add(1, std::memory_order_release);  // who sees that it was set sees the number
}

void Series::observe(double observed) {
  // What is no number is in the last bucket, as it is not smaller than any bound.
  const auto bound = std::partition_point(
      bounds.begin(), bounds.end(), [observed](double candidate) { return !(observed <= candidate); });
  counts[static_cast<size_t>(bound - bounds.begin())].fetch_add(1, std::memory_order_relaxed);
  add(observed);
}

MetricRegistry& MetricRegistry::get() {
  static MetricRegistry* const registry = new MetricRegistry;
  return *registry;
}

std::shared_ptr<Family> MetricRegistry::hold(
    const char* name, const char* description, TRITONSERVER_MetricKind kind) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Family>& family = families_[name];
  if (family == nullptr) {
    family = std::make_shared<Family>(Family{name, description, kind, {}, 0});
  } else if (family->kind != kind) {
    return nullptr;
  }
  ++family->holder_count;
  return family;
}

void MetricRegistry::release(const Family& family) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = families_.find(family.name);
  if (--found->second->holder_count == 0) {
    families_.erase(found);
  }
}

std::shared_ptr<Series> MetricRegistry::join(
    Family& family, const Labels& labels, const std::vector<double>& bounds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Series>& series = family.series[labels];
  if (series == nullptr) {
    series = std::make_shared<Series>(bounds);
    note_change();
  }
  ++series->holder_count;
  return series;
}

void MetricRegistry::leave(Family& family, const Labels& labels) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = family.series.find(labels);
  if (--found->second->holder_count == 0) {
    family.series.erase(found);
    note_change();
  }
}

void MetricRegistry::note_change() {
  // Always exchanged, and not only looked at: whoever takes it afterwards sees the value that was changed before.
  if (!has_changed_.exchange(true)) {
    const std::lock_guard<std::mutex> lock(waiting_);
    changed_.notify_all();
  }
}

void MetricRegistry::wait() {
  std::unique_lock<std::mutex> lock(waiting_);
  changed_.wait(lock, [this] { return has_changed_.load(); });
}

bool MetricRegistry::take_change() { return has_changed_ && has_changed_.exchange(false); }

std::string MetricRegistry::json() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<const Family*> shown;
  for (const auto& [name, family] : families_) {
    if (!family->series.empty()) {
      shown.push_back(family.get());
    }
  }
  std::string text;
  if (shown.empty()) {
    return text;
  }
  add_all(text, "[]", shown, [&text](const Family* family) {
    text += "{\"name\":";
    add_quoted(text, family->name);
    text += ",\"description\":";
    add_quoted(text, family->description);
    text += ",\"kind\":" + std::to_string(family->kind) + ",\"metrics\":";
    add_all(text, "[]", family->series,
            [&text](const auto& entry) { add_series(text, entry.first, *entry.second); });
    text += '}';
  });
  return text;
}

}  // namespace tritonpy
