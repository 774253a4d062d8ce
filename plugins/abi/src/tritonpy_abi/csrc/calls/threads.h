// The threads that call backends back.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace tritonpy {

// A callback may wait for what another one brings, so no work waits for a thread that is busy: a new one begins.
class CallbackThreads {
 public:
  static CallbackThreads& get();

  // Runs the work on a thread of its own or one that is free; on this one where there are no threads left.
  void run(std::function<void()> work);

 private:
  void serve();

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  size_t free_count_ = 0;
};

}  // namespace tritonpy
