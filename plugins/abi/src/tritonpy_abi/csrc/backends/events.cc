#include "backends/events.h"

#include "backends/objects.h"

namespace tritonpy {

namespace {

thread_local const Events* executing = nullptr;

}  // namespace

Events::~Events() = default;

Events::Execution::Execution(const Events* of) : outer_(executing) { executing = of; }

Events::Execution::~Execution() { executing = outer_; }

void Events::add(Event event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_closed_) {
    return;
  }
  events_.push_back(std::move(event));
  if (leaves_at_once_ || executing != this) {
    is_urgent_ = true;
    changed_.notify_all();
  }
}

bool Events::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return is_urgent_ || is_stopped_; });
  is_urgent_ = false;
  return !is_stopped_;
}

bool Events::take(Event* event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (events_.empty()) {
    return false;
  }
  *event = std::move(events_.front());
  events_.pop_front();
  return true;
}

void Events::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

void Events::close() {
  std::deque<Event> dropped;  // outside of the lock: responses end there
  const std::lock_guard<std::mutex> lock(mutex_);
  is_closed_ = is_stopped_ = true;
  dropped.swap(events_);
  changed_.notify_all();
}

void Events::leave_at_once(bool at_once) {
  const std::lock_guard<std::mutex> lock(mutex_);
  leaves_at_once_ = at_once;
}

Reply::~Reply() { events_->add({EventKind::kEnd, tag_, false, nullptr}); }

TRITONSERVER_Error* Reply::send(std::unique_ptr<TRITONBACKEND_Response>& response, bool is_final) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_answered_) {
    return invalid("the request has had its final response: nothing can follow it");
  }
  is_answered_ = is_final;
  events_->add({EventKind::kResponse, tag_, is_final, std::move(response)});
  return nullptr;
}

void Reply::released() { events_->add({EventKind::kRelease, tag_, false, nullptr}); }

}  // namespace tritonpy
