// What stands behind the opaque types of tritonpy/server.h.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "calls/calls.h"
#include "core/objects.h"

struct TRITONSERVER_Server {
  std::shared_ptr<tritonpy::Calls> calls = std::make_shared<tritonpy::Calls>();
};

struct TRITONSERVER_ResponseAllocator {
  TRITONSERVER_ResponseAllocatorAllocFn_t allocate;
  TRITONSERVER_ResponseAllocatorReleaseFn_t release;
  TRITONSERVER_ResponseAllocatorStartFn_t start;  // may be NULL, like those below
  TRITONSERVER_ResponseAllocatorQueryFn_t query = nullptr;
  TRITONSERVER_ResponseAllocatorBufferAttributesFn_t attributes = nullptr;
};

namespace tritonpy {

struct InputPart {
  const void* base;
  size_t byte_size;
};

struct RequestInput {
  std::string name;
  TRITONSERVER_DataType datatype;  // none for a raw one
  std::vector<int64_t> shape;
  std::vector<InputPart> parts;
};

}  // namespace tritonpy

struct TRITONSERVER_InferenceRequest {
  TRITONSERVER_Server* server;
  std::string model;
  int64_t version;
  int64_t actual_version;
  std::string id;
  std::string correlation_text;
  bool has_correlation_text = false;
  uint64_t correlation_number = 0;
  uint64_t priority = 0;
  uint64_t timeout_us = 0;
  uint32_t flags = 0;
  std::deque<tritonpy::RequestInput> inputs;
  std::vector<std::string> outputs;
  std::deque<TRITONSERVER_Parameter> parameters;
  TRITONSERVER_InferenceRequestReleaseFn_t release = nullptr;
  void* release_userp = nullptr;
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  TRITONSERVER_InferenceResponseCompleteFn_t complete = nullptr;
  void* complete_userp = nullptr;

  std::mutex mutex;  // guards the rest
  std::shared_ptr<tritonpy::Flight> flight;  // while the server has it
  bool was_sent = false;
  bool is_cancelled = false;
};

struct TRITONSERVER_InferenceResponse {
  struct Output {
    std::string name;
    TRITONSERVER_DataType datatype;
    std::vector<int64_t> shape;
    void* buffer = nullptr;
    void* buffer_userp = nullptr;
    TRITONSERVER_BufferAttributes attributes;
  };

  ~TRITONSERVER_InferenceResponse();

  TRITONSERVER_Server* server;
  std::string model;
  int64_t version;
  std::string id;
  TRITONSERVER_ResponseAllocator* allocator;
  bool has_error = false;
  TRITONSERVER_Error_Code error_code = TRITONSERVER_ERROR_UNKNOWN;
  std::string error;
  std::deque<Output> outputs;
  std::deque<TRITONSERVER_Parameter> parameters;
  std::deque<std::string> labels;  // that were asked for
};
