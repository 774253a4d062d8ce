// Memory of the driver that backends write outputs to, so that nobody copies them on their way.
#pragma once

#include <cstdint>

namespace tritonpy {

struct Block {
  void* data = nullptr;
  uint64_t byte_size = 0;
};

// One for so many bytes, or none. From any thread.
Block take_block(uint64_t byte_size);
// One that was taken and not sent.
void return_block(const Block& block);

}  // namespace tritonpy
