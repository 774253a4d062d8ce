// What happens to the requests of a model, on its way from the backend's threads to the driver's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "backends/signal.h"
#include "backends/states.h"
#include "core/objects.h"

namespace tritonpy {

enum class EventKind { kResponse = 0, kRelease = 1, kEnd = 2, kState = 3, kReschedule = 4, kFailure = 5, kActivity = 6 };

// How far the responses of a request to a decoupled model are ahead of the driver.
struct Flow {
  std::atomic<bool> is_over{false};  // it has had its last response
  // Guarded by the events' mutex.
  uint64_t count = 0;
  uint64_t byte_size = 0;
  bool was_waited_for = false;  // by a thread that has others to answer, since there was room
};

struct Event {
  EventKind kind;
  uint64_t tag;
  bool is_final = false;
  std::unique_ptr<TRITONBACKEND_Response> response;
  std::shared_ptr<Flow> flow = nullptr;  // which counts the response
  uint64_t byte_size = 0;
  uint64_t time_ns = 0;  // of an activity
};

class Reply;

class Events {
 public:
  Events() = default;
  // Raises a signal where others wake who waits.
  explicit Events(std::shared_ptr<Signal> signal) : signal_(std::move(signal)) {}
  ~Events();

  void add(Event event);
  bool wait();
  bool take(Event* event);
  // Takes the first events, up to one for which the condition does not hold; true if there is one.
  bool take_while(bool (*condition)(const Event&), std::deque<Event>* taken);
  // Takes all events, if the condition holds for them.
  bool take_all_if(const std::function<bool(const std::deque<Event>&)>& condition, std::deque<Event>* taken);
  // Who waits returns.
  void stop();
  // Drops what there is and what comes.
  void close();
  // What happens to this request is left where it is, until it is no longer held.
  void hold(uint64_t tag, bool is_held);
  // Returns when a response may be added, or need not wait: because of a cancellation, or because this thread has
  // other requests to answer. False when so many wait that none can be added at all.
  bool wait_for_room(Reply* reply, const std::shared_ptr<Flow>& flow);

  // Events of a model that answers several times leave at once, also while it executes.
  void leave_at_once(bool at_once);
  bool leaves_at_once();

  // While this lives, events of its thread are left to be taken when its execution is over.
  class Execution {
   public:
    Execution(const Events* of, uint32_t request_count);
    ~Execution();

   private:
    const Events* const outer_;
    const bool has_several_outside_;
  };

 private:
  void count_taken(const Event& event);
  void wake();

  const std::shared_ptr<Signal> signal_;
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::condition_variable room_;
  std::deque<Event> events_;
  std::unordered_map<uint64_t, std::deque<Event>> held_;
  uint32_t waiting_count_ = 0;
  bool is_urgent_ = false;
  bool leaves_at_once_ = false;
  bool is_stopped_ = false;
  bool is_closed_ = false;
};

// What a client still waits for; held by its request, by responses and by factories. When nobody holds it, no
// response can come any more.
class Reply {
 public:
  Reply(
      std::shared_ptr<Events> events, std::shared_ptr<const StateSpecs> states, uint64_t tag,
      const unsigned char* cancel_flag);
  ~Reply();

  // May wait for a client that is slow. An error after the final flag, which nothing follows.
  TRITONSERVER_Error* send(std::unique_ptr<TRITONBACKEND_Response>& response, bool is_final);
  void released();
  void failed();
  // Of its trace.
  void note(const char* activity, uint64_t time_ns);
  void follow(std::unique_ptr<TRITONSERVER_InferenceTrace> trace);
  TRITONSERVER_InferenceTrace* trace() const { return trace_.get(); }
  // Or released, if it has had its final response.
  void reschedule();
  const StateSpecs& state_specs() const { return *state_specs_; }
  // Until nobody holds this.
  TRITONBACKEND_State* keep(std::unique_ptr<TRITONBACKEND_State> state);
  // The only output is a state of the sequence from here on.
  void update(std::unique_ptr<TRITONBACKEND_Response> state);
  // Nothing can be sent any more.
  void close();
  bool is_cancelled();

 private:
  void end();
  TRITONSERVER_Error* give_up();

  const std::shared_ptr<Events> events_;
  const std::shared_ptr<const StateSpecs> state_specs_;
  const uint64_t tag_;
  std::mutex mutex_;  // guards everything below, and the order of what is sent
  const unsigned char* cancel_flag_;  // the server's, and another request's when this one is answered
  const std::shared_ptr<Flow> flow_;  // of a decoupled model
  bool was_cancelled_ = false;
  bool is_answered_ = false;
  std::vector<std::unique_ptr<TRITONBACKEND_State>> states_;
  std::unique_ptr<TRITONSERVER_InferenceTrace> trace_;  // set before its backend has it
};

using ReplyHold = std::shared_ptr<Reply>;

// Of a request, or nullptr where no backend has it.
inline ReplyHold* reply_of(const TRITONBACKEND_Request* request) {
  return static_cast<ReplyHold*>(request->reply);
}

}  // namespace tritonpy
