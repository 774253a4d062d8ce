// A backend in C++ whose own threads answer: each model has two, which take requests from a queue.
//
// A request's parameter `do` has a number of responses, or what throws; it counts what it does in metrics, and
// notes who calls it. Everything that a library of C++ may bring along is here: objects that are made when it
// is opened, exceptions, RTTI, locals of threads, the standard library.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>
#include <vector>

#include "notes.h"

namespace {

constexpr int kThreadCount = 2;

class Failure : public std::runtime_error {
 public:
  Failure(TRITONSERVER_Error_Code code, const std::string& text) : std::runtime_error(text), code_(code) {}

  TRITONSERVER_Error_Code code() const { return code_; }

 private:
  TRITONSERVER_Error_Code code_;
};

// Throws what an error says.
void check(TRITONSERVER_Error* error) {
  if (error == nullptr) return;
  const Failure failure(TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  throw failure;
}

// No exception leaves a function that the server calls.
template <typename Step>
TRITONSERVER_Error* guarded(Step step) {
  try {
    step();
    return nullptr;
  } catch (const Failure& failure) {
    return TRITONSERVER_ErrorNew(failure.code(), failure.what());
  } catch (const std::exception& exception) {
    const bool is_argument = dynamic_cast<const std::logic_error*>(&exception) != nullptr;
    const std::string text = std::string(is_argument ? "bad argument: " : "failed: ") + exception.what();
    return TRITONSERVER_ErrorNew(
        is_argument ? TRITONSERVER_ERROR_INVALID_ARG : TRITONSERVER_ERROR_INTERNAL, text.c_str());
  }
}

// What is made when the library is opened.
const std::map<std::string, int> words = {{"none", 0}, {"one", 1}, {"three", 3}};
thread_local int answered_here = 0;

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

// ---- metrics ----

class Label {
 public:
  Label(const char* name, const std::string& value)
      : parameter_(TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_STRING, value.c_str())) {}
  ~Label() { TRITONSERVER_ParameterDelete(parameter_); }

  const TRITONSERVER_Parameter* get() const { return parameter_; }

 private:
  TRITONSERVER_Parameter* parameter_;
};

// A family with one metric, labelled with the model.
class Metric {
 public:
  Metric(TRITONSERVER_MetricKind kind, const char* name, const std::string& model, std::vector<double> bounds = {}) {
    check(TRITONSERVER_MetricFamilyNew(&family_, kind, name, "Of the backend \"busy\""));
    const Label of_model("model", model), text("text", "größer \"als\"\n");
    const TRITONSERVER_Parameter* labels[] = {of_model.get(), text.get()};
    TRITONSERVER_MetricKind known;
    check(TRITONSERVER_GetMetricFamilyKind(family_, &known));
    if (known != kind) throw std::logic_error("the family is of another kind");
    if (bounds.empty()) {
      check(TRITONSERVER_MetricNew(&metric_, family_, labels, 2));
    } else {
      TRITONSERVER_MetricArgs* arguments;
      check(TRITONSERVER_MetricArgsNew(&arguments));
      check(TRITONSERVER_MetricArgsSetHistogram(arguments, bounds.data(), bounds.size()));
      check(TRITONSERVER_MetricNewWithArgs(&metric_, family_, labels, 2, arguments));
      check(TRITONSERVER_MetricArgsDelete(arguments));
    }
    check(TRITONSERVER_GetMetricKind(metric_, &known));
    if (known != kind) throw std::logic_error("the metric is of another kind");
  }
  ~Metric() {
    TRITONSERVER_ErrorDelete(TRITONSERVER_MetricDelete(metric_));
    TRITONSERVER_ErrorDelete(TRITONSERVER_MetricFamilyDelete(family_));
  }

  void add(double value) { check(TRITONSERVER_MetricIncrement(metric_, value)); }
  void set(double value) { check(TRITONSERVER_MetricSet(metric_, value)); }
  void observe(double value) { check(TRITONSERVER_MetricObserve(metric_, value)); }
  double value() {
    double found = -1;
    check(TRITONSERVER_MetricValue(metric_, &found));
    return found;
  }

 private:
  TRITONSERVER_MetricFamily* family_ = nullptr;
  TRITONSERVER_Metric* metric_ = nullptr;
};

struct Metrics {
  explicit Metrics(const std::string& model)
      : requests(TRITONSERVER_METRIC_KIND_COUNTER, "busy_requests", model),
        latest(TRITONSERVER_METRIC_KIND_GAUGE, "busy_latest", model),
        sizes(TRITONSERVER_METRIC_KIND_HISTOGRAM, "busy_sizes", model, {8, 64.5}) {}

