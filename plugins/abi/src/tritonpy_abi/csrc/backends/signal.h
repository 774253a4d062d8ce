// A descriptor that wakes an event loop.
#pragma once

#include <atomic>

namespace tritonpy {

// Raised by any thread, cleared by the one that wakes: once for all that has happened in between.
class Signal {
 public:
  Signal();
  ~Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

  // Negative where the process has no descriptor left.
  int descriptor() const { return descriptor_; }
  void raise();
  // Comes before one looks at what has happened, so that nothing is overlooked.
  void clear();

 private:
  const int descriptor_;
  std::atomic<bool> is_raised_{false};
};

}  // namespace tritonpy
