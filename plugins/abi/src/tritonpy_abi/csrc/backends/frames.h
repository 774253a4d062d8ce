// Frames of a worker's channel, as the core's `ipc/frame.py` describes them. What executions need most is read and
// written here: batches whose tensors stand in the frame, and the answers to them. All else is read in Python.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api.h"

namespace tritonpy {

// Of the whole frame with its length in front; 0 for what is none.
int frame_kind(const std::string& frame);
// The bytes of a frame that begins there, its length included; 0 where less than its length is there.
uint64_t frame_size(std::string_view bytes);

constexpr int kExecuteFrame = 4;
constexpr int kCalledFrame = 6;
constexpr int kAnswerFrame = 7;
constexpr int kExecutedFrame = 14;

// Text that the other end can read, and every function for texts that end with a zero.
bool is_utf8(std::string_view text);

// Bytes that are 1 when the request in their slot was cancelled.
struct CancelFlags {
  const unsigned char* flags;
  uint64_t count;
};

// A batch as a frame brought it, and the blocks of its requests, whose tensors are aligned for any type.
class FrameBatch {
 public:
  // Nullptr where the frame is to be read in Python; it is left as it is then.
  static std::unique_ptr<FrameBatch> read(
      std::string& frame, const std::vector<std::string>& every_output, const CancelFlags& cancel_flags);

  uint64_t number() const { return number_; }
  const std::vector<TRITONBACKEND_Request*>& requests() const { return requests_; }
  const std::string& frame() const { return frame_; }

 private:
  class Reader;

  struct FreeData {
    void operator()(char* block) const;
  };

  std::string frame_;
  uint64_t number_ = 0;
  std::vector<TRITONBACKEND_Request*> requests_;
  std::vector<std::unique_ptr<uint64_t[]>> blocks_;
  std::vector<std::unique_ptr<char, FreeData>> data_;
  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> shapes_;
  std::deque<std::vector<const char*>> wanted_;
  std::deque<std::vector<TRITONPY_RequestParameter>> parameters_;
};

// Writes a frame, from its kind on.
class FrameWriter {
 public:
  FrameWriter();

  void tuple(size_t count);
  void list(size_t count);
  void integer(int64_t value);
  void text(std::string_view value);
  void bytes(const void* data, size_t size);
  void none();
  // The frame, with its length.
  const std::string& end();

 private:
  void size(size_t count);

  std::string frame_;
};

}  // namespace tritonpy
