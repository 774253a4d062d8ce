// What stands behind the opaque types of tritonpy/backend.h.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/blocks.h"
#include "backends/events.h"
#include "backends/memory_usage.h"
#include "backends/packing.h"
#include "batching/objects.h"

struct TRITONBACKEND_Output {
  ~TRITONBACKEND_Output();

  std::string name;
  TRITONSERVER_DataType datatype;
  std::vector<int64_t> shape;
  void* data = nullptr;
  uint64_t byte_size = 0;  // of the data
  tritonpy::Block block;  // of the driver, in which the data is; none for memory of its own
  bool has_buffer = false;
  TRITONSERVER_BufferAttributes attributes;  // what the backend sees of it, and may write to
};

struct TRITONBACKEND_Response {
  explicit TRITONBACKEND_Response(tritonpy::ReplyHold to) : reply(std::move(to)) {}

  tritonpy::ReplyHold reply;  // gone when it is sent
  std::deque<TRITONBACKEND_Output> outputs;  // whose addresses stay
  std::deque<TRITONSERVER_Parameter> parameters;
  bool has_error = false;
  int error_code = 0;
  std::string error;
  // Made when it is taken by the driver.
  std::vector<TRITONPY_SentOutput> sent_outputs;
  std::vector<TRITONPY_RequestParameter> sent_parameters;
};

struct TRITONBACKEND_State {
  explicit TRITONBACKEND_State(tritonpy::Reply* of) : reply(of) {}

  tritonpy::Reply* const reply;  // which has this
  const TRITONBACKEND_Input* before = nullptr;  // what its buffer begins with
  TRITONBACKEND_Output value;
};

struct TRITONSERVER_InferenceTrace {
  tritonpy::Reply* reply;  // which has this
  uint64_t id;
  uint64_t parent_id;
  int64_t model_version;
  std::string model_name;
  std::string request_id;
  std::string context;
};

struct TRITONBACKEND_ResponseFactory {
  tritonpy::ReplyHold reply;
};

namespace tritonpy {

// The turns of a model's devices: with DEVICE_BLOCKING, Triton has one thread for the instances on a GPU.
class DeviceTurns {
 public:
  std::shared_ptr<std::mutex> of(int32_t device_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::shared_ptr<std::mutex>& turn = turns_[device_id];
    if (turn == nullptr) {
      turn = std::make_shared<std::mutex>();
    }
    return turn;
  }

 private:
  std::mutex mutex_;  // guards the next line; instances may be opened at the same time
  std::map<int32_t, std::shared_ptr<std::mutex>> turns_;
};

}  // namespace tritonpy

struct TRITONBACKEND_ModelInstance {
  TRITONPY_ServedModel* model;
  std::string name;
  TRITONSERVER_InstanceGroupKind kind;
  int32_t device_id;
  TRITONSERVER_Message policy;
  std::vector<std::pair<std::string, int64_t>> secondary_devices = {};
  std::vector<std::string> profiles = {};
  std::unique_ptr<tritonpy::MemoryReport> memory = std::make_unique<tritonpy::MemoryReport>();
  std::shared_ptr<std::mutex> device_turn = nullptr;  // held while it executes, where instances take turns
  std::shared_ptr<tritonpy::Events> events = nullptr;  // of its requests: its model's, or its executor's
  void* state = nullptr;
  uint64_t compute_start_ns = 0;
  uint64_t compute_end_ns = 0;
};

// Events, and the driver's way to take them.
struct TRITONPY_Events {
  explicit TRITONPY_Events(std::shared_ptr<tritonpy::Events> taken) : events(std::move(taken)) {}

  const std::shared_ptr<tritonpy::Events> events;
  tritonpy::Packing packing;
};

// A model in the hands of a backend.
struct TRITONPY_ServedModel : TRITONBACKEND_Model {
  explicit TRITONPY_ServedModel(TRITONBACKEND_Model described) : TRITONBACKEND_Model(std::move(described)) {
    memory = &used_memory;
  }

  TRITONPY_Events queue{std::make_shared<tritonpy::Events>()};
  std::shared_ptr<const tritonpy::StateSpecs> states;  // once its configuration is settled
  tritonpy::MemoryReport used_memory;
  tritonpy::DeviceTurns device_turns;
};
