#include "calls/threads.h"

#include <system_error>
#include <thread>

namespace tritonpy {

namespace {

constexpr size_t kMostFree = 2;  // those that have nothing to do; others end

}  // namespace

CallbackThreads& CallbackThreads::get() {
  static auto* const threads = new CallbackThreads;  // for ever: its threads outlive the end of `main`
  return *threads;
}

void CallbackThreads::run(std::function<void()> work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(work));
    if (waiting_.size() <= free_count_) {
      changed_.notify_one();
      return;
    }
  }
  try {
    std::thread([this] { serve(); }).detach();
  } catch (const std::system_error&) {  // the process may have no more
    std::unique_lock<std::mutex> lock(mutex_);
    if (waiting_.empty()) {
      return;
    }
    const std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next();
  }
}

void CallbackThreads::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (waiting_.empty()) {
      if (free_count_ == kMostFree) {
        return;
      }
      ++free_count_;
      changed_.wait(lock, [this] { return !waiting_.empty(); });
      --free_count_;
    }
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace tritonpy
