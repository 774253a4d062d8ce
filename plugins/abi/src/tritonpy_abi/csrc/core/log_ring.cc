#include "core/log_ring.h"

#include <pthread.h>

#include <chrono>
#include <new>
#include <utility>

namespace tritonpy {

LogRing& LogRing::get() {
  static LogRing* const ring = new LogRing;
  return *ring;
}

LogRing::LogRing() {
  // Another thread may hold the mutex while the process is forked, and does not exist in the child.
  pthread_atfork([] { get().lock_for_fork(); }, [] { get().unlock_after_fork(); },
                 [] { get().begin_anew_in_child(); });
}

bool LogRing::add(LogLine& line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_collecting_) {
    return false;
  }
  const size_t byte_size = line.message.size() + line.file.size();
  if (lines_.size() >= kMostLines || bytes_ + byte_size > kMostBytes) {
    ++dropped_;
    return true;
  }
  line.dropped = std::exchange(dropped_, 0);
  bytes_ += byte_size;
  lines_.push_back(std::move(line));
  ++added_;
  changed_.notify_all();
  return true;
}

void LogRing::collect() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_collecting_ = true;
}

const LogLine* LogRing::take() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (std::exchange(has_taken_, false)) {
    ++handled_;
    changed_.notify_all();
  }
  changed_.wait(lock, [this] { return !lines_.empty() || dropped_ != 0 || !is_collecting_; });
  if (lines_.empty()) {
    taken_ = LogLine();
    taken_.level = -1;
    taken_.dropped = std::exchange(dropped_, 0);
    return taken_.dropped != 0 ? &taken_ : nullptr;
  }
  taken_ = std::move(lines_.front());
  lines_.pop_front();
  bytes_ -= taken_.message.size() + taken_.file.size();
  has_taken_ = true;
  return &taken_;
}

bool LogRing::flush(uint32_t timeout_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t target = added_;
  return changed_.wait_for(
      lock, std::chrono::milliseconds(timeout_ms), [this, target] { return handled_ >= target; });
}

void LogRing::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_collecting_ = false;
  changed_.notify_all();
}

void LogRing::begin_anew_in_child() {
  // What waits here is written by the parent. Its threads may have waited for the condition, which can not
  // even be destroyed then.
  new (&changed_) std::condition_variable;
  lines_.clear();
  bytes_ = dropped_ = added_ = handled_ = 0;
  has_taken_ = is_collecting_ = false;
  mutex_.unlock();
}

}  // namespace tritonpy
