#include "backends/blocks.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "api.h"

namespace {

using tritonpy::Block;

// All models of this process have the same: the memory that outputs are read from is the process's.
struct Blocks {
  std::mutex mutex;  // guards what is below
  std::vector<Block> unused;  // the oldest first
};

Blocks& blocks() {
  static auto* const all = new Blocks;  // never gone: threads of backends may outlive the driver
  return *all;
}

}  // namespace

Block tritonpy::take_block(uint64_t byte_size) {
  Blocks& all = blocks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto fits = [&](const Block& block) {
    return block.byte_size >= byte_size && block.byte_size / 2 < byte_size;
  };
  const auto found = std::find_if(all.unused.begin(), all.unused.end(), fits);
  if (found == all.unused.end()) {
    return {};
  }
  const Block block = *found;
  all.unused.erase(found);
  return block;
}

void tritonpy::return_block(const Block& block) { TRITONPY_BlockAdd(block.data, block.byte_size); }

void TRITONPY_BlockAdd(void* data, uint64_t byte_size) {
  Blocks& all = blocks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.unused.push_back({data, byte_size});
}

void* TRITONPY_BlockWithdraw() {
  Blocks& all = blocks();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.unused.empty()) {
    return nullptr;
  }
  void* const data = all.unused.front().data;
  all.unused.erase(all.unused.begin());
  return data;
}
