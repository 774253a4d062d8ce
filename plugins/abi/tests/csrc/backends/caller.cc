// A backend in C++ that has other models answer, asks for all that there is of requests and responses on the
// way, also in ways in which nobody should, and notes what it hears. A request's parameter `do` says what:
// `call MODEL WISH`, `ask MODEL VERSION`, `control`, `set`, `make`. Its INPUT0 comes back as OUTPUT0.

#include <algorithm>
#include <cinttypes>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "notes.h"
#include "tritonpy/server.h"

namespace {

constexpr int64_t kNewest = -1;

std::string shape_text(const int64_t* shape, uint64_t dim_count) {
  std::ostringstream text;
  for (uint64_t index = 0; index < dim_count; ++index) text << (index == 0 ? "[" : ",") << shape[index];
  text << (dim_count == 0 ? "[]" : "]");
  return text.str();
}

std::string error_text(TRITONSERVER_Error* error) {
  if (error == nullptr) return "done";
  const std::string text = std::string(TRITONSERVER_ErrorCodeString(error)) + ": " + TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  return text;
}

std::string value_text(TRITONSERVER_ParameterType type, const void* value) {
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      return std::string("'") + static_cast<const char*>(value) + "'";
    case TRITONSERVER_PARAMETER_INT:
      return std::to_string(*static_cast<const int64_t*>(value));
    case TRITONSERVER_PARAMETER_BOOL:
      return *static_cast<const bool*>(value) ? "true" : "false";
    case TRITONSERVER_PARAMETER_DOUBLE:
      return std::to_string(*static_cast<const double*>(value));
    default:
      return "of type " + std::to_string(static_cast<int>(type));
  }
}

// What callbacks hear, until the call is over. They come from other threads.
class Heard {
 public:
  void add(const std::string& line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lines_.push_back(line);
  }
  void is_final() { set(&has_final_); }
  void is_released() { set(&has_release_); }

  std::vector<std::string> wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return has_final_ && has_release_; });
    return lines_;
  }

 private:
  void set(bool* flag) {
    const std::lock_guard<std::mutex> lock(mutex_);
    *flag = true;
    changed_.notify_all();
  }

  std::mutex mutex_;  // guards all of it
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  bool has_final_ = false;
  bool has_release_ = false;
};

// ---- what the server calls ----

TRITONSERVER_Error* allocate(
    TRITONSERVER_ResponseAllocator*, const char* name, size_t byte_size, TRITONSERVER_MemoryType type, int64_t,
    void* userp, void** buffer, void** buffer_userp, TRITONSERVER_MemoryType* given, int64_t* given_id) {
  auto* heard = static_cast<Heard*>(userp);
  heard->add("allocate " + std::to_string(byte_size) + " bytes for " + name + " in " +
             TRITONSERVER_MemoryTypeString(type));
  *buffer = byte_size == 0 ? nullptr : std::malloc(byte_size);
  *buffer_userp = heard;
  *given = TRITONSERVER_MEMORY_CPU;
  *given_id = 0;
  return nullptr;
}

TRITONSERVER_Error* query(
    TRITONSERVER_ResponseAllocator*, void* userp, const char* name, size_t* byte_size,
    TRITONSERVER_MemoryType* type, int64_t* id) {
  static_cast<Heard*>(userp)->add(
      std::string("where will be ") + name + (byte_size == nullptr ? "" : ", of some size"));
  *type = TRITONSERVER_MEMORY_CPU;
  *id = 0;
  return nullptr;
}

TRITONSERVER_Error* take_back(
    TRITONSERVER_ResponseAllocator*, void* buffer, void* userp, size_t byte_size, TRITONSERVER_MemoryType type,
    int64_t) {
  static_cast<Heard*>(userp)->add("take back " + std::to_string(byte_size) + " bytes of " +
                                  TRITONSERVER_MemoryTypeString(type));
  std::free(buffer);
  return nullptr;
}

TRITONSERVER_Error* describe(
    TRITONSERVER_ResponseAllocator*, const char* name, TRITONSERVER_BufferAttributes* attributes, void* userp, void*) {
  size_t byte_size = 0;
  TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesByteSize(attributes, &byte_size));
  static_cast<Heard*>(userp)->add(
      std::string("attributes of ") + name + ": " + std::to_string(byte_size) + " bytes");
  return nullptr;
}

