// A backend that does wrong what it is asked for. The parameter FAULT of a model names one of its functions,
// without `TRITONBACKEND_`, and what happens there; a file `<library>.fault` says the same of the functions of
// the backend, and of the moment in which the library is opened. The parameter `do` of a request names what
// happens to it. Everything else it does right: INPUT0 comes back as OUTPUT0.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tritonpy/backend.h"

namespace {

constexpr uint32_t kFinal = TRITONSERVER_RESPONSE_COMPLETE_FINAL;

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What is right has to go right.
void check(TRITONSERVER_Error* error) {
  if (error == nullptr) return;
  const std::string text = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  throw Failure(text);
}

// What is wrong has to be refused; returns the words of it.
std::string refused(TRITONSERVER_Error* error) {
  if (error == nullptr) throw Failure("it was not refused");
  const std::string text = TRITONSERVER_ErrorMessage(error);
  TRITONSERVER_ErrorDelete(error);
  return text;
}

TRITONSERVER_Error* refusal(const std::string& text) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, text.c_str());
}

// ---- what can go wrong anywhere ----

void segfault() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}

int overflow(volatile char* from) {
  volatile char frame[4096];
  frame[0] = from == nullptr ? 0 : from[0];
  return frame[0] == 1 ? 0 : overflow(frame) + frame[0];  // it never is
}

void (*volatile end_bytes)(void*) = std::free;  // whose mistakes compilers do not see

void leave_a_mess() {
  if (chdir("/proc") != 0) throw Failure("chdir");
  umask(0777);
  clearenv();
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGPIPE}) signal(number, SIG_IGN);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
}

void take_descriptors() {
  while (open("/dev/null", O_RDONLY) >= 0) {
  }
}

