#include "caches/threads.h"

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

#include "guard.h"

namespace tritonpy {

namespace {

TRITONSERVER_Error* unavailable(const std::string& message) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, message.c_str());
}

// While one of these lives, new threads get no signals but those they cause: others are the program's.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP}) {
      sigdelset(&blocked, own);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

int make_events() {
  const int events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (events < 0) {
    throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  return events;
}

}  // namespace

CacheThreads::CacheThreads(const CacheFunctions& functions, uint32_t most_threads)
    : functions_(functions), most_threads_(std::max<uint32_t>(most_threads, 1)), events_(make_events()) {}

CacheThreads::~CacheThreads() {
  for (const TRITONPY_CacheOutcome& outcome : ended_) {
    TRITONSERVER_ErrorDelete(outcome.error);
    std::free(outcome.data);
  }
  ::close(events_);
}

TRITONSERVER_Error* CacheThreads::begin(CacheCall call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_closed_) {
    return unavailable("it is closed");
  }
  if (lost_ >= most_threads_) {
    return unavailable(
        "all " + std::to_string(most_threads_) + " threads that call it are in calls that have not returned");
  }
  waiting_.push_back(std::move(call));
  wake_one();
  if (threads_ == 0) {
    waiting_.pop_back();
    return unavailable("no thread can be started to call it");
  }
  return nullptr;
}

void CacheThreads::wake_one() {
  if (is_waking_) {
    return;  // that one wakes the next
  }
  if (idle_ > 0) {
    is_waking_ = true;
    has_work_.notify_one();
  } else if (threads_ < most_threads_) {
    try {
      const SignalsBlocked blocked;
      std::thread([self = shared_from_this()] { self->work(); }).detach();
      ++threads_;
      is_waking_ = true;
    } catch (const std::system_error&) {
      // Those that there are go on.
    }
  }
}

bool CacheThreads::give_up(uint64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto waiting = std::find_if(
      waiting_.begin(), waiting_.end(), [number](const CacheCall& call) { return call.number == number; });
  if (waiting != waiting_.end()) {
    waiting_.erase(waiting);
    return true;
  }
  const auto running = running_.find(number);
  if (running != running_.end() && !running->second) {
    running->second = true;
    ++lost_;
  }
  return false;
}

size_t CacheThreads::take(TRITONPY_CacheOutcome* outcomes, size_t most) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t count = std::min(most, ended_.size());
  const auto end = ended_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(ended_.begin(), end, outcomes);
  ended_.erase(ended_.begin(), end);
  if (ended_.empty()) {
    uint64_t signalled;
    [[maybe_unused]] const auto read = ::read(events_, &signalled, sizeof(signalled));
  }
  return count;
}

void CacheThreads::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_closed_ = true;
  waiting_.clear();
  has_work_.notify_all();
}

void CacheThreads::work() {
  pthread_setname_np(pthread_self(), "tritonpy-cache");
  std::unique_lock<std::mutex> lock(mutex_);
  is_waking_ = false;
  while (true) {
    while (waiting_.empty()) {
      if (is_closed_) {
        return;
      }
      ++idle_;
      has_work_.wait(lock);
      --idle_;
      is_waking_ = false;
    }
    const CacheCall call = std::move(waiting_.front());
    waiting_.pop_front();
    running_[call.number] = false;
    if (!waiting_.empty()) {
      wake_one();
    }
    lock.unlock();
    const TRITONPY_CacheOutcome outcome = carry_out(call);
    lock.lock();
    const auto running = running_.find(call.number);
    lost_ -= running->second ? 1 : 0;
    running_.erase(running);
    ended_.push_back(outcome);
    if (ended_.size() == 1) {
      lock.unlock();
      const uint64_t one = 1;
      [[maybe_unused]] const auto written = ::write(events_, &one, sizeof(one));
      lock.lock();
    }
  }
}

TRITONPY_CacheOutcome CacheThreads::carry_out(const CacheCall& call) {
  TRITONPY_CacheOutcome outcome{call.number, nullptr, nullptr, 0};
  switch (call.kind) {
    case CacheCall::Kind::kInitialize:
      // Only from here on are there other calls; whoever begins them has this outcome.
      outcome.error = call_initialize(functions_, call.text, &cache_);
      break;
    case CacheCall::Kind::kFinalize:
      outcome.error = call_finalize(functions_, cache_);
      break;
    case CacheCall::Kind::kLookup: {
      FoundEntry found;
      outcome.error = call_lookup(functions_, cache_, call.text, &found);
      outcome.data = found.data;
      outcome.byte_size = found.byte_size;
      break;
    }
    case CacheCall::Kind::kInsert:
      outcome.error = call_insert(functions_, cache_, call.text, call.data, call.byte_size);
      break;
  }
  return outcome;
}

}  // namespace tritonpy