TRITONSERVER_Error* begin(TRITONSERVER_ResponseAllocator*, void* userp) {
  static_cast<Heard*>(userp)->add("begin a response");
  return nullptr;
}

void add_response(Heard* heard, TRITONSERVER_InferenceResponse* response) {
  const char *name = "", *id = "";
  int64_t version = 0;
  uint32_t count = 0;
  if (TRITONSERVER_Error* error = TRITONSERVER_InferenceResponseError(response)) {
    heard->add("an error, " + error_text(error));
    return;
  }
  heard->add("its model: " + error_text(TRITONSERVER_InferenceResponseModel(response, &name, &version)));
  heard->add("its id: " + error_text(TRITONSERVER_InferenceResponseId(response, &id)));
  heard->add(std::string("a response of ") + name + " " + std::to_string(version) + ", id '" + id + "'");
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceResponseParameterCount(response, &count));
  for (uint32_t index = 0; index < count + 1; ++index) {
    TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_INT;
    const void* value = nullptr;
    TRITONSERVER_Error* error = TRITONSERVER_InferenceResponseParameter(response, index, &name, &type, &value);
    heard->add(error != nullptr ? "no parameter, " + error_text(error)
                                : std::string("parameter ") + name + " " + value_text(type, value));
  }
  TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceResponseOutputCount(response, &count));
  for (uint32_t index = 0; index < count + 1; ++index) {
    TRITONSERVER_DataType datatype;
    const int64_t* shape;
    uint64_t dim_count;
    const void* base;
    size_t byte_size;
    TRITONSERVER_MemoryType type;
    int64_t memory_id;
    void* userp;
    if (TRITONSERVER_Error* error = TRITONSERVER_InferenceResponseOutput(
            response, index, &name, &datatype, &shape, &dim_count, &base, &byte_size, &type, &memory_id, &userp)) {
      heard->add("no output, " + error_text(error));
      continue;
    }
    std::string text = std::string("output ") + name + " " + TRITONSERVER_DataTypeString(datatype) + " " +
                       shape_text(shape, dim_count) + (userp == heard ? " of this call:" : " of another call:");
    for (size_t at = 0; at < byte_size; ++at) {
      text += " " + std::to_string(static_cast<const unsigned char*>(base)[at]);
    }
    heard->add(text);
  }
}

