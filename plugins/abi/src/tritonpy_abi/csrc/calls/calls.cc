#include "calls/calls.h"

#include <cstring>
#include <utility>

#include "calls/objects.h"
#include "calls/threads.h"
#include "guard.h"

namespace tritonpy {

namespace {

thread_local const char* executing = nullptr;

// A callback of a backend: what goes wrong there is logged, since nobody else can be told.
template <typename Call>
void call_back(const char* name, Call&& call) {
  TRITONSERVER_Error* error = guarded(name, [&]() -> TRITONSERVER_Error* { return call(); });
  if (error != nullptr) {
    TRITONSERVER_LogMessage(
        TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
  }
}

TRITONPY_RequestParameter described(const TRITONSERVER_Parameter& parameter) {
  return {parameter.name.c_str(), parameter.type,   parameter.text.c_str(),
          parameter.integer,      parameter.number, parameter.boolean};
}

// Memory of the allocator with an output's bytes in it.
TRITONSERVER_Error* place(
    TRITONSERVER_InferenceResponse& response, void* userp, const Arrived::Output& from) {
  TRITONSERVER_ResponseAllocator* const allocator = response.allocator;
  const char* const name = from.name.c_str();
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  if (allocator->query != nullptr) {
    size_t byte_size = from.byte_size;
    auto* error = guarded("a query function of a response allocator", [&] {
      return allocator->query(allocator, userp, name, &byte_size, &type, &id);
    });
    if (error != nullptr) {
      return error;
    }
    type = TRITONSERVER_MEMORY_CPU;  // bytes come from there, wherever the allocator would rather have them
    id = 0;
  }
  void* buffer = nullptr;
  void* buffer_userp = nullptr;
  auto* error = guarded("an allocation function of a response allocator", [&] {
    return allocator->allocate(
        allocator, name, from.byte_size, TRITONSERVER_MEMORY_CPU, 0, userp, &buffer, &buffer_userp, &type, &id);
  });
  if (error != nullptr) {
    return error;
  }
  auto& output = response.outputs.emplace_back();
  output.name = from.name;
  output.datatype = from.datatype;
  output.shape = from.shape;
  output.buffer = buffer;
  output.buffer_userp = buffer_userp;
  output.attributes.memory_type = type;
  output.attributes.memory_type_id = id;
  output.attributes.byte_size = from.byte_size;
  if (allocator->attributes != nullptr) {
    error = guarded("a buffer attributes function of a response allocator", [&] {
      return allocator->attributes(allocator, name, &output.attributes, userp, buffer_userp);
    });
    if (error != nullptr) {
      return error;
    }
  }
  if (from.byte_size == 0) {
    return nullptr;
  }
  if (buffer == nullptr || output.attributes.memory_type == TRITONSERVER_MEMORY_GPU) {
    const std::string text =
        "the response allocator gave " + std::string(buffer == nullptr ? "no memory" : "memory of a GPU") +
        " for output '" + from.name + "' of " + std::to_string(from.byte_size) +
        " bytes; expected memory of the CPU";
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, text.c_str());
  }
  std::memcpy(buffer, from.data, from.byte_size);
  return nullptr;
}

}  // namespace

Executing::Executing(const char* instance) : outer_(executing) { executing = instance; }

Executing::~Executing() { executing = outer_; }

const char* Executing::instance() { return executing; }

Flight::Flight(TRITONSERVER_InferenceRequest* request, std::shared_ptr<Calls> calls)
    : request_(request), calls_(std::move(calls)), instance_(Executing::instance()) {
  for (const RequestInput& input : request->inputs) {
    TRITONPY_Tensor tensor{
        input.name.c_str(), input.shape.data(), nullptr, 0, static_cast<uint32_t>(input.shape.size()),
        input.datatype};
    if (input.parts.size() == 1) {
      tensor.data = input.parts[0].base;
      tensor.byte_size = input.parts[0].byte_size;
    } else if (!input.parts.empty()) {
      std::string& joined = joined_.emplace_back();
      for (const InputPart& part : input.parts) {
        joined.append(static_cast<const char*>(part.base), part.byte_size);
      }
      tensor.data = joined.data();
      tensor.byte_size = joined.size();
    }
    tensors_.push_back(tensor);
  }
  for (const std::string& output : request->outputs) {
    outputs_.push_back(output.c_str());
  }
  for (const TRITONSERVER_Parameter& parameter : request->parameters) {
    parameters_.push_back(described(parameter));
  }
}

void Flight::describe(TRITONPY_Call* call) const {
  call->model = request_->model.c_str();
  call->version = request_->version;
  call->instance = instance_;
  call->id = request_->id.c_str();
  call->correlation_text = request_->has_correlation_text ? request_->correlation_text.c_str() : nullptr;
  call->correlation_number = request_->correlation_number;
  call->priority = request_->priority;
  call->timeout_us = request_->timeout_us;
  call->flags = request_->flags;
  call->tensors = tensors_.data();
  call->tensor_count = static_cast<uint32_t>(tensors_.size());
  call->outputs = outputs_.data();
  call->output_count = static_cast<uint32_t>(outputs_.size());
  call->parameters = parameters_.data();
  call->parameter_count = static_cast<uint32_t>(parameters_.size());
}

void Flight::arrive(Arrived arrived) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    arrived_.push_back(std::move(arrived));
    if (is_delivered_) {
      return;
    }
    is_delivered_ = true;
  }
  CallbackThreads::get().run([self = shared_from_this()] { self->deliver(); });
}

