// A backend for tests of `backend.hpp`: the elements of IN come back as OUT, by way of C++ types.
#include "tritonpy/backend.hpp"
#include "tritonpy/parameters.h"

using tritonpy::Input;
using tritonpy::Response;

namespace {

const char *wish(TRITONBACKEND_Request *request) {
  TRITONSERVER_ParameterType type;
  const void *value;
  tritonpy::check(tritonpy_request_parameter(request, "do", &type, &value));
  return value == nullptr ? "" : static_cast<const char *>(value);
}

template <typename T>
void copy(const Input &input, Response &response) {
  response.add("OUT", input.shape(), input.values<T>());
}

using Copy = void (*)(const Input &, Response &);
const std::pair<const char *, Copy> kCopies[] = {
    {"UINT8", copy<uint8_t>},   {"UINT16", copy<uint16_t>}, {"UINT32", copy<uint32_t>},
    {"UINT64", copy<uint64_t>}, {"INT8", copy<int8_t>},     {"INT16", copy<int16_t>},
    {"INT32", copy<int32_t>},   {"INT64", copy<int64_t>},   {"FP32", copy<float>},
    {"FP64", copy<double>},
};

}  // namespace

TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model) {
  return tritonpy::guarded([&] {
    tritonpy::complete_config(
        model, 8, R"([{"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]}])",
        R"([{"name": "OUT", "data_type": "TYPE_INT32", "dims": [-1]}])");
    tritonpy::keep_state(model, std::make_unique<std::string>(tritonpy::directory_of(model)));
  });
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model) {
  return tritonpy::guarded([&] { tritonpy::forget_state<std::string>(model); });
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  return tritonpy::answer_each(instance, requests, request_count, [&](auto *request, auto &response) {
    const std::string what = wish(request);
    if (what == "throw an error") throw tritonpy::Error(TRITONSERVER_ERROR_NOT_FOUND, "it is not there");
    if (what == "throw an exception") throw std::runtime_error("something else");
    if (what == "throw a number") throw 1;
    const Input input(request, "IN");
    for (const auto &[name, copied] : kCopies) {
      if (what == name) copied(input, response);
    }
    if (what == "texts") response.add("OUT", input.shape(), input.texts());
    if (what == "bytes") response.add_bytes("OUT", TRITONSERVER_TYPE_BOOL, input.shape(), input.bytes());
    if (what == "where") {
      response.add("OUT", {1}, std::vector<std::string>{*tritonpy::state_of<std::string>(instance)});
    }
    return input.shape()[0];
  });
}
