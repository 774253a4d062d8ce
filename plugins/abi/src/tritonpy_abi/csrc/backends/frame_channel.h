// A worker's end of its channel to the server, while executions read from it: whoever waits for a frame reads for
// all the others, as in the core's `workers/child/inbox.py`.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>

namespace tritonpy {

class FrameChannel {
 public:
  // The descriptor stays the caller's; `received` was read from it before.
  FrameChannel(int descriptor, std::string received);

  // The next command of the server, or the next reply to what was asked; false when the server has closed it, or
  // this end has.
  bool next_command(std::string* frame) { return next(&commands_, frame); }
  bool next_reply(std::string* frame) { return next(&replies_, frame); }
  // Never in the midst of another frame; false when the other end is gone.
  bool write(const char* frame, size_t byte_size);

 private:
  bool next(std::deque<std::string>* wanted, std::string* frame);
  void receive(std::unique_lock<std::mutex>* lock);
  void cut();

  const int descriptor_;
  std::mutex writing_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::string received_;  // the beginning of a frame
  std::deque<std::string> commands_;
  std::deque<std::string> replies_;
  int waiting_count_ = 0;
  bool is_read_ = false;
  bool is_closed_ = false;
};

}  // namespace tritonpy
