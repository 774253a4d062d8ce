// Lines that wait to be taken. A plugin's threads never wait for whoever writes the log: where there is no
// room, lines are counted and dropped.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

namespace tritonpy {

struct LogLine {
  int level = 0;
  int line = 0;
  std::string file;
  std::string message;
  uint64_t time_ns = 0;
  uint64_t dropped = 0;
};

class LogRing {
 public:
  // The one of this process. It is never destroyed: plugins may log while the process ends.
  static LogRing& get();

  // Gives the line back where nobody collects lines, or the process was forked from one where somebody did.
  bool add(LogLine& line);

  void collect();
  // A line, one of level -1 that only says how many were dropped, or nullptr after `stop`.
  const LogLine* take();
  bool flush(uint32_t timeout_ms);
  void stop();

 private:
  LogRing();

  void lock_for_fork() { mutex_.lock(); }
  void unlock_after_fork() { mutex_.unlock(); }
  void begin_anew_in_child();

  static constexpr size_t kMostLines = 10'000;
  static constexpr size_t kMostBytes = 8 << 20;

  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<LogLine> lines_;
  LogLine taken_;
  size_t bytes_ = 0;
  uint64_t dropped_ = 0;
  uint64_t added_ = 0;
  uint64_t handled_ = 0;  // by the taker, which has come back since
  bool has_taken_ = false;
  bool is_collecting_ = false;
};

}  // namespace tritonpy