  Metric requests;
  Metric latest;
  Metric sizes;
};

// ---- requests ----

std::string wish(TRITONBACKEND_Request* request) {
  uint32_t count;
  check(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* key;
    TRITONSERVER_ParameterType type;
    const void* value;
    check(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value));
    if (std::string(key) == "do" && type == TRITONSERVER_PARAMETER_STRING) return static_cast<const char*>(value);
  }
  return "one";
}

struct Tensor {
  TRITONSERVER_DataType datatype;
  std::vector<int64_t> shape;
  std::string bytes;
};

Tensor read(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Input* input;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dim_count, buffer_count;
  uint64_t byte_size;
  check(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  check(TRITONBACKEND_InputProperties(input, nullptr, &datatype, &shape, &dim_count, &byte_size, &buffer_count));
  Tensor tensor{datatype, {shape, shape + dim_count}, {}};
  for (uint32_t index = 0; index < buffer_count; ++index) {
    const void* data;
    uint64_t size;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    check(TRITONBACKEND_InputBuffer(input, index, &data, &size, &type, &id));
    tensor.bytes.append(static_cast<const char*>(data), size);
  }
  return tensor;
}

void add_output(TRITONBACKEND_Response* response, const Tensor& tensor) {
  TRITONBACKEND_Output* output;
  const auto dim_count = static_cast<uint32_t>(tensor.shape.size());
  check(TRITONBACKEND_ResponseOutput(
      response, &output, "OUTPUT0", tensor.datatype, tensor.shape.data(), dim_count));
  void* buffer;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU_PINNED;
  int64_t id = 0;
  check(TRITONBACKEND_OutputBuffer(output, &buffer, tensor.bytes.size(), &type, &id));
  std::copy(tensor.bytes.begin(), tensor.bytes.end(), static_cast<char*>(buffer));
}

// As many responses as the request wishes for, the last one with the final flag; or an error.
void answer(TRITONBACKEND_Request* request, Metrics& metrics) {
  TRITONBACKEND_ResponseFactory* made;
  check(TRITONBACKEND_ResponseFactoryNew(&made, request));
  const std::unique_ptr<TRITONBACKEND_ResponseFactory, void (*)(TRITONBACKEND_ResponseFactory*)> factory(
      made, [](TRITONBACKEND_ResponseFactory* ended) {
        TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseFactoryDelete(ended));
      });
  Tensor tensor;
  int count = 1;
  TRITONSERVER_Error* error = guarded([&] {
    const std::string wanted = wish(request);
    tensor = read(request);
    metrics.sizes.observe(static_cast<double>(tensor.bytes.size()));
    metrics.latest.set(static_cast<double>(tensor.bytes.size()));
    const auto known = words.find(wanted);
    count = known != words.end() ? known->second : std::stoi(wanted);
    if (count < 0) throw Failure(TRITONSERVER_ERROR_NOT_FOUND, "there is less than nothing");
  });
  if (error != nullptr) count = 1;
  for (int index = 0; index < count; ++index) {
    TRITONBACKEND_Response* response;
    check(TRITONBACKEND_ResponseNewFromFactory(&response, factory.get()));
    if (error == nullptr) add_output(response, tensor);
    check(TRITONBACKEND_ResponseSetIntParameter(response, "index", index));
    check(TRITONBACKEND_ResponseSend(
        response, index == count - 1 ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, error));
  }
  TRITONSERVER_ErrorDelete(error);
  if (count == 0) {
    check(TRITONBACKEND_ResponseFactorySendFlags(factory.get(), TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  }
  metrics.requests.add(1);
  ++answered_here;
}

// ---- models and instances ----

struct Task {
  TRITONBACKEND_ModelInstance* instance;
  TRITONBACKEND_Request* request;
};

class Model {
 public:
  explicit Model(std::string name) : name_(std::move(name)), metrics_(name_) {
    for (int index = 0; index < kThreadCount; ++index) threads_.emplace_back([this] { work(); });
  }
  ~Model() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    note(about().c_str(), "  %g requests were answered", metrics_.requests.value());
  }

  std::string about() const { return "model " + name_; }

  void add(Task task) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(task);
    changed_.notify_one();
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_over_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const Task task = tasks_.front();
      tasks_.pop_front();
      lock.unlock();
      execute(task);
      lock.lock();
    }
  }

  void execute(const Task& task) {
    const uint64_t start_ns = now_ns();
    TRITONSERVER_Error* error = guarded([&] { answer(task.request, metrics_); });
    if (error != nullptr) {
      const std::string text = about() + ": " + TRITONSERVER_ErrorMessage(error);
      TRITONSERVER_ErrorDelete(error);
      TRITONSERVER_ErrorDelete(
          TRITONSERVER_LogMessage(TRITONSERVER_LOG_ERROR, __FILE__, __LINE__, text.c_str()));
    }
    const uint64_t end_ns = now_ns();
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceReportStatistics(
        task.instance, task.request, error == nullptr, start_ns, start_ns, end_ns, end_ns));
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestRelease(task.request, TRITONSERVER_REQUEST_RELEASE_ALL));
  }

  const std::string name_;
  Metrics metrics_;
  std::mutex mutex_;  // guards the next two
  std::deque<Task> tasks_;
  bool is_over_ = false;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

