// What the program tries: a strategy, an agent, a cache and a backend in one shared object. Names and ids of
// requests tell them what to do.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "tritonpy/backend.h"
#include "tritonpy/cache.h"
#include "tritonpy/repo_agent.h"
#include "tritonpy/server.h"

namespace {

struct Batcher {
  uint32_t limit;
};

struct Batch {
  uint32_t limit;
  uint32_t count;
};

struct Cache {
  std::mutex mutex;
  std::map<std::string, std::string> entries;
};

void check(TRITONSERVER_Error* error) {
  if (error != nullptr) {
    const std::string text = TRITONSERVER_ErrorMessage(error);
    TRITONSERVER_ErrorDelete(error);
    throw std::runtime_error(text);
  }
}

// An error that is expected.
void refused(TRITONSERVER_Error* error) {
  if (error == nullptr) {
    throw std::logic_error("an error was expected");
  }
  TRITONSERVER_ErrorDelete(error);
}

void expect(bool holds, const char* what) {
  if (!holds) {
    throw std::logic_error(what);
  }
}

TRITONSERVER_Error* failure(const char* text) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, text);
}

TRITONSERVER_Error* do_as_told(const std::string& what) {
  if (what.find("throw an integer") != std::string::npos) {
    throw 42;
  }
  if (what.find("throw") != std::string::npos) {
    throw std::out_of_range("thrown by the plugin");
  }
  return what.find("fail") != std::string::npos ? failure("told to fail") : nullptr;
}

void ask_backend(TRITONBACKEND_Model* model) {
  TRITONBACKEND_Backend* backend;
  const char* text;
  void* state;
  TRITONSERVER_Message* config;
  TRITONBACKEND_ArtifactType type;
  TRITONBACKEND_ExecutionPolicy policy;
  check(TRITONBACKEND_ModelBackend(model, &backend));
  check(TRITONBACKEND_BackendName(backend, &text));
  expect(std::strlen(text) > 0, "a name of the backend");
  check(TRITONBACKEND_BackendConfig(backend, &config));
  check(TRITONBACKEND_BackendExecutionPolicy(backend, &policy));
  check(TRITONBACKEND_BackendArtifacts(backend, &type, &text));
  check(TRITONBACKEND_BackendSetState(backend, model));
  check(TRITONBACKEND_BackendState(backend, &state));
  expect(state == model, "the state of the backend");
}

std::string ask_model(TRITONBACKEND_Model* model) {
  const char* text;
  uint64_t version;
  TRITONBACKEND_ArtifactType type;
  TRITONSERVER_Message* config;
  size_t byte_size;
  bool completes;
  void* state;
  check(TRITONBACKEND_ModelName(model, &text));
  check(TRITONBACKEND_ModelVersion(model, &version));
  check(TRITONBACKEND_ModelRepository(model, &type, &text));
  check(TRITONBACKEND_ModelAutoCompleteConfig(model, &completes));
  check(TRITONBACKEND_ModelSetState(model, &type));
  check(TRITONBACKEND_ModelState(model, &state));
  expect(state == &type, "the state of the model");
  refused(TRITONBACKEND_ModelConfig(model, 2, &config));
  refused(TRITONBACKEND_ModelName(nullptr, &text));
  ask_backend(model);
  check(TRITONBACKEND_ModelConfig(model, 1, &config));
  check(TRITONSERVER_MessageSerializeToJson(config, &text, &byte_size));
  const std::string json(text, byte_size);
  check(TRITONSERVER_MessageDelete(config));
  return json;
}

