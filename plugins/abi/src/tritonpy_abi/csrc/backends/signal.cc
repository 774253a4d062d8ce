#include "backends/signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace tritonpy {

Signal::Signal() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Signal::~Signal() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void Signal::raise() {
  if (is_raised_.exchange(true)) {
    return;
  }
  const uint64_t one = 1;
  while (write(descriptor_, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void Signal::clear() {
  uint64_t count = 0;
  while (read(descriptor_, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
  is_raised_.store(false);
}

}  // namespace tritonpy
