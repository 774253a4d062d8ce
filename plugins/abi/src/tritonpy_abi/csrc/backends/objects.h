// What stands behind the opaque types of tritonpy/backend.h.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "backends/events.h"
#include "batching/objects.h"

struct TRITONBACKEND_Output {
  ~TRITONBACKEND_Output();

  std::string name;
  TRITONSERVER_DataType datatype;
  std::vector<int64_t> shape;
  void* data = nullptr;
  bool has_buffer = false;
  TRITONSERVER_BufferAttributes attributes;
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

struct TRITONBACKEND_ResponseFactory {
  tritonpy::ReplyHold reply;
};

struct TRITONBACKEND_ModelInstance {
  TRITONPY_ServedModel* model;
  std::string name;
  TRITONSERVER_InstanceGroupKind kind;
  int32_t device_id;
  TRITONSERVER_Message policy;
  void* state = nullptr;
  uint64_t compute_start_ns = 0;
  uint64_t compute_end_ns = 0;
};

// A model in the hands of a backend.
struct TRITONPY_ServedModel : TRITONBACKEND_Model {
  explicit TRITONPY_ServedModel(TRITONBACKEND_Model described) : TRITONBACKEND_Model(std::move(described)) {}

  std::shared_ptr<tritonpy::Events> events = std::make_shared<tritonpy::Events>();
};