uint64_t ask_input(TRITONBACKEND_Input* input) {
  const char* name;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint32_t dim_count;
  uint64_t byte_size;
  uint32_t buffer_count;
  check(
      TRITONBACKEND_InputProperties(input, &name, &datatype, &shape, &dim_count, &byte_size, &buffer_count));
  check(TRITONBACKEND_InputPropertiesForHostPolicy(
      input, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  uint64_t sum = 0;
  for (uint32_t index = 0; index < dim_count; ++index) {
    sum += static_cast<uint64_t>(shape[index]);
  }
  const void* buffer;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t type_id = 0;
  TRITONSERVER_BufferAttributes* attributes;
  if (auto* error = TRITONBACKEND_InputBuffer(input, 0, &buffer, &byte_size, &type, &type_id)) {
    TRITONSERVER_ErrorDelete(error);  // its bytes are elsewhere
    return sum;
  }
  for (uint64_t index = 0; index < byte_size; ++index) {
    sum += static_cast<const unsigned char*>(buffer)[index];
  }
  if (buffer_count > 0) {
    check(TRITONBACKEND_InputBufferAttributes(input, 0, &buffer, &attributes));
    check(TRITONBACKEND_InputBufferForHostPolicy(input, "cpu", 0, &buffer, &byte_size, &type, &type_id));
    size_t attributed;
    check(TRITONSERVER_BufferAttributesByteSize(attributes, &attributed));
    expect(attributed == byte_size, "the same number of bytes");
  }
  check(TRITONBACKEND_InputBufferAttributes(input, 1, &buffer, &attributes));
  expect(buffer == nullptr && attributes == nullptr, "nothing behind the last buffer");
  return sum;
}

void ask_inputs(TRITONBACKEND_Request* request) {
  uint32_t count;
  const char* name;
  TRITONBACKEND_Input* input;
  TRITONBACKEND_Input* same;
  check(TRITONBACKEND_RequestInputCount(request, &count));
  uint64_t sum = 0;
  for (uint32_t index = 0; index < count; ++index) {
    check(TRITONBACKEND_RequestInputName(request, index, &name));
    check(TRITONBACKEND_RequestInput(request, name, &input));
    check(TRITONBACKEND_RequestInputByIndex(request, index, &same));
    expect(input == same, "one input under its name and its index");
    sum += ask_input(input);
  }
  expect(count == 0 || sum > 0, "shapes");
  refused(TRITONBACKEND_RequestInputName(request, count, &name));
  refused(TRITONBACKEND_RequestInput(request, "no such input", &input));
  refused(TRITONBACKEND_RequestInputByIndex(request, count, &input));
}

void ask_parameters(TRITONBACKEND_Request* request) {
  uint32_t count;
  const char* name;
  TRITONSERVER_ParameterType type;
  const void* value;
  check(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    check(TRITONBACKEND_RequestParameter(request, index, &name, &type, &value));
    if (type == TRITONSERVER_PARAMETER_INT) {
      expect(*static_cast<const int64_t*>(value) == -7, "an integer");
    } else if (type == TRITONSERVER_PARAMETER_BOOL) {
      expect(*static_cast<const bool*>(value), "a truth");
    } else if (type == TRITONSERVER_PARAMETER_DOUBLE) {
      expect(*static_cast<const double*>(value) == 0.5, "a half");
    } else {
      expect(std::strcmp(static_cast<const char*>(value), "text") == 0, "a text");
    }
  }
  refused(TRITONBACKEND_RequestParameter(request, count, &name, &type, &value));
  check(TRITONBACKEND_RequestOutputCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    check(TRITONBACKEND_RequestOutputName(request, index, &name));
  }
  refused(TRITONBACKEND_RequestOutputName(request, count, &name));
}

void ask_correlation(TRITONBACKEND_Request* request) {
  uint64_t number;
  const char* text;
  TRITONSERVER_Error* as_number = TRITONBACKEND_RequestCorrelationId(request, &number);
  TRITONSERVER_Error* as_text = TRITONBACKEND_RequestCorrelationIdString(request, &text);
  expect((as_number == nullptr) != (as_text == nullptr), "a correlation id is a number or a text");
  TRITONSERVER_ErrorDelete(as_number);
  TRITONSERVER_ErrorDelete(as_text);
}

TRITONSERVER_BufferAttributes* attributes_of(size_t byte_size) {
  TRITONSERVER_BufferAttributes* attributes;
  check(TRITONSERVER_BufferAttributesNew(&attributes));
  check(TRITONSERVER_BufferAttributesSetByteSize(attributes, byte_size));
  return attributes;
}

}  // namespace

// ---- a strategy: batches of as many requests as the version of the model ----

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher** batcher, TRITONBACKEND_Model* model) {
  if (auto* error = do_as_told(ask_model(model))) {
    return error;
  }
  uint64_t version;
  check(TRITONBACKEND_ModelVersion(model, &version));
  *batcher = reinterpret_cast<TRITONBACKEND_Batcher*>(new Batcher{static_cast<uint32_t>(version)});
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher* batcher) {
  delete reinterpret_cast<Batcher*>(batcher);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher* batcher, void** userp) {
  *userp = new Batch{reinterpret_cast<const Batcher*>(batcher)->limit, 0};
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request* request, void* userp, bool* should_include) {
  const char* id;
  uint32_t flags;
  uint64_t timeout;
  bool is_cancelled;
  check(TRITONBACKEND_RequestId(request, &id));
  check(TRITONBACKEND_RequestFlags(request, &flags));
  check(TRITONBACKEND_RequestIsCancelled(request, &is_cancelled));
  check(TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &timeout));
  ask_correlation(request);
  ask_inputs(request);
  ask_parameters(request);
  auto* batch = static_cast<Batch*>(userp);
  *should_include = !is_cancelled && batch->count < batch->limit && std::strncmp(id, "fail", 4) != 0;
  batch->count += *should_include ? 1 : 0;
  return do_as_told(id);
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void* userp) {
  const std::unique_ptr<Batch> batch(static_cast<Batch*>(userp));
  return batch->count == 5 ? failure("five are too many") : nullptr;
}

