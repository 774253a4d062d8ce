// Statistics that a backend reports of its requests and responses.

#include "backends/objects.h"

using tritonpy::invalid;

struct TRITONBACKEND_ModelInstanceResponseStatistics {
  TRITONBACKEND_ModelInstance* instance = nullptr;
  TRITONBACKEND_ResponseFactory* factory = nullptr;
  uint64_t start_ns = 0;
  uint64_t output_start_ns = 0;
  uint64_t end_ns = 0;
};

// The server counts all requests that are executed as successes, but for those that a backend reports as failed: it
// also counts those of which a backend says nothing.
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, const bool success,
    const uint64_t, const uint64_t, const uint64_t, const uint64_t) {
  TRITONPY_REQUIRE(instance);
  TRITONPY_REQUIRE(request);
  if (!success && request->reply != nullptr) {
    (*tritonpy::reply_of(request))->failed();
  }
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, const uint64_t, const uint64_t, const uint64_t compute_start_ns,
    const uint64_t compute_end_ns, const uint64_t) {
  TRITONPY_REQUIRE(instance);
  instance->compute_start_ns = compute_start_ns;
  instance->compute_end_ns = compute_end_ns;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics** response_statistics) {
  TRITONPY_REQUIRE(response_statistics);
  *response_statistics = new TRITONBACKEND_ModelInstanceResponseStatistics;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsDelete(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics) {
  delete response_statistics;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    TRITONBACKEND_ModelInstance* model_instance) {
  TRITONPY_REQUIRE(response_statistics);
  TRITONPY_REQUIRE(model_instance);
  response_statistics->instance = model_instance;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics,
    TRITONBACKEND_ResponseFactory* response_factory) {
  TRITONPY_REQUIRE(response_statistics);
  TRITONPY_REQUIRE(response_factory);
  response_statistics->factory = response_factory;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, uint64_t response_start) {
  TRITONPY_REQUIRE(response_statistics);
  response_statistics->start_ns = response_start;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, uint64_t compute_output_start) {
  TRITONPY_REQUIRE(response_statistics);
  response_statistics->output_start_ns = compute_output_start;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, uint64_t response_end) {
  TRITONPY_REQUIRE(response_statistics);
  response_statistics->end_ns = response_end;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, TRITONSERVER_Error*) {
  TRITONPY_REQUIRE(response_statistics);
  return nullptr;  // it is counted by the response that has it
}

// The server counts and times each response itself, by what was sent; what is reported has to be whole.
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics) {
  TRITONPY_REQUIRE(response_statistics);
  const auto& told = *response_statistics;
  if (told.instance == nullptr || told.factory == nullptr || told.start_ns == 0 || told.end_ns == 0) {
    return invalid(
        "response statistics need the model instance, the response factory, and the start and end of the response");
  }
  if (told.end_ns < told.start_ns ||
      (told.output_start_ns != 0 && (told.output_start_ns < told.start_ns || told.output_start_ns > told.end_ns))) {
    return invalid(
        "response statistics have times that are not in their order: start " + std::to_string(told.start_ns) +
        ", start of the output " + std::to_string(told.output_start_ns) + ", end " + std::to_string(told.end_ns));
  }
  return nullptr;
}
