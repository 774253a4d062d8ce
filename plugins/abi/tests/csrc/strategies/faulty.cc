// A strategy that does wrong what its model asks for: the parameter FAULT names one of the five functions,
// without `TRITONBACKEND_`, and the fault. Everything else it does right, and it ends the process where it is
// given a batch that it did not begin.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "tritonpy/batching.h"

namespace {

constexpr const char* kTooManyDigits = "12345678901234567890123";

struct Strategy {
  std::string where;
  std::string fault;
  mutable int call_count = 0;
};

struct Batch {
  const Strategy* strategy;
};

void segfault() {
  volatile int* volatile nowhere = nullptr;
  *nowhere = 1;
}

// Without end, and without a core of the machine that tests share.
[[noreturn]] void loop() {
  for (;;) pause();
}

// Prints the signals that this process holds back, and what it has open.
void show_process() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigBlk:", 0) == 0) std::puts(line.c_str());
  }
  for (int descriptor = 0; descriptor < 64; ++descriptor) {
    char what[256] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    if (readlink(link.c_str(), what, sizeof(what) - 1) > 0) std::puts(what);
  }
  std::fflush(stdout);
}

TRITONSERVER_Error* refusal(const std::string& where) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, (where + " had no wish to").c_str());
}

// What a fault does wherever it is; an error for those that are one.
TRITONSERVER_Error* go_wrong(const std::string& fault, const std::string& where, int call) {
  if (fault == "segfault") segfault();
  if (fault == "abort") std::abort();
  if (fault == "exit") std::exit(3);
  if (fault == "loop") loop();
  if (fault == "kill") kill(getpid(), 9);
  if (fault == "digits") std::stoull(kTooManyDigits);
  if (fault == "throw") throw 7;
  if (fault == "sleep") usleep(5000);
  if (fault == "prints") {
    std::puts("a line on standard output");
    std::fflush(stdout);
    std::fputs("a line on standard error\n", stderr);
  }
  if (fault == "prints and aborts") {
    for (int line = 0; line < 5000; ++line) std::printf("line %d\n", line);
    std::fflush(stdout);
    std::fputs("the table is \xff torn\n", stderr);
    std::abort();
  }
  if (fault == "forks") {
    if (fork() == 0) pause();
  }
  if (fault == "logs") {
    TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, __FILE__, __LINE__, (where + " was called").c_str());
  }
  if (fault == "logs from a thread") {
    std::thread([where] {
      TRITONSERVER_LogMessage(
          TRITONSERVER_LOG_WARN, __FILE__, __LINE__, ("a thread of " + where + " was here").c_str());
    }).detach();
  }
  if (fault == "shows its process") {
    show_process();
    return refusal(where);
  }
  if (fault == "error") return refusal(where);
  if (fault == "error once" && call == 1) return refusal(where);
  if (fault == "error every third" && call % 3 == 0) return refusal(where);
  return nullptr;
}

TRITONSERVER_Error* call(const Strategy* strategy, const char* where) {
  if (strategy->where != where) return nullptr;
  return go_wrong(strategy->fault, where, ++strategy->call_count);
}

// The text of a parameter of the configuration; empty where there is none.
std::string parameter(const std::string& config, const std::string& name) {
  std::size_t at = config.find("\"" + name + "\"");
  if (at == std::string::npos) return "";
  at = config.find("\"string_value\"", at);
  at = config.find('"', config.find(':', at)) + 1;
  return config.substr(at, config.find('"', at) - at);
}

TRITONSERVER_Error* read_config(TRITONBACKEND_Model* model, std::string* text) {
  TRITONSERVER_Message* message = nullptr;
  if (TRITONSERVER_Error* error = TRITONBACKEND_ModelConfig(model, 1, &message)) return error;
  const char* bytes = nullptr;
  size_t byte_size = 0;
  TRITONSERVER_Error* error = TRITONSERVER_MessageSerializeToJson(message, &bytes, &byte_size);
  if (error == nullptr) text->assign(bytes, byte_size);
  TRITONSERVER_MessageDelete(message);
  return error;
}