void Flight::deliver() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!arrived_.empty()) {
    Arrived arrived = std::move(arrived_.front());
    arrived_.pop_front();
    lock.unlock();
    hand_on(arrived);
    lock.lock();
    is_answered_ = arrived.is_final;
  }
  is_delivered_ = false;
  if (is_answered_ && !has_bytes_) {
    lock.unlock();
    release();
  }
}

void Flight::let_go() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    has_bytes_ = false;
    if (!is_answered_ || is_delivered_) {
      return;  // `deliver` goes on
    }
  }
  CallbackThreads::get().run([self = shared_from_this()] { self->release(); });
}

void Flight::release() {
  TRITONSERVER_InferenceRequest* const request = request_;
  {
    const std::lock_guard<std::mutex> lock(request->mutex);
    request->flight.reset();  // this one is held by who calls
  }
  call_back("a release callback", [&]() -> TRITONSERVER_Error* {
    request->release(request, TRITONSERVER_REQUEST_RELEASE_ALL, request->release_userp);
    return nullptr;
  });
}

void Flight::hand_on(Arrived& arrived) {
  TRITONSERVER_InferenceResponse* response = nullptr;
  if (arrived.has_response) {
    response = make_response(arrived);
    calls_->read(tag);
  }
  const uint32_t flags = arrived.is_final ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0;
  TRITONSERVER_InferenceRequest* const request = request_;
  call_back("a response callback", [&]() -> TRITONSERVER_Error* {
    request->complete(response, flags, request->complete_userp);
    return nullptr;
  });
}

TRITONSERVER_InferenceResponse* Flight::make_response(Arrived& arrived) {
  auto response = std::make_unique<TRITONSERVER_InferenceResponse>();
  response->server = request_->server;
  response->model = request_->model;
  response->version = request_->actual_version;
  response->id = request_->id;
  response->allocator = request_->allocator;
  response->has_error = arrived.has_error;
  response->error_code = static_cast<TRITONSERVER_Error_Code>(arrived.error_code);
  response->error = std::move(arrived.error);
  response->parameters = std::move(arrived.parameters);
  void* const userp = request_->allocator_userp;
  TRITONSERVER_Error* error = nullptr;
  if (response->allocator->start != nullptr) {
    error = guarded("a start function of a response allocator", [&] {
      return response->allocator->start(response->allocator, userp);
    });
  }
  for (const Arrived::Output& output : arrived.outputs) {
    if (error == nullptr) {
      error = place(*response, userp, output);
    }
  }
  if (error != nullptr) {
    if (!response->has_error) {
      response->has_error = true;
      response->error_code = TRITONSERVER_ErrorCode(error);
      response->error = TRITONSERVER_ErrorMessage(error);
    }
    TRITONSERVER_ErrorDelete(error);
  }
  return response.release();
}

TRITONSERVER_Error* Calls::infer(const std::shared_ptr<Flight>& flight) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_stopped_) {
    return TRITONSERVER_ErrorNew(static_cast<TRITONSERVER_Error_Code>(stop_code_), stop_error_.c_str());
  }
  flight->tag = ++last_tag_;
  flights_[flight->tag] = held_[flight->tag] = flight;
  add(CallKind::kInfer, flight->tag);
  return nullptr;
}

void Calls::cancel(uint64_t tag) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (flights_.count(tag) != 0) {
    add(CallKind::kCancel, tag);
  }
}

void Calls::read(uint64_t tag) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --unread_count_;
  add(CallKind::kRead, tag);
}

TRITONSERVER_Error* Calls::ask(Question& question) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (is_stopped_) {
    return TRITONSERVER_ErrorNew(static_cast<TRITONSERVER_Error_Code>(stop_code_), stop_error_.c_str());
  }
  const uint64_t tag = ++last_tag_;
  questions_[tag] = &question;
  add(CallKind::kQuestion, tag);
  answered_.wait(lock, [&] { return question.is_answered; });
  return question.has_error ? TRITONSERVER_ErrorNew(question.error_code, question.text.c_str()) : nullptr;
}

