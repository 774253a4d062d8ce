// What a backend asks of the server, on its way to the driver, and what comes back.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/objects.h"

namespace tritonpy {

enum class CallKind { kInfer = 0, kCancel = 1, kRead = 2, kQuestion = 3 };

// An answer to a request, with outputs whose bytes are the driver's.
struct Arrived {
  struct Output {
    std::string name;
    TRITONSERVER_DataType datatype;
    std::vector<int64_t> shape;
    const void* data;
    size_t byte_size;
  };

  bool is_final = false;
  bool has_response = false;
  bool has_error = false;
  int error_code = 0;
  std::string error;
  std::deque<Output> outputs;
  std::deque<TRITONSERVER_Parameter> parameters;
};

class Calls;

// A request that the server has: what the driver reads of it, and the answers that its callbacks have not had.
class Flight : public std::enable_shared_from_this<Flight> {
 public:
  Flight(TRITONSERVER_InferenceRequest* request, std::shared_ptr<Calls> calls);

  void describe(TRITONPY_Call* call) const;
  // An answer, from any thread; a thread of this library hands it on.
  void arrive(Arrived arrived);
  // Its bytes are not used any more: the release may follow the final answer.
  void let_go();

  uint64_t tag = 0;

 private:
  // Hands on what there is; one thread at a time.
  void deliver();
  void hand_on(Arrived& arrived);
  void release();
  TRITONSERVER_InferenceResponse* make_response(Arrived& arrived);

  TRITONSERVER_InferenceRequest* const request_;
  const std::shared_ptr<Calls> calls_;
  const char* instance_;
  std::vector<TRITONPY_Tensor> tensors_;
  std::deque<std::string> joined_;  // the bytes of inputs that came in parts
  std::vector<const char*> outputs_;
  std::vector<TRITONPY_RequestParameter> parameters_;

  std::mutex mutex_;  // guards the rest
  std::deque<Arrived> arrived_;
  bool is_delivered_ = false;  // by some thread now
  bool has_bytes_ = true;  // that are used
  bool is_answered_ = false;  // finally
};

// A question, whose thread waits for the answer.
struct Question {
  std::string what;
  std::string model;
  int64_t version = -1;
  std::vector<TRITONPY_Tensor> tensors;
  std::vector<TRITONPY_RequestParameter> parameters;
  // The answer.
  bool is_answered = false;
  bool has_error = false;
  TRITONSERVER_Error_Code error_code = TRITONSERVER_ERROR_UNKNOWN;
  std::string text;
  int64_t number = 0;
};

class Calls {
 public:
  // For the backend.
  TRITONSERVER_Error* infer(const std::shared_ptr<Flight>& flight);
  void cancel(uint64_t tag);
  void read(uint64_t tag);
  // Waits for the answer, which is in the question then.
  TRITONSERVER_Error* ask(Question& question);

  // For the driver; see host/calls.h.
  bool take(TRITONPY_Call* call);
  void stop(int error_code, std::string error);
  void respond(uint64_t tag, Arrived arrived);
  void let_go(uint64_t tag);
  template <typename Fill>
  void answer(uint64_t tag, Fill&& fill) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = questions_.find(tag);
    if (found == questions_.end()) {
      return;
    }
    fill(*found->second);
    found->second->is_answered = true;
    questions_.erase(found);
    answered_.notify_all();
  }

 private:
  struct Entry {
    CallKind kind;
    uint64_t tag;
  };

  void add(CallKind kind, uint64_t tag);

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::condition_variable answered_;
  std::deque<Entry> entries_;
  std::map<uint64_t, std::shared_ptr<Flight>> flights_;  // without a final answer
  std::map<uint64_t, std::shared_ptr<Flight>> held_;  // whose bytes are used
  size_t unread_count_ = 0;  // of answers
  std::map<uint64_t, Question*> questions_;  // without an answer
  uint64_t last_tag_ = 0;
  bool is_stopped_ = false;
  int stop_code_ = 0;
  std::string stop_error_;
};

// While this lives, its thread executes a batch: what it asks for is what the batch waits for.
class Executing {
 public:
  explicit Executing(const char* instance);
  ~Executing();

  // The name of this thread's instance, or NULL.
  static const char* instance();

 private:
  const char* const outer_;
};

}  // namespace tritonpy