void take_response(TRITONSERVER_InferenceResponse* response, const uint32_t flags, void* userp) {
  auto* heard = static_cast<Heard*>(userp);
  if (response == nullptr) {
    heard->add((flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0 ? "nothing more" : "nothing yet");
  } else {
    add_response(heard, response);
    heard->add("end of the response: " + error_text(TRITONSERVER_InferenceResponseDelete(response)));
  }
  if ((flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0) heard->is_final();
}

void take_request(TRITONSERVER_InferenceRequest*, const uint32_t, void* userp) {
  static_cast<Heard*>(userp)->is_released();
}

// ---- what is asked ----

class Asker {
 public:
  Asker(const char* about, TRITONSERVER_Server* server) : about_(about), server_(server) {}

  void say(const std::string& what, TRITONSERVER_Error* error) {
    note(about_, "  %s: %s", what.c_str(), error_text(error).c_str());
  }

  // Requests for models that are there, and not.
  void make() {
    for (const char* name : {"plain", "nobody", "", "refused", "whole"}) {
      for (const int64_t version : {kNewest, INT64_C(1), INT64_C(99)}) {
        TRITONSERVER_InferenceRequest* request = nullptr;
        say(std::string("a request for '") + name + "' " + std::to_string(version),
            TRITONSERVER_InferenceRequestNew(&request, server_, name, version));
        if (request != nullptr) say("its end", TRITONSERVER_InferenceRequestDelete(request));
      }
    }
  }

  // All that can be set of a request, and read again.
  void set() {
    TRITONSERVER_InferenceRequest* request = nullptr;
    TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestNew(&request, server_, "plain", kNewest));
    read(request);
    say("id", TRITONSERVER_InferenceRequestSetId(request, "größer"));
    say("flags", TRITONSERVER_InferenceRequestSetFlags(request, 3));
    say("correlation id", TRITONSERVER_InferenceRequestSetCorrelationId(request, UINT64_MAX));
    say("priority", TRITONSERVER_InferenceRequestSetPriority(request, 7));
    say("timeout", TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(request, 123456789012));
    read(request);
    say("correlation text", TRITONSERVER_InferenceRequestSetCorrelationIdString(request, "abc"));
    say("larger priority", TRITONSERVER_InferenceRequestSetPriorityUInt64(request, UINT64_C(1) << 33));
    read(request);
    const std::string longest(128, 'x'), longer(129, 'x');
    say("longest text", TRITONSERVER_InferenceRequestSetCorrelationIdString(request, longest.c_str()));
    say("longer text", TRITONSERVER_InferenceRequestSetCorrelationIdString(request, longer.c_str()));
    set_inputs(request);
    set_outputs(request);
    for (const char* name : {"text", "timeout", "sequence_id", "triton_x", ""}) {
      say(std::string("text for ") + name, TRITONSERVER_InferenceRequestSetStringParameter(request, name, "t"));
      say(std::string("number for ") + name, TRITONSERVER_InferenceRequestSetIntParameter(request, name, 1));
    }
    say("truth", TRITONSERVER_InferenceRequestSetBoolParameter(request, "truth", true));
    say("part", TRITONSERVER_InferenceRequestSetDoubleParameter(request, "part", 0.5));
    say("cancel", TRITONSERVER_InferenceRequestCancel(request));
    bool is_cancelled = false;
    say("is cancelled", TRITONSERVER_InferenceRequestIsCancelled(request, &is_cancelled));
    note(about_, "  which it is%s", is_cancelled ? "" : " not");
    say("infer without callbacks", TRITONSERVER_ServerInferAsync(server_, request, nullptr));
    say("end", TRITONSERVER_InferenceRequestDelete(request));
  }

  // What the server says of itself and of a model.
  void ask(const std::string& model, int64_t version) {
    const char* name = model.c_str();
    bool is_so = false;
    uint32_t flags = 77;
    void* object = this;
    TRITONSERVER_Message* message = nullptr;
    say("live", TRITONSERVER_ServerIsLive(server_, &is_so));
    note(about_, "  it is %s", is_so ? "live" : "not");
    say("ready", TRITONSERVER_ServerIsReady(server_, &is_so));
    note(about_, "  it is %s", is_so ? "ready" : "not");
    is_so = false;
    say("model ready", TRITONSERVER_ServerModelIsReady(server_, name, version, &is_so));
    note(about_, "  it is %s", is_so ? "ready" : "not");
    say("batches", TRITONSERVER_ServerModelBatchProperties(server_, name, version, &flags, &object));
    note(about_, "  flags %u, %s", flags, object == nullptr ? "nothing" : "something");
    flags = 77;
    say("transactions", TRITONSERVER_ServerModelTransactionProperties(server_, name, version, &flags, nullptr));
    note(about_, "  flags %u", flags);
    hear("server", TRITONSERVER_ServerMetadata(server_, &message), &message);
    hear("metadata", TRITONSERVER_ServerModelMetadata(server_, name, version, &message), &message);
    hear("statistics", TRITONSERVER_ServerModelStatistics(server_, name, version, &message), &message);
    hear("configuration", TRITONSERVER_ServerModelConfig(server_, name, version, 1, &message), &message);
    hear("its version 2", TRITONSERVER_ServerModelConfig(server_, name, version, 2, &message), &message);
    for (const uint32_t each : {0U, 1U, 2U}) {
      hear("index " + std::to_string(each), TRITONSERVER_ServerModelIndex(server_, each, &message), &message);
    }
  }

  // Models loaded and unloaded, by names that are there and not; and the page of metrics.
  void control() {
    say("load", TRITONSERVER_ServerLoadModel(server_, "spare"));
    bool is_ready = false;
    say("is it ready", TRITONSERVER_ServerModelIsReady(server_, "spare", kNewest, &is_ready));
    note(about_, "  it is %s", is_ready ? "ready" : "not");
    say("load nobody", TRITONSERVER_ServerLoadModel(server_, "nobody"));
    say("load ''", TRITONSERVER_ServerLoadModel(server_, ""));
    TRITONSERVER_Parameter* config = TRITONSERVER_ParameterNew(
        "config", TRITONSERVER_PARAMETER_STRING, "{\"backend\":\"curious\",\"max_batch_size\":3}");
    const TRITONSERVER_Parameter* parameters[] = {config};
    say("load with a configuration", TRITONSERVER_ServerLoadModelWithParameters(server_, "spare", parameters, 1));
    TRITONSERVER_ParameterDelete(config);
    TRITONSERVER_Message* message = nullptr;
    hear("its metadata", TRITONSERVER_ServerModelMetadata(server_, "spare", kNewest, &message), &message);
    say("unload", TRITONSERVER_ServerUnloadModel(server_, "spare"));
    say("unload again", TRITONSERVER_ServerUnloadModelAndDependents(server_, "spare"));
    say("unload nobody", TRITONSERVER_ServerUnloadModel(server_, "nobody"));
    TRITONSERVER_Metrics* metrics = nullptr;
    say("metrics", TRITONSERVER_ServerMetrics(server_, &metrics));
    const char* page = "";
    size_t byte_size = 0;
    say("their page", TRITONSERVER_MetricsFormatted(metrics, TRITONSERVER_METRIC_PROMETHEUS, &page, &byte_size));
    const bool has_models = std::string(page, byte_size).find("nv_inference_count{model=\"") != std::string::npos;
    note(about_, "  which %s", has_models ? "has models" : "has none");
    say("in another format", TRITONSERVER_MetricsFormatted(
                                 metrics, static_cast<TRITONSERVER_MetricFormat>(77), &page, &byte_size));
    say("their end", TRITONSERVER_MetricsDelete(metrics));
  }

  // A call of a model, with a wish for it.
  void call(const std::string& model, const std::string& wish) {
    Heard heard;
    TRITONSERVER_ResponseAllocator* allocator = nullptr;
    TRITONSERVER_InferenceRequest* request = nullptr;
    say("allocator", TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, take_back, begin));
    say("its query", TRITONSERVER_ResponseAllocatorSetQueryFunction(allocator, query));
    say("its attributes", TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction(allocator, describe));
    say("request", TRITONSERVER_InferenceRequestNew(&request, server_, model.c_str(), kNewest));
    if (request != nullptr) {
      fill(request, model, wish);
      say("release callback", TRITONSERVER_InferenceRequestSetReleaseCallback(request, take_request, &heard));
      say("response callback", TRITONSERVER_InferenceRequestSetResponseCallback(
                                   request, allocator, &heard, take_response, &heard));
      infer(request, heard);
      say("end of the request", TRITONSERVER_InferenceRequestDelete(request));
    }
    say("end of the allocator", TRITONSERVER_ResponseAllocatorDelete(allocator));
  }

 private:
  void hear(const std::string& what, TRITONSERVER_Error* error, TRITONSERVER_Message** message) {
    const bool is_there = error == nullptr;
    say(what, error);
    if (!is_there) return;
    note_message(about_, what.c_str(), *message);
    TRITONSERVER_ErrorDelete(TRITONSERVER_MessageDelete(*message));
  }

  void read(TRITONSERVER_InferenceRequest* request) {
    const char* text = "";
    uint32_t number = 77;
    uint64_t large = 77;
    say("read id", TRITONSERVER_InferenceRequestId(request, &text));
    say("read flags", TRITONSERVER_InferenceRequestFlags(request, &number));
    note(about_, "  id '%s', flags %u", text, number);
    large = 77, text = "";
    say("read correlation id", TRITONSERVER_InferenceRequestCorrelationId(request, &large));
    say("read correlation text", TRITONSERVER_InferenceRequestCorrelationIdString(request, &text));
    note(about_, "  correlation %" PRIu64 " '%s'", large, text);
    number = 77, large = 77;
    say("read priority", TRITONSERVER_InferenceRequestPriority(request, &number));
    say("read larger priority", TRITONSERVER_InferenceRequestPriorityUInt64(request, &large));
    note(about_, "  priority %u %" PRIu64, number, large);
    say("read timeout", TRITONSERVER_InferenceRequestTimeoutMicroseconds(request, &large));
    note(about_, "  timeout %" PRIu64, large);
  }

  void set_inputs(TRITONSERVER_InferenceRequest* request) {
    const int64_t shape[] = {1, 2};
    const int32_t data[] = {1, 2};
    const auto int32 = TRITONSERVER_TYPE_INT32;
    const auto cpu = TRITONSERVER_MEMORY_CPU;
    TRITONSERVER_BufferAttributes* attributes;
    say("input", TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", int32, shape, 2));
    say("same input", TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", int32, shape, 2));
    say("unknown input", TRITONSERVER_InferenceRequestAddInput(request, "ANOTHER", int32, shape, 2));
    say("raw input", TRITONSERVER_InferenceRequestAddRawInput(request, "INPUT0"));
    say("data", TRITONSERVER_InferenceRequestAppendInputData(request, "INPUT0", data, 8, cpu, 0));
    say("more data", TRITONSERVER_InferenceRequestAppendInputData(request, "INPUT0", data, 8, cpu, 0));
    say("no data", TRITONSERVER_InferenceRequestAppendInputData(request, "INPUT0", nullptr, 0, cpu, 0));
    say("data of nobody", TRITONSERVER_InferenceRequestAppendInputData(request, "NOBODY", data, 8, cpu, 0));
    say("data for a policy", TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
                                 request, "INPUT0", data, 8, cpu, 0, "cpu"));
    say("attributes", TRITONSERVER_BufferAttributesNew(&attributes));
    TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesSetByteSize(attributes, 8));
    say("data with attributes", TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
                                    request, "INPUT0", data, attributes));
    TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesDelete(attributes));
    say("remove data", TRITONSERVER_InferenceRequestRemoveAllInputData(request, "INPUT0"));
    say("remove data of nobody", TRITONSERVER_InferenceRequestRemoveAllInputData(request, "NOBODY"));
    say("remove input", TRITONSERVER_InferenceRequestRemoveInput(request, "INPUT0"));
    say("remove input again", TRITONSERVER_InferenceRequestRemoveInput(request, "INPUT0"));
    say("remove all inputs", TRITONSERVER_InferenceRequestRemoveAllInputs(request));
    say("remove all inputs again", TRITONSERVER_InferenceRequestRemoveAllInputs(request));
  }

  void set_outputs(TRITONSERVER_InferenceRequest* request) {
    say("output", TRITONSERVER_InferenceRequestAddRequestedOutput(request, "OUTPUT0"));
    say("same output", TRITONSERVER_InferenceRequestAddRequestedOutput(request, "OUTPUT0"));
    say("unknown output", TRITONSERVER_InferenceRequestAddRequestedOutput(request, "ANOTHER"));
    say("remove output", TRITONSERVER_InferenceRequestRemoveRequestedOutput(request, "OUTPUT0"));
    say("remove output again", TRITONSERVER_InferenceRequestRemoveRequestedOutput(request, "OUTPUT0"));
    say("remove all outputs", TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(request));
  }

  void fill(TRITONSERVER_InferenceRequest* request, const std::string& model, const std::string& wish) {
    static const int32_t data[] = {5, 6};
    const int64_t shape[] = {1, 2};
    const bool batches = model != "often" && model != "bare";
    const char* name = model == "whole" ? "IN" : "INPUT0";
    say("id", TRITONSERVER_InferenceRequestSetId(request, "of a caller"));
    say("wish", TRITONSERVER_InferenceRequestSetStringParameter(request, "do", wish.c_str()));
    say("input", TRITONSERVER_InferenceRequestAddInput(
                     request, name, wish == "wrong type" ? TRITONSERVER_TYPE_FP32 : TRITONSERVER_TYPE_INT32,
                     batches ? shape : shape + 1, batches ? 2 : 1));
    const auto cpu = TRITONSERVER_MEMORY_CPU;
    say("first data", TRITONSERVER_InferenceRequestAppendInputData(request, name, data, 4, cpu, 0));
    if (wish == "half") return;
    say("second data", TRITONSERVER_InferenceRequestAppendInputData(request, name, data + 1, 4, cpu, 0));
    if (wish == "unknown output") {
      say("output", TRITONSERVER_InferenceRequestAddRequestedOutput(request, "ANOTHER"));
    }
  }

  void infer(TRITONSERVER_InferenceRequest* request, Heard& heard) {
    TRITONSERVER_Error* error = TRITONSERVER_ServerInferAsync(server_, request, nullptr);
    const bool is_refused = error != nullptr;
    say("infer", error);
    if (is_refused) return;
    for (const std::string& line : heard.wait()) note(about_, "  %s", line.c_str());
  }

  const char* about_;
  TRITONSERVER_Server* server_;
};

