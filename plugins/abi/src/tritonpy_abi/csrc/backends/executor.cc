// An instance's thread while it executes: batches come in, and what has become of them goes out.

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/execute_timed.h"
#include "backends/objects.h"
#include "guard.h"

namespace {

struct Batch {
  uint64_t number;
  std::vector<TRITONBACKEND_Request*> requests;
  std::vector<uint64_t> tags;
};

}  // namespace

struct TRITONPY_Executor {
  explicit TRITONPY_Executor(TRITONBACKEND_ModelInstance* executing) : instance(executing) {}

  TRITONBACKEND_ModelInstance* const instance;  // gone when it no longer runs
  const std::shared_ptr<tritonpy::Signal> signal = std::make_shared<tritonpy::Signal>();
  TRITONPY_Events queue{std::make_shared<tritonpy::Events>(signal)};
  std::mutex mutex;  // guards everything below
  std::condition_variable changed;
  std::deque<Batch> waiting;
  std::deque<TRITONPY_Executed> executed;
  bool is_stopped = false;
};

TRITONSERVER_Error* TRITONPY_ExecutorNew(TRITONBACKEND_ModelInstance* instance, TRITONPY_Executor** executor) {
  auto made = std::make_unique<TRITONPY_Executor>(instance);
  if (made->signal->descriptor() < 0) {
    const std::string text = std::string("no descriptor for an instance's answers: ") + std::strerror(errno);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, text.c_str());
  }
  *executor = made.release();
  return nullptr;
}

int TRITONPY_ExecutorDescriptor(TRITONPY_Executor* executor) { return executor->signal->descriptor(); }

TRITONPY_Events* TRITONPY_ExecutorEvents(TRITONPY_Executor* executor) { return &executor->queue; }

void TRITONPY_ExecutorRun(TRITONPY_Executor* executor) {
  executor->instance->events = executor->queue.events;
  std::unique_lock<std::mutex> lock(executor->mutex);
  while (true) {
    executor->changed.wait(lock, [&] { return executor->is_stopped || !executor->waiting.empty(); });
    if (executor->waiting.empty()) {
      return;
    }
    const Batch batch = std::move(executor->waiting.front());
    executor->waiting.pop_front();
    lock.unlock();
    const TRITONPY_Executed done =
        tritonpy::execute_timed(executor->instance, batch.number, batch.requests, batch.tags);
    lock.lock();
    executor->executed.push_back(done);
    lock.unlock();  // who is woken wants it
    executor->signal->raise();
    lock.lock();
  }
}

void TRITONPY_ExecutorStop(TRITONPY_Executor* executor) {
  {
    const std::lock_guard<std::mutex> lock(executor->mutex);
    executor->is_stopped = true;
  }
  executor->changed.notify_one();
}

TRITONSERVER_Error* TRITONPY_ExecutorSubmit(
    TRITONPY_Executor* executor, uint64_t batch, TRITONBACKEND_Request* const* requests, const uint64_t* tags,
    uint32_t count) {
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    Batch submitted{batch, {requests, requests + count}, {tags, tags + count}};
    {
      const std::lock_guard<std::mutex> lock(executor->mutex);
      executor->waiting.push_back(std::move(submitted));
    }
    executor->changed.notify_one();
    return nullptr;
  });
}

bool TRITONPY_ExecutorWithdraw(TRITONPY_Executor* executor, uint64_t batch) {
  const std::lock_guard<std::mutex> lock(executor->mutex);
  for (auto each = executor->waiting.begin(); each != executor->waiting.end(); ++each) {
    if (each->number == batch) {
      executor->waiting.erase(each);
      return true;
    }
  }
  return false;
}

uint32_t TRITONPY_ExecutorTake(TRITONPY_Executor* executor, TRITONPY_Executed* executed, uint32_t room) {
  executor->signal->clear();
  const std::lock_guard<std::mutex> lock(executor->mutex);
  uint32_t count = 0;
  while (count < room && !executor->executed.empty()) {
    executed[count++] = executor->executed.front();
    executor->executed.pop_front();
  }
  if (!executor->executed.empty()) {
    executor->signal->raise();
  }
  return count;
}

void TRITONPY_ExecutorEnd(TRITONPY_Executor* executor) {
  executor->queue.events->close();
  for (const TRITONPY_Executed& each : executor->executed) {
    TRITONSERVER_ErrorDelete(each.error);
  }
  delete executor;
}
