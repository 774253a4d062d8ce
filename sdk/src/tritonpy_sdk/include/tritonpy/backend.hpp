// Backends in C++17: `backend.h` with exceptions for errors, typed tensors, and the steps of each request.
//
// A function that the server calls has a body in `guarded`, and `answer_each` in the one that executes:
//
//   return tritonpy::answer_each(instance, requests, count, [](auto *request, auto &response) {
//     const tritonpy::Input x(request, "X");
//     response.add("Y", x.shape(), x.values<float>());
//     return x.shape()[0];
//   });
//
// Nothing of this is needed: it is made of the functions in `backend.h`, and becomes part of your library.
#ifndef TRITONPY_BACKEND_HPP
#define TRITONPY_BACKEND_HPP

#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tritonpy/backend.h"

namespace tritonpy {

// An error with a code that clients see: thrown by you, and by all functions below.
struct Error : std::runtime_error {
  Error(TRITONSERVER_Error_Code code_, const std::string &message)
      : std::runtime_error(message), code(code_) {}
  TRITONSERVER_Error_Code code;
};

inline Error invalid(const std::string &message) { return {TRITONSERVER_ERROR_INVALID_ARG, message}; }

// Throw what a function of the API returns, unless that is NULL.
inline void check(TRITONSERVER_Error *error) {
  if (error == nullptr) return;
  const Error thrown(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  throw thrown;
}

// Call a body and return what it throws: no exception may leave a function that the server calls.
template <typename Body>
TRITONSERVER_Error *guarded(Body &&body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const Error &error) {
    return TRITONSERVER_ErrorNew(error.code, error.what());
  } catch (const std::exception &error) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, error.what());
  } catch (...) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "an exception of an unknown type");
  }
}

// Log an error that nobody waits for, and end it.
inline void report(TRITONSERVER_Error *error) noexcept {
  if (error == nullptr) return;
  const char *message = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, message));
  TRITONSERVER_ErrorDelete(error);
}

// The datatype of a number; elements that are no numbers of C++, as BOOL and FP16, are taken by their bytes.
template <typename T>
constexpr TRITONSERVER_DataType datatype_of() {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8);
  if (std::is_floating_point_v<T>) return sizeof(T) == 4 ? TRITONSERVER_TYPE_FP32 : TRITONSERVER_TYPE_FP64;
  const int size = sizeof(T) == 8 ? 3 : sizeof(T) / 2;  // integers of 1, 2, 4 and 8 bytes follow each other
  return static_cast<TRITONSERVER_DataType>(
      (std::is_signed_v<T> ? TRITONSERVER_TYPE_INT8 : TRITONSERVER_TYPE_UINT8) + size);
}

// Where the files of a model's version are.
inline std::string directory_of(TRITONBACKEND_Model *model) {
  TRITONBACKEND_ArtifactType type;
  const char *location;
  uint64_t version;
  check(TRITONBACKEND_ModelRepository(model, &type, &location));
  check(TRITONBACKEND_ModelVersion(model, &version));
  return std::string(location) + "/" + std::to_string(version);
}

// Complete a configuration that names no inputs, unless the server wants it as it is. Inputs and outputs are
// JSON arrays; what the configuration says already stays.
inline void complete_config(
    TRITONBACKEND_Model *model, int max_batch_size, const std::string &inputs, const std::string &outputs) {
  bool may_complete;
  check(TRITONBACKEND_ModelAutoCompleteConfig(model, &may_complete));
  TRITONSERVER_Message *message;
  check(TRITONBACKEND_ModelConfig(model, 1, &message));
  const char *json;
  size_t size;
  TRITONSERVER_Error *error = TRITONSERVER_MessageSerializeToJson(message, &json, &size);
  std::string config = error == nullptr ? std::string(json, size) : "";
  check(TRITONSERVER_MessageDelete(message));
  check(error);
  const auto replace = [&config](const std::string &text, const std::string &other) {
    const size_t at = config.find(text);  // the server writes no blanks
    if (at != std::string::npos) config.replace(at, text.size(), other);
    return at != std::string::npos;
  };
  if (!may_complete || !replace("\"input\":[]", "\"input\":" + inputs)) return;
  replace("\"output\":[]", "\"output\":" + outputs);
  replace("\"max_batch_size\":0", "\"max_batch_size\":" + std::to_string(max_batch_size));
  check(TRITONSERVER_MessageNewFromSerializedJson(&message, config.data(), config.size()));
  error = TRITONBACKEND_ModelSetConfig(model, 1, message);
  check(TRITONSERVER_MessageDelete(message));
  check(error);
}

// Hold on to what is known of a model, until `forget_state`.
template <typename State>
void keep_state(TRITONBACKEND_Model *model, std::unique_ptr<State> state) {
  check(TRITONBACKEND_ModelSetState(model, state.get()));
  state.release();
}

// NULL for a model without; Triton also finalises those that were refused.
template <typename State>
State *state_of(TRITONBACKEND_Model *model) {
  void *state;
  check(TRITONBACKEND_ModelState(model, &state));
  return static_cast<State *>(state);
}
template <typename State>
State *state_of(TRITONBACKEND_ModelInstance *instance) {
  TRITONBACKEND_Model *model;
  check(TRITONBACKEND_ModelInstanceModel(instance, &model));
  return state_of<State>(model);
}

template <typename State>
void forget_state(TRITONBACKEND_Model *model) {
  delete state_of<State>(model);
  check(TRITONBACKEND_ModelSetState(model, nullptr));
}