std::string wish_of(TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* key = "";
    TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_INT;
    const void* value = nullptr;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value));
    if (std::string(key) == "do" && type == TRITONSERVER_PARAMETER_STRING) return static_cast<const char*>(value);
  }
  return "";
}

// Of a response of its own.
void ask_output(const char* about, TRITONBACKEND_Response* response) {
  const char* name = "";
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  const int64_t* shape = nullptr;
  uint64_t dim_count = 0;
  for (const uint32_t index : {0U, 1U}) {
    std::string said = error_text(
        TRITONBACKEND_InferenceResponseOutput(response, index, &name, &datatype, &shape, &dim_count));
    note(about, "  output %u: %s, %s %s", index, said.c_str(), name, shape_text(shape, dim_count).c_str());
  }
  for (const char* wanted : {"OUTPUT0", "ANOTHER"}) {
    dim_count = 0;
    std::string said = error_text(
        TRITONBACKEND_InferenceResponseOutputByName(response, wanted, &datatype, &shape, &dim_count));
    note(about, "  output %s: %s, %s %s", wanted, said.c_str(), TRITONSERVER_DataTypeString(datatype),
         shape_text(shape, dim_count).c_str());
  }
}

void answer(const char* about, TRITONBACKEND_Request* request) {
  TRITONBACKEND_Input* input = nullptr;
  TRITONBACKEND_Response* response = nullptr;
  TRITONBACKEND_Output* output = nullptr;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dim_count, buffer_count;
  uint64_t byte_size;
  const void* data;
  void* buffer;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  answered(about, "input", TRITONBACKEND_RequestInput(request, "INPUT0", &input));
  answered(about, "input", TRITONBACKEND_InputProperties(
                               input, nullptr, &datatype, &shape, &dim_count, &byte_size, &buffer_count));
  answered(about, "data", TRITONBACKEND_InputBuffer(input, 0, &data, &byte_size, &type, &id));
  answered(about, "response", TRITONBACKEND_ResponseNew(&response, request));
  answered(about, "output", TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", datatype, shape, dim_count));
  answered(about, "buffer", TRITONBACKEND_OutputBuffer(output, &buffer, byte_size, &type, &id));
  std::copy_n(static_cast<const char*>(data), byte_size, static_cast<char*>(buffer));
  ask_output(about, response);
  answered(about, "send", TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, nullptr));
}

}  // namespace

extern "C" {

TRITONPY_EXPORT TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count) {
  const char* name = "";
  TRITONBACKEND_Model* model = nullptr;
  TRITONSERVER_Server* server = nullptr;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceName(instance, &name));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceModel(instance, &model));
  const std::string about = std::string("instance ") + name + " of a caller";
  note(about.c_str(), "ModelInstanceExecute of %u", request_count);
  answered(about.c_str(), "server", TRITONBACKEND_ModelServer(model, &server));
  Asker asker(about.c_str(), server);
  for (uint32_t index = 0; index < request_count; ++index) {
    const std::string wish = wish_of(requests[index]);
    std::istringstream words(wish);
    std::string what, target, rest;
    words >> what >> target;
    std::getline(words >> std::ws, rest);
    if (what == "make") asker.make();
    if (what == "set") asker.set();
    if (what == "ask") asker.ask(target, rest.empty() ? kNewest : std::stoll(rest));
    if (what == "control") asker.control();
    if (what == "call") asker.call(target, rest);
    answer(about.c_str(), requests[index]);
    answered(about.c_str(), "release",
             TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return nullptr;
}

}  // extern "C"
