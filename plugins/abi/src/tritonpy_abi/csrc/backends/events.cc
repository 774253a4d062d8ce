#include "backends/events.h"

#include <algorithm>
#include <chrono>

#include "backends/objects.h"

namespace tritonpy {

namespace {

// As far as a decoupled model in Python may be ahead of the server (ipc/window.py).
constexpr uint64_t kMostResponses = 256;
constexpr uint64_t kMostByteSize = 8 * 1024 * 1024;
// So many times more are queued by a thread that cannot wait, since it has other requests to answer.
constexpr uint64_t kFarBeyond = 4;
constexpr std::chrono::milliseconds kMoment(1000);
// The flag of a cancellation wakes nobody.
constexpr std::chrono::milliseconds kLook(100);

thread_local const Events* executing = nullptr;
thread_local bool is_executing_several = false;
thread_local bool has_answered_several = false;
thread_local std::weak_ptr<Flow> last_answered;

bool has_most(const Flow& flow, uint64_t times) {
  return flow.count >= kMostResponses * times || flow.byte_size >= kMostByteSize * times;
}

uint64_t byte_size_of(const TRITONBACKEND_Response* response) {
  uint64_t byte_size = 0;
  if (response != nullptr) {
    for (const TRITONBACKEND_Output& output : response->outputs) {
      byte_size += output.attributes.byte_size;
    }
  }
  return byte_size;
}

}  // namespace

Events::~Events() = default;

Events::Execution::Execution(const Events* of, uint32_t request_count)
    : outer_(executing), has_several_outside_(is_executing_several) {
  executing = of;
  is_executing_several = request_count > 1;
}

Events::Execution::~Execution() {
  executing = outer_;
  is_executing_several = has_several_outside_;
}

void Events::add(Event event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_closed_) {
    return;
  }
  if (event.flow != nullptr) {
    event.flow->count += 1;
    event.flow->byte_size += event.byte_size;
  }
  if (!held_.empty()) {
    const auto held = held_.find(event.tag);
    if (held != held_.end()) {
      held->second.push_back(std::move(event));
      return;
    }
  }
  events_.push_back(std::move(event));
  if (leaves_at_once_ || executing != this) {
    wake();
  }
}

void Events::wake() {
  if (signal_ != nullptr) {
    signal_->raise();
    return;
  }
  is_urgent_ = true;
  changed_.notify_all();
}

void Events::hold(uint64_t tag, bool is_held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::deque<Event>& held = held_[tag];
  if (is_held) {
    std::deque<Event> others;
    for (Event& event : events_) {
      (event.tag == tag ? held : others).push_back(std::move(event));
    }
    events_.swap(others);
    return;
  }
  for (Event& event : held) {
    events_.push_back(std::move(event));
  }
  const bool is_any = !held.empty();
  held_.erase(tag);
  if (is_any) {
    wake();
  }
}

bool Events::wait_for_room(Reply* reply, const std::shared_ptr<Flow>& flow) {
  const std::shared_ptr<Flow> last = last_answered.lock();
  if (last != flow) {
    has_answered_several = has_answered_several || (last != nullptr && !last->is_over);
    last_answered = flow;
  }
  const bool is_patient = !is_executing_several && !has_answered_several;
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!has_most(*flow, 1) || is_closed_ || flow->is_over) {
      return true;
    }
    if (!is_patient && (flow->was_waited_for || std::chrono::steady_clock::now() - start >= kMoment)) {
      flow->was_waited_for = true;
      return !has_most(*flow, kFarBeyond);
    }
    waiting_count_ += 1;
    room_.wait_for(lock, kLook);
    waiting_count_ -= 1;
    lock.unlock();  // the reply may be adding an event
    if (reply->is_cancelled()) {
      return true;
    }
  }
}

void Events::count_taken(const Event& event) {
  if (event.flow == nullptr) {
    return;
  }
  Flow& flow = *event.flow;
  flow.count -= 1;
  flow.byte_size -= event.byte_size;
  if (!has_most(flow, 1)) {
    flow.was_waited_for = false;
    if (waiting_count_ != 0) {
      room_.notify_all();
    }
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
  count_taken(*event);
  return true;
}

bool Events::take_while(bool (*condition)(const Event&), std::deque<Event>* taken) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool is_all = std::all_of(events_.begin(), events_.end(), condition);
  if (is_all) {
    taken->swap(events_);
  } else {
    while (condition(events_.front())) {
      taken->push_back(std::move(events_.front()));
      events_.pop_front();
    }
  }
  if (leaves_at_once_) {
    for (const Event& event : *taken) {
      count_taken(event);
    }
  }
  return !is_all;
}

