// What happens to the requests of a model, on its way from the backend's threads to the driver's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "core/objects.h"

namespace tritonpy {

enum class EventKind { kResponse = 0, kRelease = 1, kEnd = 2 };

struct Event {
  EventKind kind;
  uint64_t tag;
  bool is_final = false;
  std::unique_ptr<TRITONBACKEND_Response> response;
};

class Events {
 public:
  Events() = default;
  ~Events();

  void add(Event event);
  bool wait();
  bool take(Event* event);
  // Who waits returns.
  void stop();
  // Drops what there is and what comes.
  void close();

  // Events of a model that answers several times leave at once, also while it executes.
  void leave_at_once(bool at_once);

  // While this lives, events of its thread are left to be taken when its execution is over.
  class Execution {
   public:
    explicit Execution(const Events* of);
    ~Execution();

   private:
    const Events* const outer_;
  };

 private:
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<Event> events_;
  bool is_urgent_ = false;
  bool leaves_at_once_ = false;
  bool is_stopped_ = false;
  bool is_closed_ = false;
};

// What a client still waits for; held by its request, by responses and by factories. When nobody holds it, no
// response can come any more.
class Reply {
 public:
  Reply(std::shared_ptr<Events> events, uint64_t tag) : events_(std::move(events)), tag_(tag) {}
  ~Reply();

  // An error after the final flag, which nothing follows.
  TRITONSERVER_Error* send(std::unique_ptr<TRITONBACKEND_Response>& response, bool is_final);
  void released();

 private:
  const std::shared_ptr<Events> events_;
  const uint64_t tag_;
  std::mutex mutex_;  // guards the flag, and the order of what is sent
  bool is_answered_ = false;
};

using ReplyHold = std::shared_ptr<Reply>;

// Of a request, or nullptr where no backend has it.
inline ReplyHold* reply_of(const TRITONBACKEND_Request* request) {
  return static_cast<ReplyHold*>(request->reply);
}

}  // namespace tritonpy