// ---- an agent: has the model loaded from a directory of its own ----

TRITONSERVER_Error* TRITONREPOAGENT_Initialize(TRITONREPOAGENT_Agent* agent) {
  return TRITONREPOAGENT_SetState(agent, new std::string("state"));
}

TRITONSERVER_Error* TRITONREPOAGENT_Finalize(TRITONREPOAGENT_Agent* agent) {
  void* state;
  check(TRITONREPOAGENT_State(agent, &state));
  delete static_cast<std::string*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelInitialize(
    TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model) {
  return TRITONREPOAGENT_ModelSetState(model, new std::string("state"));
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelFinalize(TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel* model) {
  void* state;
  check(TRITONREPOAGENT_ModelState(model, &state));
  delete static_cast<std::string*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONREPOAGENT_ModelAction(
    TRITONREPOAGENT_Agent* agent, TRITONREPOAGENT_AgentModel* model, TRITONREPOAGENT_ActionType action) {
  uint32_t count;
  const char* name;
  const char* value;
  TRITONSERVER_Error* told = nullptr;
  check(TRITONREPOAGENT_ModelParameterCount(agent, model, &count));
  for (uint32_t index = 0; index < count && told == nullptr; ++index) {
    check(TRITONREPOAGENT_ModelParameter(agent, model, index, &name, &value));
    told = do_as_told(value);
  }
  refused(TRITONREPOAGENT_ModelParameter(agent, model, count, &name, &value));
  TRITONSERVER_Message* config;
  check(TRITONREPOAGENT_ModelConfig(agent, model, 1, &config));
  check(TRITONSERVER_MessageDelete(config));
  TRITONREPOAGENT_ArtifactType type;
  const char* location;
  check(TRITONREPOAGENT_ModelRepositoryLocation(agent, model, &type, &location));
  if (action == TRITONREPOAGENT_ACTION_LOAD && told == nullptr) {
    check(TRITONREPOAGENT_ModelRepositoryLocationAcquire(agent, model, type, &location));
    check(TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, type, location));
  } else if (action == TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE) {
    refused(TRITONREPOAGENT_ModelRepositoryUpdate(agent, model, type, "/elsewhere"));
    check(TRITONREPOAGENT_ModelRepositoryLocationRelease(agent, model, location));
  }
  return told;
}

// ---- a cache: a map ----

// 1 when a lookup of "slow" has begun; it returns when the program sets 2.
extern "C" std::atomic<int> slow_lookup;
std::atomic<int> slow_lookup{0};

TRITONSERVER_Error* TRITONCACHE_CacheInitialize(TRITONCACHE_Cache** cache, const char* config) {
  if (auto* error = do_as_told(config)) {
    return error;
  }
  *cache = reinterpret_cast<TRITONCACHE_Cache*>(new Cache);
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheFinalize(TRITONCACHE_Cache* cache) {
  delete reinterpret_cast<Cache*>(cache);
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheLookup(
    TRITONCACHE_Cache* cache, const char* key, TRITONCACHE_CacheEntry* entry,
    TRITONCACHE_Allocator* allocator) {
  auto* map = reinterpret_cast<Cache*>(cache);
  if (auto* error = do_as_told(key)) {
    return error;
  }
  if (std::strcmp(key, "slow") == 0) {
    slow_lookup = 1;
    while (slow_lookup != 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const std::lock_guard<std::mutex> lock(map->mutex);
  const auto found = map->entries.find(key);
  if (found == map->entries.end()) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "not here");
  }
  auto* attributes = attributes_of(found->second.size());
  auto* error = TRITONCACHE_CacheEntryAddBuffer(entry, &found->second[0], attributes);
  check(TRITONSERVER_BufferAttributesDelete(attributes));
  return error != nullptr ? error : TRITONCACHE_Copy(allocator, entry);
}

TRITONSERVER_Error* TRITONCACHE_CacheInsert(
    TRITONCACHE_Cache* cache, const char* key, TRITONCACHE_CacheEntry* entry,
    TRITONCACHE_Allocator* allocator) {
  auto* map = reinterpret_cast<Cache*>(cache);
  if (auto* error = do_as_told(key)) {
    return error;
  }
  size_t count;
  size_t byte_size;
  void* base;
  auto* attributes = attributes_of(0);
  check(TRITONCACHE_CacheEntryBufferCount(entry, &count));
  refused(TRITONCACHE_CacheEntryGetBuffer(entry, count, &base, attributes));
  check(TRITONCACHE_CacheEntryGetBuffer(entry, 0, &base, attributes));
  check(TRITONSERVER_BufferAttributesByteSize(attributes, &byte_size));
  check(TRITONSERVER_BufferAttributesDelete(attributes));
  const std::lock_guard<std::mutex> lock(map->mutex);
  const auto inserted = map->entries.emplace(key, std::string(byte_size, '\0'));
  if (!inserted.second) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_ALREADY_EXISTS, "here already");
  }
  check(TRITONCACHE_CacheEntrySetBuffer(entry, 0, &inserted.first->second[0], nullptr));
  return TRITONCACHE_Copy(allocator, entry);
}

// ---- a backend: what comes in goes out, from this thread or others ----

namespace {

constexpr uint32_t kFinal = TRITONSERVER_RESPONSE_COMPLETE_FINAL;

// Of a model: how many threads still answer its requests.
struct Threads {
  explicit Threads(TRITONBACKEND_Model* of) : model(of) {}

  TRITONBACKEND_Model* const model;
  std::mutex mutex;  // guards the number
  std::condition_variable changed;
  int count = 0;
};

Threads* threads_of(TRITONBACKEND_Model* model) {
  void* state;
  check(TRITONBACKEND_ModelState(model, &state));
  return static_cast<Threads*>(state);
}

void begin(Threads* threads, std::function<void()> task) {
  {
    const std::lock_guard<std::mutex> lock(threads->mutex);
    ++threads->count;
  }
  std::thread([threads, task = std::move(task)] {
    task();
    const std::lock_guard<std::mutex> lock(threads->mutex);
    --threads->count;
    threads->changed.notify_all();
  }).detach();
}

// The bytes of the first input, as often as asked for, one output after the other.
void fill(TRITONBACKEND_Response* response, const std::string& bytes, int count = 1) {
  static const char* const kNames[] = {"OUTPUT0", "OUTPUT1", "OUTPUT2"};
  const int64_t shape[] = {1, static_cast<int64_t>(bytes.size())};
  for (int index = 0; index < count; ++index) {
    TRITONBACKEND_Output* output;
    TRITONSERVER_BufferAttributes* attributes;
    void* buffer;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
    int64_t id = 7;
    check(TRITONBACKEND_ResponseOutput(response, &output, kNames[index], TRITONSERVER_TYPE_UINT8, shape, 2));
    check(TRITONBACKEND_OutputBuffer(output, &buffer, bytes.size(), &type, &id));
    expect(type == TRITONSERVER_MEMORY_CPU && id == 0, "memory of the CPU");
    std::memcpy(buffer, bytes.data(), bytes.size());
    refused(TRITONBACKEND_OutputBuffer(output, &buffer, bytes.size(), &type, &id));
    check(TRITONBACKEND_OutputBufferAttributes(output, &attributes));
    check(TRITONSERVER_BufferAttributesSetByteSize(attributes, 1 << 30));  // which is no help to anybody
  }
}

std::string bytes_of(TRITONBACKEND_Request* request) {
  TRITONBACKEND_Input* input;
  const void* buffer;
  uint64_t byte_size;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  check(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  check(TRITONBACKEND_InputBuffer(input, 0, &buffer, &byte_size, &type, &id));
  return {static_cast<const char*>(buffer), byte_size};
}

void answer(TRITONBACKEND_Request* request, const std::string& what) {
  TRITONBACKEND_Response* response;
  check(TRITONBACKEND_ResponseNew(&response, request));
  fill(response, bytes_of(request), what.find("three") != std::string::npos ? 3 : 1);
  if (what.find("parameters") != std::string::npos) {
    check(TRITONBACKEND_ResponseSetStringParameter(response, "text", "first"));
    check(TRITONBACKEND_ResponseSetStringParameter(response, "text", "second"));
    check(TRITONBACKEND_ResponseSetIntParameter(response, "integer", -7));
    check(TRITONBACKEND_ResponseSetBoolParameter(response, "truth", true));
    check(TRITONBACKEND_ResponseSetDoubleParameter(response, "half", 0.5));
  }
  TRITONSERVER_Error* error = what.find("error") != std::string::npos ? failure("told to fail") : nullptr;
  check(TRITONBACKEND_ResponseSend(response, kFinal, error));
  TRITONSERVER_ErrorDelete(error);
}

void release(TRITONBACKEND_Request* request) {
  check(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
}

TRITONSERVER_Error* allocate(
    TRITONSERVER_ResponseAllocator*, const char*, size_t byte_size, TRITONSERVER_MemoryType, int64_t, void*,
    void** buffer, void** buffer_userp, TRITONSERVER_MemoryType* type, int64_t* type_id) {
  *buffer = new char[byte_size];
  *buffer_userp = nullptr;
  *type = TRITONSERVER_MEMORY_CPU;
  *type_id = 0;
  return nullptr;
}

TRITONSERVER_Error* give_back(
    TRITONSERVER_ResponseAllocator*, void* buffer, void*, size_t, TRITONSERVER_MemoryType, int64_t) {
  delete[] static_cast<char*>(buffer);
  return nullptr;
}

struct Outcome {
  std::promise<TRITONSERVER_InferenceResponse*> response;
  std::promise<void> released;
};

// The bytes of the first output.
std::string bytes_of(TRITONSERVER_InferenceResponse* response) {
  const char* name;
  TRITONSERVER_DataType datatype;
  const int64_t* shape;
  uint64_t dim_count;
  const void* base;
  size_t byte_size;
  TRITONSERVER_MemoryType type;
  int64_t type_id;
  void* userp;
  check(TRITONSERVER_InferenceResponseOutput(
      response, 0, &name, &datatype, &shape, &dim_count, &base, &byte_size, &type, &type_id, &userp));
  return {static_cast<const char*>(base), byte_size};
}

// What another model makes of the bytes.
std::string call(TRITONBACKEND_Model* model, const std::string& bytes, bool gives_up) {
  TRITONSERVER_Server* server;
  TRITONSERVER_InferenceRequest* request;
  TRITONSERVER_ResponseAllocator* allocator;
  const int64_t shape[] = {1, static_cast<int64_t>(bytes.size())};
  Outcome outcome;
  check(TRITONBACKEND_ModelServer(model, &server));
  check(TRITONSERVER_InferenceRequestNew(&request, server, "other", -1));
  check(TRITONSERVER_ResponseAllocatorNew(&allocator, allocate, give_back, nullptr));
  check(TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_UINT8, shape, 2));
  check(TRITONSERVER_InferenceRequestAppendInputData(
      request, "INPUT0", bytes.data(), bytes.size(), TRITONSERVER_MEMORY_CPU, 0));
  const auto on_release = [](TRITONSERVER_InferenceRequest*, const uint32_t, void* userp) {
    static_cast<Outcome*>(userp)->released.set_value();
  };
  const auto on_response = [](TRITONSERVER_InferenceResponse* got, const uint32_t, void* userp) {
    static_cast<Outcome*>(userp)->response.set_value(got);
  };
  check(TRITONSERVER_InferenceRequestSetReleaseCallback(request, on_release, &outcome));
  check(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, nullptr, on_response, &outcome));
  check(TRITONSERVER_ServerInferAsync(server, request, nullptr));
  if (gives_up) {
    TRITONSERVER_ErrorDelete(TRITONSERVER_InferenceRequestCancel(request));
  }
  TRITONSERVER_InferenceResponse* response = outcome.response.get_future().get();
  check(TRITONSERVER_InferenceResponseError(response));
  const std::string answered = bytes_of(response);
  check(TRITONSERVER_InferenceResponseDelete(response));
  outcome.released.get_future().get();
  check(TRITONSERVER_InferenceRequestDelete(request));
  check(TRITONSERVER_ResponseAllocatorDelete(allocator));
  return answered;
}

// Responses from two threads at once, until one of them has sent the final flag.
void answer_often(Threads* threads, TRITONBACKEND_Request* request) {
  auto bytes = std::make_shared<const std::string>(bytes_of(request));
  for (int thread = 0; thread < 2; ++thread) {
    TRITONBACKEND_ResponseFactory* factory;
    check(TRITONBACKEND_ResponseFactoryNew(&factory, request));
    begin(threads, [factory, bytes] {
      for (int count = 0; count < 5; ++count) {
        TRITONBACKEND_Response* response;
        bool is_cancelled;
        check(TRITONBACKEND_ResponseFactoryIsCancelled(factory, &is_cancelled));
        check(TRITONBACKEND_ResponseNewFromFactory(&response, factory));
        fill(response, *bytes);
        if (auto* error = TRITONBACKEND_ResponseSend(response, 0, nullptr)) {
          TRITONSERVER_ErrorDelete(error);
          check(TRITONBACKEND_ResponseDelete(response));
        }
      }
      TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseFactorySendFlags(factory, kFinal));
      check(TRITONBACKEND_ResponseFactoryDelete(factory));
    });
  }
}

void do_as_told(Threads* threads, TRITONBACKEND_Request* request) {
  const char* id;
  bool is_cancelled;
  check(TRITONBACKEND_RequestId(request, &id));
  check(TRITONBACKEND_RequestIsCancelled(request, &is_cancelled));
  const std::string what = id;
  if (what.find("later") != std::string::npos) {
    begin(threads, [threads, request, what] {
      bool was_cancelled;
      check(TRITONBACKEND_RequestIsCancelled(request, &was_cancelled));
      if (what.find("call") != std::string::npos) {
        const bool gives_up = what.find("gives up") != std::string::npos;
        expect(call(threads->model, bytes_of(request), gives_up) == bytes_of(request), "the same bytes");
      }
      answer(request, what);
      release(request);
    });
  } else if (what.find("often") != std::string::npos) {
    answer_often(threads, request);
    release(request);
  } else if (what.find("forget") != std::string::npos) {
    TRITONBACKEND_Response* response;
    check(TRITONBACKEND_ResponseNew(&response, request));
    fill(response, bytes_of(request));
    check(TRITONBACKEND_ResponseDelete(response));
    release(request);
  } else if (what.find("twice") != std::string::npos) {
    // Both threads release it while it is executed: one of them is refused.
    TRITONBACKEND_Response* response;
    check(TRITONBACKEND_ResponseNew(&response, request));
    fill(response, bytes_of(request));
    check(TRITONBACKEND_ResponseSend(response, kFinal, nullptr));
    TRITONSERVER_Error* errors[2];
    const auto end = [request] {
      return TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL);
    };
    std::thread other([&] { errors[0] = end(); });
    errors[1] = end();
    other.join();
    expect((errors[0] == nullptr) != (errors[1] == nullptr), "one release");
    TRITONSERVER_ErrorDelete(errors[0]);
    TRITONSERVER_ErrorDelete(errors[1]);
  } else {
    answer(request, what);
    release(request);
  }
}

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend* backend) {
  TRITONBACKEND_MemoryManager* manager;
  void* memory;
  check(TRITONBACKEND_BackendMemoryManager(backend, &manager));
  check(TRITONBACKEND_MemoryManagerAllocate(manager, &memory, TRITONSERVER_MEMORY_CPU, 0, 64));
  std::memset(memory, 1, 64);
  check(TRITONBACKEND_MemoryManagerFree(manager, memory, TRITONSERVER_MEMORY_CPU, 0));
  check(TRITONBACKEND_BackendSetExecutionPolicy(backend, TRITONBACKEND_EXECUTION_DEVICE_BLOCKING));
  return TRITONBACKEND_BackendSetState(backend, new std::string("state"));
}