// An error whose text is everything that can be asked of a model.
TRITONSERVER_Error* description(TRITONBACKEND_Model* model, const std::string& config) {
  const char* name = nullptr;
  uint64_t version = 0;
  TRITONBACKEND_ArtifactType type{};
  const char* location = nullptr;
  bool completes = false;
  TRITONBACKEND_Backend* backend = nullptr;
  const char* backend_name = nullptr;
  const char* backend_location = nullptr;
  TRITONSERVER_Message* backend_config = nullptr;
  const char* json = nullptr;
  size_t json_size = 0;
  TRITONSERVER_Error* const errors[] = {
      TRITONBACKEND_ModelName(model, &name),
      TRITONBACKEND_ModelVersion(model, &version),
      TRITONBACKEND_ModelRepository(model, &type, &location),
      TRITONBACKEND_ModelAutoCompleteConfig(model, &completes),
      TRITONBACKEND_ModelBackend(model, &backend),
      TRITONBACKEND_BackendName(backend, &backend_name),
      TRITONBACKEND_BackendArtifacts(backend, &type, &backend_location),
      TRITONBACKEND_BackendConfig(backend, &backend_config),
      TRITONSERVER_MessageSerializeToJson(backend_config, &json, &json_size),
  };
  for (TRITONSERVER_Error* error : errors) {
    if (error != nullptr) return error;
  }
  const std::string text = std::string(name) + "|" + std::to_string(version) + "|" + location + "|" +
                           (completes ? "completes" : "does not") + "|" + backend_name + "|" +
                           backend_location + "|" + std::string(json, json_size) + "|" + config;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, text.c_str());
}

bool is_bad(TRITONBACKEND_Request* request) {
  const char* id = nullptr;
  if (TRITONSERVER_Error* error = TRITONBACKEND_RequestId(request, &id)) {
    TRITONSERVER_ErrorDelete(error);
    return false;
  }
  return std::strncmp(id, "bad", 3) == 0;
}

uint64_t byte_size_of(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Input* input = nullptr;
  uint64_t byte_size = 0;
  TRITONSERVER_Error* error = TRITONBACKEND_RequestInputByIndex(request, 0, &input);
  if (error == nullptr) {
    error = TRITONBACKEND_InputProperties(input, nullptr, nullptr, nullptr, nullptr, &byte_size, nullptr);
  }
  if (error != nullptr) std::abort();
  return byte_size;
}

// A file beside the library, `<library>.fault`, names what goes wrong while the library is opened.
__attribute__((constructor)) void at_open() {
  Dl_info library{};
  dladdr(reinterpret_cast<void*>(&at_open), &library);
  std::ifstream file(std::string(library.dli_fname) + ".fault");
  std::string fault;
  if (std::getline(file, fault)) go_wrong(fault, "a constructor", 1);
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher** batcher, TRITONBACKEND_Model* model) {
  std::string config;
  if (TRITONSERVER_Error* error = read_config(model, &config)) return error;
  const std::string wish = parameter(config, "FAULT");
  const std::size_t blank = wish.find(' ');
  if (wish == "tells its model") return description(model, config);
  auto strategy = std::make_unique<Strategy>();
  strategy->where = wish.substr(0, blank);
  strategy->fault = blank == std::string::npos ? "" : wish.substr(blank + 1);
  if (TRITONSERVER_Error* error = call(strategy.get(), "ModelBatcherInitialize")) return error;
  *batcher = reinterpret_cast<TRITONBACKEND_Batcher*>(strategy.release());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher* batcher) {
  const std::unique_ptr<Strategy> strategy(reinterpret_cast<Strategy*>(batcher));
  // Triton ends a batcher also when it has not begun.
  return strategy == nullptr ? nullptr : call(strategy.get(), "ModelBatcherFinalize");
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher* batcher, void** userp) {
  const auto* strategy = reinterpret_cast<const Strategy*>(batcher);
  if (TRITONSERVER_Error* error = call(strategy, "ModelBatchInitialize")) return error;
  *userp = new Batch{strategy};
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request* request, void* userp, bool* should_include) {
  auto* batch = static_cast<Batch*>(userp);
  if (batch == nullptr) std::abort();
  const Strategy* strategy = batch->strategy;
  *should_include = true;
  if (strategy->where != "ModelBatchIncludeRequest") return nullptr;
  if (strategy->fault == "refuses large ones") {
    *should_include = byte_size_of(request) <= 64;
    return nullptr;
  }
  if (strategy->fault == "error for large ones") {
    *should_include = byte_size_of(request) <= 64;
    return *should_include ? nullptr : refusal("a large one");
  }
  if (!is_bad(request) && strategy->fault != "sleep") return nullptr;
  *should_include = strategy->fault == "error and yes";
  if (strategy->fault == "error and yes") return refusal("ModelBatchIncludeRequest");
  TRITONSERVER_Error* error = call(strategy, "ModelBatchIncludeRequest");
  if (error == nullptr) *should_include = true;
  return error;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void* userp) {
  const std::unique_ptr<Batch> batch(static_cast<Batch*>(userp));
  if (batch == nullptr) std::abort();
  return call(batch->strategy, "ModelBatchFinalize");
}
}