Model* model_of(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model;
  void* state;
  check(TRITONBACKEND_ModelInstanceModel(instance, &model));
  check(TRITONBACKEND_ModelState(model, &state));
  return static_cast<Model*>(state);
}

std::string name_of(TRITONBACKEND_ModelInstance* instance) {
  const char* name;
  check(TRITONBACKEND_ModelInstanceName(instance, &name));
  return std::string("instance ") + name;
}

// What is no handle's: names, sizes, parameters, attributes.
void ask_values() {
  const char* about = "backend";
  std::ostringstream line;
  for (int number = -1; number < 17; ++number) {
    const auto type = static_cast<TRITONSERVER_DataType>(number);
    line << TRITONSERVER_DataTypeString(type) << " " << TRITONSERVER_DataTypeByteSize(type) << " "
         << TRITONSERVER_StringToDataType(TRITONSERVER_DataTypeString(type)) << ", ";
    line << TRITONSERVER_ParameterTypeString(static_cast<TRITONSERVER_ParameterType>(number)) << " "
         << TRITONSERVER_InstanceGroupKindString(static_cast<TRITONSERVER_InstanceGroupKind>(number)) << " "
         << TRITONSERVER_MemoryTypeString(static_cast<TRITONSERVER_MemoryType>(number)) << "; ";
  }
  note(about, "  %s", line.str().c_str());
  TRITONSERVER_Parameter* bytes = TRITONSERVER_ParameterBytesNew("bytes", about, 3);
  note(about, "  bytes are %s", bytes == nullptr ? "refused" : "taken");
  TRITONSERVER_ParameterDelete(bytes);
  TRITONSERVER_BufferAttributes* attributes;
  char handle[64] = {};
  check(TRITONSERVER_BufferAttributesNew(&attributes));
  check(TRITONSERVER_BufferAttributesSetByteSize(attributes, 7));
  check(TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_GPU));
  check(TRITONSERVER_BufferAttributesSetMemoryTypeId(attributes, -3));
  check(TRITONSERVER_BufferAttributesSetCudaIpcHandle(attributes, handle));
  size_t byte_size = 0;
  TRITONSERVER_MemoryType type;
  int64_t id = 0;
  void* known = nullptr;
  check(TRITONSERVER_BufferAttributesByteSize(attributes, &byte_size));
  check(TRITONSERVER_BufferAttributesMemoryType(attributes, &type));
  check(TRITONSERVER_BufferAttributesMemoryTypeId(attributes, &id));
  check(TRITONSERVER_BufferAttributesCudaIpcHandle(attributes, &known));
  note(about, "  attributes: %zu bytes, type %d, id %d, %s", byte_size, static_cast<int>(type),
       static_cast<int>(id), known == nullptr ? "no handle" : "a handle");
  check(TRITONSERVER_BufferAttributesDelete(attributes));
}

// Made when the library is opened, and ended with it.
struct Opened {
  Opened() { note("library", "is opened"); }
} const opened;

}  // namespace

extern "C" {

TRITONPY_EXPORT TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  note("backend", "Initialize");
  return guarded(ask_values);
}

TRITONPY_EXPORT TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend*) {
  note("backend", "Finalize");
  return nullptr;
}

TRITONPY_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  return guarded([&] {
    const char* name;
    check(TRITONBACKEND_ModelName(model, &name));
    auto made = std::make_unique<Model>(name);
    note(made->about().c_str(), "ModelInitialize");
    check(TRITONBACKEND_ModelSetState(model, made.get()));
    made.release();
  });
}

TRITONPY_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return guarded([&] {
    void* state;
    check(TRITONBACKEND_ModelState(model, &state));
    const std::unique_ptr<Model> ended(static_cast<Model*>(state));
    note(ended->about().c_str(), "ModelFinalize");
  });
}

TRITONPY_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return guarded([&] { note(name_of(instance).c_str(), "ModelInstanceInitialize"); });
}

TRITONPY_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return guarded([&] { note(name_of(instance).c_str(), "ModelInstanceFinalize"); });
}

TRITONPY_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count) {
  return guarded([&] {
    const uint64_t start_ns = now_ns();
    note(name_of(instance).c_str(), "ModelInstanceExecute of %u", request_count);
    Model* model = model_of(instance);
    for (uint32_t index = 0; index < request_count; ++index) model->add({instance, requests[index]});
    check(TRITONBACKEND_ModelInstanceReportBatchStatistics(
        instance, request_count, start_ns, start_ns, now_ns(), now_ns()));
  });
}

}  // extern "C"