// An input of a request; its bytes are good until the request is released.
class Input {
 public:
  Input(TRITONBACKEND_Request *request, const char *name) {
    TRITONBACKEND_Input *handle;
    check(TRITONBACKEND_RequestInput(request, name, &handle));
    const int64_t *shape;
    uint32_t dim_count, buffer_count;
    check(TRITONBACKEND_InputProperties(handle, &name_, &type_, &shape, &dim_count, nullptr, &buffer_count));
    shape_.assign(shape, shape + dim_count);
    for (uint32_t index = 0; index < buffer_count; ++index) {
      const void *data;
      uint64_t size;
      TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
      int64_t id = 0;
      check(TRITONBACKEND_InputBuffer(handle, index, &data, &size, &memory, &id));
      if (memory == TRITONSERVER_MEMORY_GPU) throw unfit("is in the memory of a GPU");
      if (buffer_count == 1) bytes_ = {static_cast<const char *>(data), size};
      if (buffer_count > 1) bytes_ = joined_.append(static_cast<const char *>(data), size);
    }
  }
  Input(const Input &) = delete;

  const std::vector<int64_t> &shape() const { return shape_; }
  std::string_view bytes() const { return bytes_; }

  // The elements of an input of this type.
  template <typename T>
  std::vector<T> values() const {
    if (type_ != datatype_of<T>()) throw unfit("has another datatype than expected");
    std::vector<T> values(bytes_.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes_.data(), values.size() * sizeof(T));
    return values;
  }

  // The elements of an input of the datatype BYTES.
  std::vector<std::string_view> texts() const {
    if (type_ != TRITONSERVER_TYPE_BYTES) throw unfit("has another datatype than expected, BYTES");
    std::vector<std::string_view> texts;
    uint32_t size;
    for (std::string_view rest = bytes_; !rest.empty(); rest.remove_prefix(sizeof size + size)) {
      size = UINT32_MAX;
      if (rest.size() >= sizeof size) std::memcpy(&size, rest.data(), sizeof size);
      if (rest.size() < sizeof size + uint64_t(size)) throw unfit("ends inside an element");
      texts.push_back(rest.substr(sizeof size, size));
    }
    return texts;
  }

  // An error that names the input.
  Error unfit(const std::string &why) const {
    return invalid("input '" + std::string(name_) + "' (" + TRITONSERVER_DataTypeString(type_) + ") " + why);
  }

 private:
  const char *name_;
  TRITONSERVER_DataType type_;
  std::vector<int64_t> shape_;
  std::string_view bytes_;
  std::string joined_;  // the bytes of one that came in several buffers
};

// The response to a request, under way.
struct Response {
  // Add an output.
  template <typename T>
  void add(const char *name, const std::vector<int64_t> &shape, const std::vector<T> &values) {
    if constexpr (std::is_arithmetic_v<T>) {
      const auto *bytes = reinterpret_cast<const char *>(values.data());
      add_bytes(name, datatype_of<T>(), shape, {bytes, values.size() * sizeof(T)});
    } else {  // texts
      std::string bytes;
      for (const std::string_view text : values) {
        const auto size = static_cast<uint32_t>(text.size());
        bytes.append(reinterpret_cast<const char *>(&size), sizeof size).append(text);
      }
      add_bytes(name, TRITONSERVER_TYPE_BYTES, shape, bytes);
    }
  }
  void add_bytes(
      const char *name, TRITONSERVER_DataType type, const std::vector<int64_t> &shape,
      std::string_view bytes) {
    TRITONBACKEND_Output *output;
    const auto dim_count = static_cast<uint32_t>(shape.size());
    check(TRITONBACKEND_ResponseOutput(handle, &output, name, type, shape.data(), dim_count));
    void *buffer;
    TRITONSERVER_MemoryType memory = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    check(TRITONBACKEND_OutputBuffer(output, &buffer, bytes.size(), &memory, &id));
    if (memory == TRITONSERVER_MEMORY_GPU) throw Error(TRITONSERVER_ERROR_UNSUPPORTED, "no output on a GPU");
    if (!bytes.empty()) std::memcpy(buffer, bytes.data(), bytes.size());
  }

  TRITONBACKEND_Response *handle;
};

// Answer each request, report how long that took, and release it. `answer(request, response)` adds outputs
// and returns the rows that the request is of the batch; what it throws is that request's error.
template <typename Answer>
TRITONSERVER_Error *answer_each(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, uint32_t count,
    Answer &&answer) noexcept {
  const auto now_ns = []() -> uint64_t {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  };
  const uint64_t start_ns = now_ns();
  uint64_t batch_size = 0;
  for (uint32_t index = 0; index < count; ++index) {
    const uint64_t own_ns = now_ns();
    uint64_t row_count = 1;
    bool is_success = false;
    TRITONBACKEND_Request *request = requests[index];
    Response response{};
    TRITONSERVER_Error *failure = TRITONBACKEND_ResponseNew(&response.handle, request);
    if (failure == nullptr) {
      TRITONSERVER_Error *error = guarded([&] { row_count = static_cast<uint64_t>(answer(request, response)); });
      is_success = error == nullptr;
      failure = TRITONBACKEND_ResponseSend(response.handle, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error);
      TRITONSERVER_ErrorDelete(error);
      if (failure != nullptr) report(TRITONBACKEND_ResponseDelete(response.handle));
    }
    report(failure);
    batch_size += row_count;
    const uint64_t end_ns = now_ns();
    report(TRITONBACKEND_ModelInstanceReportStatistics(
        instance, request, is_success, own_ns, own_ns, end_ns, end_ns));
    report(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  const uint64_t end_ns = now_ns();
  report(TRITONBACKEND_ModelInstanceReportBatchStatistics(
      instance, batch_size, start_ns, start_ns, end_ns, end_ns));
  return nullptr;
}

}  // namespace tritonpy

#endif