void print_much() {
  const std::string line(199, 'x');
  for (int count = 0; count < 20'000; ++count) std::puts(line.c_str());
  std::fflush(stdout);
}

TRITONSERVER_Error* go_wrong(const std::string& fault, const std::string& where) {
  if (fault.rfind("thread ", 0) == 0) {
    std::thread([what = fault.substr(7), where] { go_wrong(what, where); }).detach();
    for (;;) pause();
  }
  if (fault == "segfault") segfault();
  if (fault == "abort") std::abort();
  if (fault == "exit") std::exit(3);
  if (fault == "quick exit") _exit(4);
  if (fault == "kill") kill(getpid(), SIGKILL);
  if (fault == "overflow") overflow(nullptr);
  if (fault == "hang") for (;;) pause();
  if (fault == "exception") throw std::out_of_range("thrown by " + where);
  if (fault == "throw") throw 7;
  if (fault == "error") return refusal(where + " had no wish to");
  if (fault == "another version") {
    uint32_t major, minor;
    check(TRITONBACKEND_ApiVersion(&major, &minor));
    if (major != 99) {
      return TRITONSERVER_ErrorNew(
          TRITONSERVER_ERROR_UNSUPPORTED, "triton backend API version does not support this backend");
    }
  }
  if (fault == "freed error") {
    auto* error = refusal(where);
    TRITONSERVER_ErrorDelete(error);
    TRITONSERVER_ErrorDelete(error);
  }
  if (fault == "mess") leave_a_mess();
  if (fault == "descriptors") take_descriptors();
  if (fault == "prints") print_much();
  return nullptr;
}

// What `fault` says of a function, if it is the one.
TRITONSERVER_Error* at(const std::string& fault, const std::string& where) {
  const std::size_t blank = fault.find(' ');
  if (blank == std::string::npos || fault.substr(0, blank) != where) return nullptr;
  return go_wrong(fault.substr(blank + 1), where);
}

// The file beside the library.
std::string fault_of_library() {
  Dl_info library{};
  dladdr(reinterpret_cast<void*>(&fault_of_library), &library);
  std::ifstream file(std::string(library.dli_fname) + ".fault");
  std::string fault;
  std::getline(file, fault);
  return fault;
}

__attribute__((constructor)) void at_open() { at(fault_of_library(), "open"); }

// ---- a model ----

std::string config_of(TRITONBACKEND_Model* model) {
  TRITONSERVER_Message* message;
  const char* json;
  size_t byte_size;
  check(TRITONBACKEND_ModelConfig(model, 1, &message));
  check(TRITONSERVER_MessageSerializeToJson(message, &json, &byte_size));
  const std::string config(json, byte_size);
  check(TRITONSERVER_MessageDelete(message));
  return config;
}

// The text of the parameter FAULT; empty where there is none.
std::string fault_of(TRITONBACKEND_Model* model) {
  const std::string config = config_of(model);
  const std::size_t key = config.find("\"FAULT\"");
  if (key == std::string::npos) return "";
  const std::string name = "\"string_value\"";
  const std::size_t begin = config.find('"', config.find(name, key) + name.size()) + 1;
  return config.substr(begin, config.find('"', begin) - begin);
}

TRITONBACKEND_Model* model_of(TRITONBACKEND_ModelInstance* instance) {
  TRITONBACKEND_Model* model;
  check(TRITONBACKEND_ModelInstanceModel(instance, &model));
  return model;
}

const std::map<std::string, std::string> kConfigurations = {
    {"no json", "this is no JSON"},
    {"a number", "7"},
    {"half", "{\"name\":"},
    {"nothing", ""},
    {"another name", "{\"name\":\"another\",\"max_batch_size\":8}"},
    {"unknown field", "{\"name\":\"m\",\"no_such_field\":1}"},
    {"wrong type", "{\"max_batch_size\":\"many\"}"},
    {"bad bytes", "{\"name\":\"\xff\xfe\"}"},
    {"deep", std::string(100'000, '[')},
};

TRITONSERVER_Error* set_config(TRITONBACKEND_Model* model, const std::string& config) {
  TRITONSERVER_Message* message;
  check(TRITONSERVER_MessageNewFromSerializedJson(&message, config.data(), config.size()));
  auto* error = TRITONBACKEND_ModelSetConfig(model, 1, message);
  check(TRITONSERVER_MessageDelete(message));
  return error;
}

// ---- a request ----

struct Kept {
  TRITONBACKEND_Request* request;
  TRITONBACKEND_ResponseFactory* factory;
};

std::mutex kept_mutex;  // guards what follows
std::vector<Kept> kept;

std::string wish(TRITONBACKEND_Request* request) {
  uint32_t count;
  check(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char* key;
    TRITONSERVER_ParameterType type;
    const void* value;
    check(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value));
    if (std::strcmp(key, "do") == 0) return static_cast<const char*>(value);
  }
  return "";
}

struct Shape {
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INT32;
  std::vector<int64_t> dims;
};

TRITONBACKEND_Output* add_output(TRITONBACKEND_Response* response, const char* name, const Shape& shape) {
  TRITONBACKEND_Output* output;
  const auto rank = static_cast<uint32_t>(shape.dims.size());
  check(TRITONBACKEND_ResponseOutput(response, &output, name, shape.datatype, shape.dims.data(), rank));
  return output;
}

char* add_buffer(TRITONBACKEND_Output* output, uint64_t byte_size) {
  void* buffer;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  check(TRITONBACKEND_OutputBuffer(output, &buffer, byte_size, &type, &id));
  if (buffer != nullptr) std::memset(buffer, 1, byte_size);
  return static_cast<char*>(buffer);
}

// The bytes of INPUT0, and what they are.
std::vector<char> input_of(TRITONBACKEND_Request* request, Shape* shape) {
  TRITONBACKEND_Input* input;
  const int64_t* dims;
  uint32_t rank;
  uint64_t byte_size;
  const void* data;
  TRITONSERVER_MemoryType type;
  int64_t id;
  check(TRITONBACKEND_RequestInput(request, "INPUT0", &input));
  check(TRITONBACKEND_InputProperties(input, nullptr, &shape->datatype, &dims, &rank, nullptr, nullptr));
  shape->dims.assign(dims, dims + rank);
  check(TRITONBACKEND_InputBuffer(input, 0, &data, &byte_size, &type, &id));
  const auto* bytes = static_cast<const char*>(data);
  return {bytes, bytes + byte_size};
}

TRITONBACKEND_Response* new_response(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Response* response;
  check(TRITONBACKEND_ResponseNew(&response, request));
  return response;
}

// OUTPUT0 as it should be.
void copy(TRITONBACKEND_Request* request, TRITONBACKEND_Response* response) {
  Shape shape;
  const std::vector<char> bytes = input_of(request, &shape);
  char* buffer = add_buffer(add_output(response, "OUTPUT0", shape), bytes.size());
  std::copy(bytes.begin(), bytes.end(), buffer);
}

// A response whose parameters tell how something was refused.
void tell(TRITONBACKEND_Response* response, const std::string& text) {
  check(TRITONBACKEND_ResponseSetStringParameter(response, "refused", text.c_str()));
}

// A response with outputs that are not what they should be; false for a wish that is none of these.
bool wrong_outputs(const std::string& what, TRITONBACKEND_Request* request, TRITONBACKEND_Response* response) {
  Shape shape;
  const uint64_t byte_size = input_of(request, &shape).size();
  Shape other = shape;
  if (what == "unknown output") {
    add_buffer(add_output(response, "NOT_CONFIGURED", shape), byte_size);
  } else if (what == "no output") {
  } else if (what == "same output twice") {
    copy(request, response);
    copy(request, response);
  } else if (what == "wrong datatype") {
    other.datatype = TRITONSERVER_TYPE_FP32;
    add_buffer(add_output(response, "OUTPUT0", other), byte_size);
  } else if (what == "no datatype") {
    TRITONBACKEND_Output* output;
    const auto datatype = static_cast<TRITONSERVER_DataType>(77);
    tell(response, refused(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", datatype, nullptr, 0)));
    copy(request, response);
  } else if (what == "wrong rank") {
    other.dims.push_back(1);
    add_buffer(add_output(response, "OUTPUT0", other), byte_size);
  } else if (what == "no rank") {
    other.dims.clear();
    add_buffer(add_output(response, "OUTPUT0", other), 4);
  } else if (what == "wrong rows") {
    other.dims[0] += 1;
    add_buffer(add_output(response, "OUTPUT0", other), byte_size * 2);
  } else if (what == "negative dims") {
    TRITONBACKEND_Output* output;
    other.dims = {1, -1};
    tell(
        response, refused(TRITONBACKEND_ResponseOutput(
                      response, &output, "OUTPUT0", shape.datatype, other.dims.data(), 2)));
    copy(request, response);
  } else if (what == "huge dims") {
    other.dims = {INT64_MAX, INT64_MAX};
    add_buffer(add_output(response, "OUTPUT0", other), 4);
  } else if (what == "dims that overflow to nothing") {
    other.dims = {INT64_C(1) << 32, INT64_C(1) << 32};
    add_buffer(add_output(response, "OUTPUT0", other), 0);
  } else if (what == "too short") {
    add_buffer(add_output(response, "OUTPUT0", shape), byte_size - 1);
  } else if (what == "too long") {
    add_buffer(add_output(response, "OUTPUT0", shape), byte_size + 1);
  } else if (what == "no buffer") {
    add_output(response, "OUTPUT0", shape);
  } else if (what == "two buffers") {
    auto* output = add_output(response, "OUTPUT0", shape);
    add_buffer(output, byte_size);
    void* buffer;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    tell(response, refused(TRITONBACKEND_OutputBuffer(output, &buffer, byte_size, &type, &id)));
  } else if (what == "too much memory") {
    auto* output = add_output(response, "OUTPUT0", shape);
    void* buffer;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    tell(response, refused(TRITONBACKEND_OutputBuffer(output, &buffer, UINT64_MAX, &type, &id)));
    add_buffer(output, byte_size);
  } else if (what == "strings that lie") {
    other.datatype = TRITONSERVER_TYPE_BYTES;
    std::memset(add_buffer(add_output(response, "OUTPUT0", other), 8), 0xff, 8);
  } else if (what == "bad name") {
    add_buffer(add_output(response, "\xff\xfe", shape), byte_size);
  } else if (what == "bad parameters") {
    copy(request, response);
    check(TRITONBACKEND_ResponseSetStringParameter(response, "\xff", "\xfe"));
    check(TRITONBACKEND_ResponseSetStringParameter(response, "", ""));
    check(TRITONBACKEND_ResponseSetDoubleParameter(response, "nan", 0.0 / 0.0));
  } else {
    return false;
  }
  return true;
}

void release(TRITONBACKEND_Request* request) {
  check(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

void send(TRITONBACKEND_Response* response, uint32_t flags = kFinal) {
  check(TRITONBACKEND_ResponseSend(response, flags, nullptr));
}

// What is wrong with the memory of others: whatever comes of it, it is the end of this process.
void misuse_memory(const std::string& what, TRITONBACKEND_Request* request) {
  TRITONBACKEND_Response* response = new_response(request);
  Shape shape;
  const uint64_t byte_size = input_of(request, &shape).size();
  char* buffer = add_buffer(add_output(response, "OUTPUT0", shape), byte_size);
  if (what == "free output") {
    end_bytes(buffer);
    end_bytes(buffer);
  } else if (what == "free response") {
    end_bytes(reinterpret_cast<char*>(response) + 1);
  } else if (what == "free request") {
    end_bytes(reinterpret_cast<char*>(request) + 1);
  } else if (what == "write past output") {
    std::memset(buffer, 0xff, byte_size + (INT64_C(1) << 30));
  }
  send(response);
}

// Refused while the request is answered; its words are in the answer to it.
bool wrong_order(const std::string& what, TRITONBACKEND_Request* request) {
  TRITONBACKEND_Response* response = new_response(request);
  if (what == "release twice") {
    TRITONBACKEND_ResponseFactory* factory;
    check(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    copy(request, response);
    release(request);
    tell(response, refused(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL)));
    send(response);
    check(TRITONBACKEND_ResponseFactoryDelete(factory));
    return true;
  }
  if (what == "respond after release") {
    copy(request, response);
    release(request);
    TRITONBACKEND_Response* late;
    TRITONBACKEND_ResponseFactory* factory;
    tell(response, refused(TRITONBACKEND_ResponseNew(&late, request)));
    refused(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    send(response);
    return true;
  }
  TRITONBACKEND_ResponseFactory* factory;
  check(TRITONBACKEND_ResponseFactoryNew(&factory, request));
  TRITONBACKEND_Response* second = new_response(request);
  copy(request, response);
  copy(request, second);
  if (what == "response after final") {
    send(response);
    refused(TRITONBACKEND_ResponseSend(second, 0, nullptr));
    check(TRITONBACKEND_ResponseDelete(second));
  } else if (what == "two finals") {
    send(response);
    refused(TRITONBACKEND_ResponseFactorySendFlags(factory, kFinal));
    refused(TRITONBACKEND_ResponseSend(second, kFinal, nullptr));
    check(TRITONBACKEND_ResponseDelete(second));
  } else if (what == "two responses") {
    send(response, 0);
    send(second);
  } else if (what == "unknown flags") {
    check(TRITONBACKEND_ResponseDelete(second));
    send(response, 0xfffffffe);
    check(TRITONBACKEND_ResponseFactorySendFlags(factory, kFinal));
  } else if (what == "final alone") {
    check(TRITONBACKEND_ResponseDelete(second));
    check(TRITONBACKEND_ResponseDelete(response));
    check(TRITONBACKEND_ResponseFactorySendFlags(factory, kFinal));
  } else if (what == "never answers") {
    check(TRITONBACKEND_ResponseDelete(second));
    check(TRITONBACKEND_ResponseDelete(response));
  } else {
    throw Failure("nobody has said what '" + what + "' is");
  }
  check(TRITONBACKEND_ResponseFactoryDelete(factory));
  release(request);
  return true;
}

void answer(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Response* response = new_response(request);
  copy(request, response);
  send(response);
}

// What was kept is answered, by a thread that nobody knows.
void let_go() {
  std::vector<Kept> all;
  {
    const std::lock_guard<std::mutex> lock(kept_mutex);
    all.swap(kept);
  }
  std::thread([all] {
    for (const Kept& each : all) {
      TRITONBACKEND_Response* response;
      check(TRITONBACKEND_ResponseNewFromFactory(&response, each.factory));
      copy(each.request, response);
      TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseSend(response, kFinal, nullptr));
      check(TRITONBACKEND_ResponseFactoryDelete(each.factory));
      release(each.request);
    }
  }).detach();
}

void keep(TRITONBACKEND_Request* request) {
  Kept now{request, nullptr};
  check(TRITONBACKEND_ResponseFactoryNew(&now.factory, request));
  const std::lock_guard<std::mutex> lock(kept_mutex);
  kept.push_back(now);
}

// A thread that goes on as if its model were there, with what it was given.
void haunt(TRITONBACKEND_ResponseFactory* factory) {
  std::thread([factory] {
    for (int count = 0; count < 200; ++count) {
      TRITONBACKEND_Response* response;
      bool is_cancelled;
      check(TRITONBACKEND_ResponseFactoryIsCancelled(factory, &is_cancelled));
      check(TRITONBACKEND_ResponseNewFromFactory(&response, factory));
      add_buffer(add_output(response, "OUTPUT0", Shape{TRITONSERVER_TYPE_INT32, {1, 1}}), 4);
      auto* error = TRITONBACKEND_ResponseSend(response, 0, nullptr);
      if (error != nullptr) check(TRITONBACKEND_ResponseDelete(response));
      TRITONSERVER_ErrorDelete(error);
      usleep(1000);
    }
    check(TRITONBACKEND_ResponseFactoryDelete(factory));
  }).detach();
}

void leak_errors() {
  for (int count = 0; count < 1000; ++count) refusal("nobody deletes it");
}

TRITONSERVER_Error* execute(TRITONBACKEND_Request* request) {
  const std::string what = wish(request);
  if (what.empty()) {
    answer(request);
    release(request);
  } else if (what.rfind("go ", 0) == 0) {
    if (auto* error = go_wrong(what.substr(3), "ModelInstanceExecute")) return error;
    answer(request);
    release(request);
  } else if (what == "keep") {
    keep(request);
  } else if (what == "let go") {
    let_go();
    answer(request);
    release(request);
  } else if (what == "never releases") {
    answer(request);
  } else if (what == "leaks errors") {
    leak_errors();
    answer(request);
    release(request);
  } else if (what == "answers and fails") {
    answer(request);
    return refusal("it was answered, and fails all the same");
  } else if (what == "releases and fails") {
    answer(request);
    release(request);
    return refusal("it was released, and fails all the same");
  } else if (what == "haunts") {
    TRITONBACKEND_ResponseFactory* factory;
    check(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    haunt(factory);
    return refusal("it is failed, and haunted all the same");
  } else if (what == "keeps and fails") {
    keep(request);
    return refusal("it is kept, and fails all the same");
  } else if (what.rfind("free ", 0) == 0 || what.rfind("write ", 0) == 0) {
    misuse_memory(what, request);
    release(request);
  } else {
    TRITONBACKEND_Response* response = new_response(request);
    if (wrong_outputs(what, request, response)) {
      send(response);
      release(request);
    } else {
      check(TRITONBACKEND_ResponseDelete(response));
      wrong_order(what, request);
    }
  }
  return nullptr;
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  return at(fault_of_library(), "Initialize");
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend*) {
  return at(fault_of_library(), "Finalize");
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  const std::string fault = fault_of(model);
  const std::string sets = "sets ";
  bool completes;
  check(TRITONBACKEND_ModelAutoCompleteConfig(model, &completes));
  if (completes && fault.rfind(sets, 0) == 0) {
    return set_config(model, kConfigurations.at(fault.substr(sets.size())));
  }
  return at(fault, "ModelInitialize");
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  return at(fault_of(model), "ModelFinalize");
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  return at(fault_of(model_of(instance)), "ModelInstanceInitialize");
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  return at(fault_of(model_of(instance)), "ModelInstanceFinalize");
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count) {
  if (auto* error = at(fault_of(model_of(instance)), "ModelInstanceExecute")) return error;
  for (uint32_t index = 0; index < request_count; ++index) {
    if (auto* error = execute(requests[index])) return error;
  }
  return nullptr;
}
}