TRITONSERVER_Error* TRITONBACKEND_Finalize(TRITONBACKEND_Backend* backend) {
  void* state;
  check(TRITONBACKEND_BackendState(backend, &state));
  delete static_cast<std::string*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {
  const char* text;
  size_t byte_size;
  TRITONSERVER_Message* config;
  check(TRITONBACKEND_ModelConfig(model, 1, &config));
  check(TRITONSERVER_MessageSerializeToJson(config, &text, &byte_size));
  const std::string json(text, byte_size);
  const bool completes = json.find("completes") != std::string::npos;
  auto* error = completes ? TRITONBACKEND_ModelSetConfig(model, 1, config) : nullptr;
  check(TRITONSERVER_MessageDelete(config));
  check(error);
  if (auto* told = do_as_told(json)) {
    return told;
  }
  return TRITONBACKEND_ModelSetState(model, new Threads(model));
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {
  const std::unique_ptr<Threads> threads(threads_of(model));
  std::unique_lock<std::mutex> lock(threads->mutex);
  threads->changed.wait(lock, [&] { return threads->count == 0; });
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* instance) {
  const char* name;
  TRITONSERVER_InstanceGroupKind kind;
  int32_t device;
  TRITONSERVER_Message* policy;
  bool is_passive;
  check(TRITONBACKEND_ModelInstanceName(instance, &name));
  check(TRITONBACKEND_ModelInstanceKind(instance, &kind));
  check(TRITONBACKEND_ModelInstanceDeviceId(instance, &device));
  check(TRITONBACKEND_ModelInstanceHostPolicy(instance, &policy));
  check(TRITONBACKEND_ModelInstanceIsPassive(instance, &is_passive));
  return TRITONBACKEND_ModelInstanceSetState(instance, new std::string(name));
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* instance) {
  void* state;
  check(TRITONBACKEND_ModelInstanceState(instance, &state));
  delete static_cast<std::string*>(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request** requests, const uint32_t request_count) {
  TRITONBACKEND_Model* model;
  check(TRITONBACKEND_ModelInstanceModel(instance, &model));
  Threads* threads = threads_of(model);
  for (uint32_t index = 0; index < request_count; ++index) {
    const char* id;
    check(TRITONBACKEND_RequestId(requests[index], &id));
    if (std::strstr(id, "batch") != nullptr) {
      if (auto* error = do_as_told(id)) {
        return error;
      }
    }
    check(TRITONBACKEND_ModelInstanceReportStatistics(instance, requests[index], true, 1, 2, 3, 4));
    do_as_told(threads, requests[index]);
  }
  return TRITONBACKEND_ModelInstanceReportBatchStatistics(instance, request_count, 1, 2, 3, 4);
}

// A callback, as far as it gets.
extern "C" __attribute__((visibility("default"))) void throw_at_once(void*, uint32_t, void*);

void throw_at_once(void*, uint32_t, void*) { throw std::runtime_error("thrown by a callback"); }
