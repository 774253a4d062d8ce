// Threads that are in a cache's functions while everybody else goes on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "caches/calls.h"

namespace tritonpy {

struct CacheCall {
  enum class Kind { kInitialize, kFinalize, kLookup, kInsert };
  Kind kind;
  uint64_t number;
  std::string text;  // the configuration, or a key
  const void* data = nullptr;
  size_t byte_size = 0;
};

// Threads are started when calls wait, up to a number, and stay. To wake one takes longer than most calls,
// and is not the loop's to do: it wakes one at most, which wakes the next. A thread in a call which nobody
// waits for any more is lost until the cache returns; when all are lost, calls are refused, not queued.
class CacheThreads : public std::enable_shared_from_this<CacheThreads> {
 public:
  CacheThreads(const CacheFunctions& functions, uint32_t most_threads);
  ~CacheThreads();
  CacheThreads(const CacheThreads&) = delete;
  CacheThreads& operator=(const CacheThreads&) = delete;

  TRITONSERVER_Error* begin(CacheCall call);
  bool give_up(uint64_t number);
  size_t take(TRITONPY_CacheOutcome* outcomes, size_t most);
  int events() const { return events_; }
  // Threads end as soon as they are in no call; each has its share of this object until then.
  void close();

 private:
  void wake_one();
  void work();
  TRITONPY_CacheOutcome carry_out(const CacheCall& call);

  const CacheFunctions functions_;
  const size_t most_threads_;
  const int events_;

  std::mutex mutex_;  // guards all below
  std::condition_variable has_work_;
  std::deque<CacheCall> waiting_;
  std::map<uint64_t, bool> running_;  // whether the call is given up
  std::vector<TRITONPY_CacheOutcome> ended_;
  TRITONCACHE_Cache* cache_ = nullptr;
  size_t threads_ = 0;
  size_t idle_ = 0;
  size_t lost_ = 0;
  bool is_waking_ = false;  // one was woken or started, and has not looked for work yet
  bool is_closed_ = false;
};

}  // namespace tritonpy
