#include "backends/frame_channel.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "backends/frames.h"

namespace tritonpy {

namespace {

constexpr size_t kReceiveByteSize = 64 * 1024;

}  // namespace

FrameChannel::FrameChannel(int descriptor, std::string received)
    : descriptor_(descriptor), received_(std::move(received)) {
  cut();
}

bool FrameChannel::next(std::deque<std::string>* wanted, std::string* frame) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (wanted->empty() && !is_closed_) {
    if (is_read_) {
      waiting_count_ += 1;
      changed_.wait(lock);
      waiting_count_ -= 1;
    } else {
      receive(&lock);
    }
  }
  if (wanted->empty()) {
    return false;
  }
  frame->swap(wanted->front());
  wanted->pop_front();
  return true;
}

void FrameChannel::receive(std::unique_lock<std::mutex>* lock) {
  is_read_ = true;
  lock->unlock();
  std::array<char, kReceiveByteSize> bytes;
  ssize_t count = 0;
  do {
    count = recv(descriptor_, bytes.data(), bytes.size(), 0);
  } while (count < 0 && errno == EINTR);
  lock->lock();
  is_read_ = false;
  if (count <= 0) {
    is_closed_ = true;
  } else {
    received_.append(bytes.data(), static_cast<size_t>(count));
    cut();
  }
  if (waiting_count_ != 0) {
    changed_.notify_all();
  }
}

void FrameChannel::cut() {
  size_t at = 0;
  while (true) {
    const uint64_t size = frame_size(std::string_view(received_).substr(at));
    if (size == 0 || size > received_.size() - at) {
      break;
    }
    std::string frame = received_.substr(at, size);
    at += size;
    const int kind = frame_kind(frame);
    (kind == kCalledFrame || kind == kAnswerFrame ? replies_ : commands_).push_back(std::move(frame));
  }
  received_.erase(0, at);
}

bool FrameChannel::write(const char* frame, size_t byte_size) {
  const std::lock_guard<std::mutex> lock(writing_);
  while (byte_size != 0) {
    const ssize_t count = send(descriptor_, frame, byte_size, MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      return false;
    }
    frame += count;
    byte_size -= static_cast<size_t>(count);
  }
  return true;
}

}  // namespace tritonpy
