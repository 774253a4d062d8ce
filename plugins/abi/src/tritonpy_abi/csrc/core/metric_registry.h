// The families of metrics of this process, and what plugins hold of them. A name is one family, however often
// it is made: whoever asks for the same name and labels counts into the same series. What nobody holds is
// gone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api.h"

namespace tritonpy {

using Labels = std::map<std::string, std::string>;

// Values change without a lock.
struct Series {
  explicit Series(std::vector<double> its_bounds);

  void add(double to_value);
  void set(double to);
  void observe(double observed);

  std::atomic<double> value{0};  // of a histogram: the sum
  const std::vector<double> bounds;
  std::vector<std::atomic<uint64_t>> counts;  // one for each bound, and one for what is larger
  std::atomic<uint64_t> set_count{0};
  size_t holder_count = 0;                    // guarded by the registry
};

// Guarded by the registry.
struct Family {
  std::string name;
  std::string description;
  TRITONSERVER_MetricKind kind;
  std::map<Labels, std::shared_ptr<Series>> series;
  size_t holder_count = 0;
};

class MetricRegistry {
 public:
  // The one of this process. It is never destroyed: plugins may count while the process ends.
  static MetricRegistry& get();

  // These return nullptr where the name is taken by a family of another kind.
  std::shared_ptr<Family> hold(const char* name, const char* description, TRITONSERVER_MetricKind kind);
  std::shared_ptr<Series> join(Family& family, const Labels& labels, const std::vector<double>& bounds);

  void leave(Family& family, const Labels& labels);
  void release(const Family& family);

  std::string json();  // "" where there is no series

  // A value, or what there is, has changed. From any thread, without waiting unless somebody waits for it.
  void note_change();
  // Waits until something has changed.
  void wait();
  // True if something has changed since this was asked.
  bool take_change();
  // True there: something has changed since.
  const volatile bool* flag() const { return reinterpret_cast<const volatile bool*>(&has_changed_); }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Family>> families_;

  std::atomic<bool> has_changed_{false};
  static_assert(sizeof(std::atomic<bool>) == sizeof(bool), "its flag is looked at from outside");
  std::mutex waiting_;  // lets nobody who waits miss a change
  std::condition_variable changed_;
};

}  // namespace tritonpy