void Calls::add(CallKind kind, uint64_t tag) {
  entries_.push_back({kind, tag});
  changed_.notify_one();
}

bool Calls::take(TRITONPY_Call* call) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] {
    const bool is_over = is_stopped_ && held_.empty() && flights_.empty() && unread_count_ == 0;
    return is_over || !entries_.empty();
  });
  if (entries_.empty()) {
    return false;
  }
  const Entry entry = entries_.front();
  entries_.pop_front();
  *call = TRITONPY_Call{};
  call->tag = entry.tag;
  call->kind = static_cast<int>(entry.kind);
  if (entry.kind == CallKind::kInfer) {
    flights_.at(entry.tag)->describe(call);
  } else if (entry.kind == CallKind::kQuestion) {
    const Question& question = *questions_.at(entry.tag);
    call->question = question.what.c_str();
    call->model = question.model.c_str();
    call->version = question.version;
    call->tensors = question.tensors.data();
    call->tensor_count = static_cast<uint32_t>(question.tensors.size());
    call->parameters = question.parameters.data();
    call->parameter_count = static_cast<uint32_t>(question.parameters.size());
  }
  return true;
}

void Calls::stop(int error_code, std::string error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_stopped_ = true;
  stop_code_ = error_code;
  stop_error_ = std::move(error);
  changed_.notify_all();
}

void Calls::let_go(uint64_t tag) {
  std::shared_ptr<Flight> flight;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = held_.find(tag);
    if (found == held_.end()) {
      return;
    }
    flight = std::move(found->second);
    held_.erase(found);
    changed_.notify_all();
  }
  flight->let_go();
}

void Calls::respond(uint64_t tag, Arrived arrived) {
  std::shared_ptr<Flight> flight;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = flights_.find(tag);
    if (found == flights_.end()) {
      return;  // it has had its final answer
    }
    flight = found->second;
    unread_count_ += arrived.has_response ? 1 : 0;
    if (arrived.is_final) {
      flights_.erase(found);
      changed_.notify_all();
    }
  }
  flight->arrive(std::move(arrived));
}

}  // namespace tritonpy

TRITONSERVER_Server* TRITONPY_ServerNew(void) { return new TRITONSERVER_Server; }

bool TRITONPY_ServerTake(TRITONSERVER_Server* server, TRITONPY_Call* call) {
  const std::shared_ptr<tritonpy::Calls> calls = server->calls;
  return calls->take(call);
}

void TRITONPY_ServerStop(TRITONSERVER_Server* server, int error_code, const char* error) {
  server->calls->stop(error_code, error);
}

void TRITONPY_ServerRespond(TRITONSERVER_Server* server, uint64_t tag, const TRITONPY_Called* called) {
  tritonpy::Arrived arrived;
  arrived.is_final = called->is_final;
  arrived.has_response = called->has_response;
  arrived.has_error = called->has_error;
  if (called->has_error) {
    arrived.error_code = called->error_code;
    arrived.error = called->error;
  }
  for (uint32_t index = 0; index < called->output_count; ++index) {
    const TRITONPY_Tensor& output = called->outputs[index];
    arrived.outputs.push_back(
        {output.name, static_cast<TRITONSERVER_DataType>(output.datatype),
         std::vector<int64_t>(output.shape, output.shape + output.dim_count), output.data, output.byte_size});
  }
  for (uint32_t index = 0; index < called->parameter_count; ++index) {
    const TRITONPY_RequestParameter& from = called->parameters[index];
    const void* value = from.text;
    if (from.type == TRITONSERVER_PARAMETER_INT) {
      value = &from.integer;
    } else if (from.type == TRITONSERVER_PARAMETER_BOOL) {
      value = &from.boolean;
    } else if (from.type == TRITONSERVER_PARAMETER_DOUBLE) {
      value = &from.number;
    }
    arrived.parameters.emplace_back(
        from.name, static_cast<TRITONSERVER_ParameterType>(from.type), value);
  }
  server->calls->respond(tag, std::move(arrived));
}

void TRITONPY_ServerLetGo(TRITONSERVER_Server* server, uint64_t tag) { server->calls->let_go(tag); }

void TRITONPY_ServerAnswer(
    TRITONSERVER_Server* server, uint64_t tag, const char* text, uint64_t byte_size, int64_t number) {
  server->calls->answer(tag, [&](tritonpy::Question& question) {
    question.text.assign(text, byte_size);
    question.number = number;
  });
}

void TRITONPY_ServerRefuse(TRITONSERVER_Server* server, uint64_t tag, int error_code, const char* error) {
  server->calls->answer(tag, [&](tritonpy::Question& question) {
    question.has_error = true;
    question.error_code = static_cast<TRITONSERVER_Error_Code>(error_code);
    question.text = error;
  });
}
