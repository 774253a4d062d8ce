// What the program tries: a strategy, an agent and a cache in one shared object. Names tell them what to do.

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "tritonpy/batching.h"
#include "tritonpy/cache.h"
#include "tritonpy/repo_agent.h"

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
  refused(TRITONBACKEND_InputBufferAttributes(input, 1, &buffer, &attributes));
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
