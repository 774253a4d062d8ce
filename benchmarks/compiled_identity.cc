// The backend of the part "compiled": copies INPUT0 to OUTPUT0, answers at once and reports statistics.
//
// It calls what a backend in C++ has to call for that and nothing else, and never links with a server: the same
// file is opened by the real tritonserver and by ours.

#include <chrono>
#include <cstring>

#include "tritonpy/backend.h"

namespace {

uint64_t now_ns() {
  using std::chrono::nanoseconds;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(now).count());
}

TRITONSERVER_Error* copy(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response) {
  TRITONBACKEND_Input* input;
  if (auto* error = TRITONBACKEND_RequestInput(request, "INPUT0", &input)) {
    return error;
  }
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dim_count;
  uint64_t byte_size;
  uint32_t buffer_count;
  if (auto* error = TRITONBACKEND_InputProperties(
          input, nullptr, &datatype, &shape, &dim_count, &byte_size, &buffer_count)) {
    return error;
  }
  TRITONBACKEND_Output* output;
  if (auto* error = TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", datatype, shape, dim_count)) {
    return error;
  }
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  void* target;
  if (auto* error = TRITONBACKEND_OutputBuffer(output, &target, byte_size, &memory_type, &memory_type_id)) {
    return error;
  }
  uint64_t copied = 0;
  for (uint32_t index = 0; index < buffer_count; ++index) {
    const void* part;
    uint64_t part_byte_size;
    if (auto* error = TRITONBACKEND_InputBuffer(
            input, index, &part, &part_byte_size, &memory_type, &memory_type_id)) {
      return error;
    }
    std::memcpy(static_cast<char*>(target) + copied, part, part_byte_size);
    copied += part_byte_size;
  }
  return nullptr;
}

}  // namespace

extern "C" TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count) {
  const uint64_t start_ns = now_ns();
  for (uint32_t index = 0; index < request_count; ++index) {
    TRITONBACKEND_Request* request = requests[index];
    TRITONBACKEND_Response* response;
    TRITONSERVER_Error* failure = TRITONBACKEND_ResponseNew(&response, request);
    if (failure == nullptr) {
      failure = copy(request, response);
      TRITONSERVER_ErrorDelete(
          TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, failure));
    }
    const bool is_success = failure == nullptr;
    TRITONSERVER_ErrorDelete(failure);
    const uint64_t end_ns = now_ns();
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, request, is_success, start_ns, start_ns, end_ns, end_ns));
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  const uint64_t end_ns = now_ns();
  return TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance, request_count, start_ns, start_ns, end_ns, end_ns);
}
