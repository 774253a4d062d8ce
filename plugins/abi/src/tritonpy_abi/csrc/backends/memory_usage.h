// What a model or an instance says of the memory that it uses.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "core/objects.h"

namespace tritonpy {

// From any thread.
class MemoryReport {
 public:
  // Other kinds and devices than these stay as they were reported before.
  TRITONSERVER_Error* add(const char* function, TRITONSERVER_BufferAttributes* const* usages, uint32_t count);
  bool take_change() { return has_changed_ && has_changed_.exchange(false); }
  uint32_t read(TRITONPY_MemoryUsage* to, uint32_t room);

 private:
  std::mutex mutex_;  // guards the next line
  std::map<std::pair<TRITONSERVER_MemoryType, int64_t>, uint64_t> byte_sizes_;
  std::atomic<bool> has_changed_{false};
};

}  // namespace tritonpy