bool Events::take_all_if(
    const std::function<bool(const std::deque<Event>&)>& condition, std::deque<Event>* taken) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!condition(events_)) {
    return false;
  }
  taken->swap(events_);
  for (const Event& event : *taken) {
    count_taken(event);
  }
  return true;
}

void Events::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

void Events::close() {
  std::deque<Event> dropped;  // outside of the lock: responses end there
  std::unordered_map<uint64_t, std::deque<Event>> also_dropped;
  const std::lock_guard<std::mutex> lock(mutex_);
  is_closed_ = is_stopped_ = true;
  dropped.swap(events_);
  also_dropped.swap(held_);
  changed_.notify_all();
  room_.notify_all();
}

void Events::leave_at_once(bool at_once) {
  const std::lock_guard<std::mutex> lock(mutex_);
  leaves_at_once_ = at_once;
}

bool Events::leaves_at_once() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return leaves_at_once_;
}

Reply::Reply(
    std::shared_ptr<Events> events, std::shared_ptr<const StateSpecs> states, uint64_t tag,
    const unsigned char* cancel_flag)
    : events_(std::move(events)), state_specs_(std::move(states)), tag_(tag), cancel_flag_(cancel_flag),
      flow_(events_->leaves_at_once() ? std::make_shared<Flow>() : nullptr) {}

Reply::~Reply() {
  if (flow_ != nullptr) {
    flow_->is_over = true;
  }
  events_->add({EventKind::kEnd, tag_, false, nullptr});
}

TRITONSERVER_Error* Reply::send(std::unique_ptr<TRITONBACKEND_Response>& response, bool is_final) {
  const bool is_counted = flow_ != nullptr && !is_final;
  if (is_counted && !events_->wait_for_room(this, flow_)) {
    return give_up();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_answered_) {
    return invalid("the request has had its final response: nothing can follow it");
  }
  if (is_final) {
    end();
  }
  const uint64_t byte_size = is_counted ? byte_size_of(response.get()) : 0;
  events_->add(
      {EventKind::kResponse, tag_, is_final, std::move(response), is_counted ? flow_ : nullptr, byte_size});
  return nullptr;
}

// Of a client that takes nothing, by a thread that has others to answer.
TRITONSERVER_Error* Reply::give_up() {
  const std::string text = "more responses wait for the client than can be held, at most " +
                           std::to_string(kMostResponses * kFarBeyond) + " responses or " +
                           std::to_string(kMostByteSize * kFarBeyond) +
                           " bytes: it reads too slowly to be sent more";
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_answered_) {
    end();
    was_cancelled_ = true;
    auto last = std::make_unique<TRITONBACKEND_Response>(nullptr);
    last->has_error = true;
    last->error_code = static_cast<int>(TRITONSERVER_ERROR_UNAVAILABLE);
    last->error = text;
    events_->add({EventKind::kResponse, tag_, true, std::move(last)});
  }
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, text.c_str());
}

TRITONBACKEND_State* Reply::keep(std::unique_ptr<TRITONBACKEND_State> state) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return states_.emplace_back(std::move(state)).get();
}

void Reply::update(std::unique_ptr<TRITONBACKEND_Response> state) {
  events_->add({EventKind::kState, tag_, false, std::move(state)});
}

void Reply::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  end();
}

bool Reply::is_cancelled() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return was_cancelled_ || (cancel_flag_ != nullptr && __atomic_load_n(cancel_flag_, __ATOMIC_RELAXED) != 0);
}

void Reply::end() {
  is_answered_ = true;
  was_cancelled_ = cancel_flag_ != nullptr && __atomic_load_n(cancel_flag_, __ATOMIC_RELAXED) != 0;
  cancel_flag_ = nullptr;
  if (flow_ != nullptr) {
    flow_->is_over = true;
  }
}

void Reply::reschedule() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const EventKind kind = is_answered_ ? EventKind::kRelease : EventKind::kReschedule;
  end();
  events_->add({kind, tag_, false, nullptr, nullptr, 0});
}

void Reply::follow(std::unique_ptr<TRITONSERVER_InferenceTrace> trace) { trace_ = std::move(trace); }

void Reply::note(const char* activity, uint64_t time_ns) {
  auto carrier = std::make_unique<TRITONBACKEND_Response>(nullptr);
  carrier->error = activity;
  events_->add({EventKind::kActivity, tag_, false, std::move(carrier), nullptr, 0, time_ns});
}

void Reply::failed() { events_->add({EventKind::kFailure, tag_, false, nullptr, nullptr, 0}); }

void Reply::released() { events_->add({EventKind::kRelease, tag_, false, nullptr}); }

}  // namespace tritonpy
