#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "core/log_ring.h"
#include "core/objects.h"
#include "core/text.h"
#include "guard.h"

using tritonpy::LogLine;
using tritonpy::LogRing;

namespace {

constexpr size_t kMostMessageBytes = 1 << 20;

std::atomic<uint32_t> enabled_levels{1U << TRITONSERVER_LOG_INFO | 1U << TRITONSERVER_LOG_WARN |
                                     1U << TRITONSERVER_LOG_ERROR};
std::atomic<const volatile uint8_t*> followed_levels{nullptr};

uint32_t levels_of_the_moment() {
  const volatile uint8_t* const followed = followed_levels.load(std::memory_order_acquire);
  return followed == nullptr ? enabled_levels.load(std::memory_order_relaxed) : *followed;
}

bool is_level(TRITONSERVER_LogLevel level) {
  return level >= TRITONSERVER_LOG_INFO && level <= TRITONSERVER_LOG_VERBOSE;
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(now.tv_nsec);
}

char letter(int level) {
  switch (level) {
    case TRITONSERVER_LOG_ERROR:
      return 'E';
    case TRITONSERVER_LOG_WARN:
      return 'W';
    case TRITONSERVER_LOG_VERBOSE:
      return followed_levels.load(std::memory_order_relaxed) == nullptr ? 'I' : 'V';
    default:
      return 'I';
  }
}

// As Triton does it, and the log of the server.
void write_to_standard_error(const LogLine& line) {
  const auto seconds = static_cast<time_t>(line.time_ns / 1'000'000'000U);
  tm when{};
  gmtime_r(&seconds, &when);
  char head[80];
  std::snprintf(head, sizeof(head), "%c%02d%02d %02d:%02d:%02d.%06u %d ", letter(line.level),
                when.tm_mon + 1, when.tm_mday, when.tm_hour, when.tm_min, when.tm_sec,
                static_cast<unsigned>(line.time_ns % 1'000'000'000U / 1000), static_cast<int>(getpid()));
  const size_t slash = line.file.rfind('/');
  std::string text = head;
  text += slash == std::string::npos ? line.file : line.file.substr(slash + 1);
  text += ":" + std::to_string(line.line) + "] ";
  tritonpy::add_quoted(text, line.message);
  text += '\n';
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) {
      return;  // nobody reads it
    }
    written += count < 0 ? 0 : static_cast<size_t>(count);
  }
}

}  // namespace

bool TRITONSERVER_LogIsEnabled(TRITONSERVER_LogLevel level) {
  return is_level(level) && (levels_of_the_moment() >> level & 1U) != 0;
}

TRITONSERVER_Error* TRITONSERVER_LogMessage(
    TRITONSERVER_LogLevel level, const char* filename, int line, const char* message) {
  if (!is_level(level)) {
    return tritonpy::invalid("unknown logging level '" + std::to_string(level) + "'");
  }
  if (!TRITONSERVER_LogIsEnabled(level)) {
    return nullptr;
  }
  TRITONPY_REQUIRE(message);
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    LogLine entry;
    entry.level = level;
    entry.line = line;
    entry.file = filename == nullptr ? "" : filename;
    const size_t byte_size = std::strlen(message);
    entry.message.assign(message, byte_size < kMostMessageBytes ? byte_size : kMostMessageBytes);
    if (byte_size > kMostMessageBytes) {
      entry.message += "... (" + std::to_string(byte_size - kMostMessageBytes) + " bytes more)";
    }
    entry.time_ns = now_ns();
    if (!LogRing::get().add(entry)) {
      write_to_standard_error(entry);
    }
    return nullptr;
  });
}

void TRITONPY_LogEnable(uint32_t levels) { enabled_levels.store(levels, std::memory_order_relaxed); }

TRITONSERVER_Error* TRITONPY_LogFollow(int descriptor) {
  void* const place = mmap(nullptr, 1, PROT_READ, MAP_SHARED, descriptor, 0);
  if (place == MAP_FAILED) {
    const std::string text = std::string("cannot see what the server logs: ") + std::strerror(errno);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, text.c_str());
  }
  TRITONPY_LogFollowAt(static_cast<const uint8_t*>(place));
  return nullptr;
}

void TRITONPY_LogFollowAt(const uint8_t* levels) { followed_levels.store(levels, std::memory_order_release); }

void TRITONPY_LogCollect(void) { LogRing::get().collect(); }

bool TRITONPY_LogTake(TRITONPY_LogLine* line) {
  const LogLine* const taken = LogRing::get().take();
  if (taken == nullptr) {
    return false;
  }
  *line = {taken->level,          taken->line,    taken->file.c_str(), taken->message.data(),
           taken->message.size(), taken->time_ns, taken->dropped};
  return true;
}

bool TRITONPY_LogFlush(uint32_t timeout_ms) { return LogRing::get().flush(timeout_ms); }

void TRITONPY_LogStop(void) { LogRing::get().stop(); }
