/* A backend that asks for all there is in every call it gets, also in ways in which nobody should.
 *
 * The same questions to two servers give the same notes where they answer alike. INPUT<i> comes back as
 * OUTPUT<i>; the parameter `do` of a request names something else to do. */

#define _GNU_SOURCE
#include <inttypes.h>
#include <stdint.h>
#include <time.h>

#include "notes.h"

typedef TRITONSERVER_Error Error;

enum { kNoteBytes = 256 };

static const char *text_of(const char *text) { return text == NULL ? "NULL" : text; }

/* ---- the backend ---- */

static void ask_memory(const char *about, TRITONBACKEND_Backend *backend) {
  static const uint64_t kSizes[] = {0, 1, 1 << 20};
  TRITONBACKEND_MemoryManager *manager = NULL;
  if (!answered(about, "memory manager", TRITONBACKEND_BackendMemoryManager(backend, &manager))) return;
  for (int type = TRITONSERVER_MEMORY_CPU; type <= TRITONSERVER_MEMORY_GPU; ++type) {
    for (size_t index = 0; index < sizeof(kSizes) / sizeof(kSizes[0]); ++index) {
      char question[kNoteBytes];
      void *buffer = NULL;
      snprintf(question, sizeof(question), "%" PRIu64 " bytes of type %s", kSizes[index],
               TRITONSERVER_MemoryTypeString((TRITONSERVER_MemoryType)type));
      if (!answered(about, question, TRITONBACKEND_MemoryManagerAllocate(
                        manager, &buffer, (TRITONSERVER_MemoryType)type, 0, kSizes[index]))) {
        continue;
      }
      note(about, "  %s: there", question);
      if (type == TRITONSERVER_MEMORY_CPU && kSizes[index] > 0) memset(buffer, 1, kSizes[index]);
      answered(about, "their end",
               TRITONBACKEND_MemoryManagerFree(manager, buffer, (TRITONSERVER_MemoryType)type, 0));
    }
  }
}

static void ask_versions(const char *about) {
  uint32_t major = 77, minor = 77;
  if (answered(about, "version", TRITONBACKEND_ApiVersion(&major, &minor))) {
    note(about, "  major version of backends %u", major);
  }
  if (answered(about, "version", TRITONSERVER_ApiVersion(&major, &minor))) {
    note(about, "  major version of servers %u", major);
  }
}

static void ask_backend(const char *about, TRITONBACKEND_Backend *backend) {
  const char *text = NULL;
  TRITONSERVER_Message *message = NULL;
  TRITONBACKEND_ArtifactType type = (TRITONBACKEND_ArtifactType)77;
  TRITONBACKEND_ExecutionPolicy policy = (TRITONBACKEND_ExecutionPolicy)77;
  void *state = NULL;
  if (answered(about, "name", TRITONBACKEND_BackendName(backend, &text))) {
    note(about, "  backend's name: %s", text_of(text));
  }
  if (answered(about, "settings", TRITONBACKEND_BackendConfig(backend, &message))) {
    note_message(about, "backend's settings", message);
  }
  if (answered(about, "artifacts", TRITONBACKEND_BackendArtifacts(backend, &type, &text))) {
    note(about, "  backend's artifacts: type %d at %s", (int)type, text_of(text));
  }
  if (answered(about, "policy", TRITONBACKEND_BackendExecutionPolicy(backend, &policy))) {
    note(about, "  backend's execution policy: %d", (int)policy);
  }
  if (answered(about, "state", TRITONBACKEND_BackendState(backend, &state))) {
    note(about, "  backend's state: %s", text_of(state));
  }
}

Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  const char *about = "backend";
  note(about, "Initialize");
  ask_versions(about);
  ask_backend(about, backend);
  ask_memory(about, backend);
  answered(about, "blocks its device",
           TRITONBACKEND_BackendSetExecutionPolicy(backend, TRITONBACKEND_EXECUTION_DEVICE_BLOCKING));
  answered(about, "blocks", TRITONBACKEND_BackendSetExecutionPolicy(backend, TRITONBACKEND_EXECUTION_BLOCKING));
  answered(about, "set a state", TRITONBACKEND_BackendSetState(backend, "another"));
  answered(about, "set the state", TRITONBACKEND_BackendSetState(backend, "set in Initialize"));
  ask_backend(about, backend);
  /* What need not be there. */
  TRITONSERVER_ErrorDelete(NULL);
  answered(about, "end of no message", TRITONSERVER_MessageDelete(NULL));
  answered(about, "end of no response", TRITONBACKEND_ResponseDelete(NULL));
  answered(about, "end of no factory", TRITONBACKEND_ResponseFactoryDelete(NULL));
  return NULL;
}

Error *TRITONBACKEND_Finalize(TRITONBACKEND_Backend *backend) {
  note("backend", "Finalize");
  ask_backend("backend", backend);
  return NULL;
}

/* ---- its models ---- */

static const char *name_of(char *about, TRITONBACKEND_Model *model) {
  const char *name = NULL;
  uint64_t version = 77;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelName(model, &name));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelVersion(model, &version));
  snprintf(about, kNoteBytes, "model %s %" PRIu64, text_of(name), version);
  return about;
}

static void ask_config(const char *about, TRITONBACKEND_Model *model, uint32_t version) {
  char question[kNoteBytes];
  TRITONSERVER_Message *message = NULL;
  snprintf(question, sizeof(question), "configuration of version %u", version);
  if (answered(about, question, TRITONBACKEND_ModelConfig(model, version, &message))) {
    note_message(about, question, message);
    answered(about, "its end", TRITONSERVER_MessageDelete(message));
  }
}

static void ask_model(const char *about, TRITONBACKEND_Model *model) {
  TRITONBACKEND_ArtifactType type = (TRITONBACKEND_ArtifactType)77;
  TRITONBACKEND_Backend *backend = NULL;
  const char *text = NULL;
  void *state = NULL;
  bool completes = false;
  if (answered(about, "location", TRITONBACKEND_ModelRepository(model, &type, &text))) {
    note(about, "  model's location: type %d at %s", (int)type, text_of(text));
  }
  if (answered(about, "completes", TRITONBACKEND_ModelAutoCompleteConfig(model, &completes))) {
    note(about, "  model's configuration is %s", completes ? "to be completed" : "complete");
  }
  if (answered(about, "backend", TRITONBACKEND_ModelBackend(model, &backend)) &&
      answered(about, "name", TRITONBACKEND_BackendName(backend, &text))) {
    note(about, "  model's backend: %s", text_of(text));
  }
  if (answered(about, "state", TRITONBACKEND_ModelState(model, &state))) {
    note(about, "  model's state: %s", text_of(state));
  }
  ask_config(about, model, 0);
  ask_config(about, model, 1);
  ask_config(about, model, 2);
}

static bool config_has(TRITONBACKEND_Model *model, const char *text) {
  TRITONSERVER_Message *message = NULL;
  const char *json = "";
  size_t size = 0;
  if (!answered("backend", "configuration", TRITONBACKEND_ModelConfig(model, 1, &message))) return false;
  answered("backend", "configuration", TRITONSERVER_MessageSerializeToJson(message, &json, &size));
  const bool has = memmem(json, size, text, strlen(text)) != NULL;
  answered("backend", "its end", TRITONSERVER_MessageDelete(message));
  return has;
}

static void set_config(const char *about, TRITONBACKEND_Model *model, uint32_t version, const char *json) {
  TRITONSERVER_Message *message = NULL;
  char question[kNoteBytes];
  if (!answered(about, "message", TRITONSERVER_MessageNewFromSerializedJson(&message, json, strlen(json)))) return;
  snprintf(question, sizeof(question), "set %.60s of version %u", json, version);
  if (answered(about, question, TRITONBACKEND_ModelSetConfig(model, version, message))) {
    note(about, "  %s: done", question);
  }
  answered(about, "its end", TRITONSERVER_MessageDelete(message));
}

static const char kTensors[] =
    "{\"name\":\"%s\",\"backend\":\"curious\",\"max_batch_size\":%d,"
    "\"input\":[{\"name\":\"INPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}],"
    "\"output\":[{\"name\":\"OUTPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[-1]}]}";

/* Completes a configuration without inputs, after a try of what is none. */
static void complete(const char *about, TRITONBACKEND_Model *model) {
  bool completes = false;
  const char *name = "";
  answered(about, "completes", TRITONBACKEND_ModelAutoCompleteConfig(model, &completes));
  answered(about, "name", TRITONBACKEND_ModelName(model, &name));
  if (!completes || !config_has(model, "\"input\":[]")) return;
  char json[1024];
  set_config(about, model, 1, "no JSON");
  set_config(about, model, 1, "[]");
  set_config(about, model, 1, "{\"max_batch_size\":\"many\"}");
  set_config(about, model, 1, "{\"no_such_field\":1}");
  set_config(about, model, 2, "{}");
  snprintf(json, sizeof(json), kTensors, name, 4);
  set_config(about, model, 1, json);
  ask_config(about, model, 1);
}

Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *model) {
  char about[kNoteBytes];
  name_of(about, model);
  note(about, "ModelInitialize");
  ask_model(about, model);
  answered(about, "set the state", TRITONBACKEND_ModelSetState(model, "set in ModelInitialize"));
  ask_model(about, model);
  complete(about, model);
  if (config_has(model, "refuse in ModelInitialize")) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_ALREADY_EXISTS, "the model is refused: \"größer\"");
  }
  return NULL;
}

Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *model) {
  char about[kNoteBytes];
  note(name_of(about, model), "ModelFinalize");
  ask_model(about, model);
  return NULL;
}

/* ---- their instances ---- */

static const char *instance_name(char *about, TRITONBACKEND_ModelInstance *instance) {
  const char *name = NULL, *model_name = NULL;
  TRITONBACKEND_Model *model = NULL;
  uint64_t version = 77;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceName(instance, &name));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceModel(instance, &model));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelName(model, &model_name));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelVersion(model, &version));
  snprintf(about, kNoteBytes, "instance %s of %s %" PRIu64, text_of(name), text_of(model_name), version);
  return about;
}

static void ask_instance(const char *about, TRITONBACKEND_ModelInstance *instance) {
  TRITONSERVER_InstanceGroupKind kind = (TRITONSERVER_InstanceGroupKind)77;
  TRITONSERVER_Message *policy = NULL;
  TRITONBACKEND_Model *model = NULL;
  const char *name = NULL;
  int32_t device = 77;
  bool is_passive = true;
  void *state = NULL;
  if (answered(about, "kind", TRITONBACKEND_ModelInstanceKind(instance, &kind))) {
    note(about, "  instance's kind: %s", TRITONSERVER_InstanceGroupKindString(kind));
  }
  if (answered(about, "device", TRITONBACKEND_ModelInstanceDeviceId(instance, &device))) {
    note(about, "  instance's device: %d", device);
  }
  if (answered(about, "host policy", TRITONBACKEND_ModelInstanceHostPolicy(instance, &policy))) {
    note_message(about, "instance's host policy", policy);
  }
  if (answered(about, "passive", TRITONBACKEND_ModelInstanceIsPassive(instance, &is_passive))) {
    note(about, "  instance is %s", is_passive ? "passive" : "active");
  }
  if (answered(about, "model", TRITONBACKEND_ModelInstanceModel(instance, &model)) &&
      answered(about, "its name", TRITONBACKEND_ModelName(model, &name))) {
    note(about, "  instance's model: %s", text_of(name));
  }
  if (answered(about, "state", TRITONBACKEND_ModelInstanceState(instance, &state))) {
    note(about, "  instance's state: %s", text_of(state));
  }
}

Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance) {
  char about[kNoteBytes];
  note(instance_name(about, instance), "ModelInstanceInitialize");
  ask_instance(about, instance);
  answered(about, "set the state", TRITONBACKEND_ModelInstanceSetState(instance, "set in InstanceInitialize"));
  ask_instance(about, instance);
  TRITONBACKEND_Model *model;
  if (!answered(about, "model", TRITONBACKEND_ModelInstanceModel(instance, &model))) return NULL;
  ask_config(about, model, 1);
  if (config_has(model, "refuse in ModelInstanceInitialize")) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, "the instance is refused");
  }
  return NULL;
}

Error *TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance *instance) {
  char about[kNoteBytes];
  note(instance_name(about, instance), "ModelInstanceFinalize");
  ask_instance(about, instance);
  return NULL;
}

/* ---- requests ---- */

static void note_parameter(const char *about, const char *key, TRITONSERVER_ParameterType type, const void *value) {
  switch (type) {
    case TRITONSERVER_PARAMETER_STRING:
      note(about, "  parameter %s: '%s'", key, (const char *)value);
      break;
    case TRITONSERVER_PARAMETER_INT:
      note(about, "  parameter %s: %" PRIi64, key, *(const int64_t *)value);
      break;
    case TRITONSERVER_PARAMETER_BOOL:
      note(about, "  parameter %s: %s", key, *(const bool *)value ? "true" : "false");
      break;
    case TRITONSERVER_PARAMETER_DOUBLE:
      note(about, "  parameter %s: %g", key, *(const double *)value);
      break;
    default:
      note(about, "  parameter %s: of type %d", key, (int)type);
      break;
  }
}

/* The parameter `do` of a request, or "". */
static const char *wish(TRITONBACKEND_Request *request) {
  uint32_t count = 0;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char *key = "";
    TRITONSERVER_ParameterType type = TRITONSERVER_PARAMETER_INT;
    const void *value = NULL;
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestParameter(request, index, &key, &type, &value));
    if (strcmp(key, "do") == 0 && type == TRITONSERVER_PARAMETER_STRING) return value;
  }
  return "";
}

static void note_shape(const char *about, const char *what, const int64_t *shape, uint32_t dim_count) {
  char text[kNoteBytes] = "";
  for (uint32_t index = 0; index < dim_count; ++index) {
    const size_t length = strlen(text);
    snprintf(text + length, sizeof(text) - length, "%s%" PRIi64, index == 0 ? "" : ",", shape[index]);
  }
  note(about, "  %s: [%s]", what, text);
}

static void ask_buffers(const char *about, TRITONBACKEND_Input *input, uint32_t count) {
  for (uint32_t index = 0; index < count + 1; ++index) {
    const void *data = about;
    uint64_t size = 77;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
    int64_t id = 5;
    TRITONSERVER_BufferAttributes *attributes = NULL;
    size_t known_size = 77;
    if (answered(about, "buffer", TRITONBACKEND_InputBuffer(input, index, &data, &size, &type, &id))) {
      note(about, "  buffer %u: %" PRIu64 " bytes%s of type %d, id %" PRIi64, index, size,
           data == NULL ? " nowhere" : "", (int)type, index < count ? id : 0);
    }
    type = TRITONSERVER_MEMORY_CPU_PINNED, id = 5;
    if (answered(about, "buffer of a policy",
                 TRITONBACKEND_InputBufferForHostPolicy(input, "nobody", index, &data, &size, &type, &id))) {
      note(about, "  buffer %u of a policy: %" PRIu64 " bytes of type %d", index, size, (int)type);
    }
    if (answered(about, "attributes", TRITONBACKEND_InputBufferAttributes(input, index, &data, &attributes))) {
      if (attributes == NULL) {
        note(about, "  attributes %u: none", index);
        continue;
      }
      void *handle = NULL;
      TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesByteSize(attributes, &known_size));
      TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesMemoryType(attributes, &type));
      TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesMemoryTypeId(attributes, &id));
      TRITONSERVER_ErrorDelete(TRITONSERVER_BufferAttributesCudaIpcHandle(attributes, &handle));
      note(about, "  attributes %u: %zu bytes of type %d, id %" PRIi64 ", %s", index, known_size, (int)type, id,
           handle == NULL ? "no handle" : "a handle");
    }
  }
}

static void ask_input(const char *about, TRITONBACKEND_Input *input) {
  const char *name = NULL;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  const int64_t *shape = NULL;
  uint32_t dim_count = 77, buffer_count = 77;
  uint64_t size = 77;
  answered(about, "nothing", TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, NULL, NULL));
  if (!answered(about, "input", TRITONBACKEND_InputProperties(
                    input, &name, &datatype, &shape, &dim_count, &size, &buffer_count))) {
    return;
  }
  note(about, "  input %s: %s, %" PRIu64 " bytes in %u buffers", name, TRITONSERVER_DataTypeString(datatype), size,
       buffer_count);
  note_shape(about, "its shape", shape, dim_count);
  if (answered(about, "input of a policy", TRITONBACKEND_InputPropertiesForHostPolicy(
                   input, "nobody", &name, &datatype, &shape, &dim_count, &size, &buffer_count))) {
    note(about, "  input of a policy: %" PRIu64 " bytes in %u buffers", size, buffer_count);
  }
  if (answered(about, "input of no policy", TRITONBACKEND_InputPropertiesForHostPolicy(
                   input, NULL, &name, NULL, NULL, NULL, &size, &buffer_count))) {
    note(about, "  input of no policy: %" PRIu64 " bytes in %u buffers", size, buffer_count);
  }
  ask_buffers(about, input, buffer_count);
}

static int compare_names(const void *one, const void *other) {
  return strcmp(*(const char *const *)one, *(const char *const *)other);
}

/* In the order of their names: the other one is that of a hash table. */
static void ask_inputs(const char *about, TRITONBACKEND_Request *request) {
  enum { kMost = 8 };
  uint32_t count = 77;
  const char *names[kMost], *name = about;
  TRITONBACKEND_Input *input = NULL, *by_name = NULL;
  if (answered(about, "inputs", TRITONBACKEND_RequestInputCount(request, &count))) {
    note(about, "  %u inputs", count);
  }
  for (uint32_t index = 0; index < count && index < kMost; ++index) {
    answered(about, "name of input", TRITONBACKEND_RequestInputName(request, index, &names[index]));
    answered(about, "input by name", TRITONBACKEND_RequestInput(request, names[index], &by_name));
    answered(about, "input by index", TRITONBACKEND_RequestInputByIndex(request, index, &input));
    if (input != by_name) note(about, "  another one by index than by name");
  }
  qsort(names, count, sizeof(names[0]), compare_names);
  for (uint32_t index = 0; index < count; ++index) {
    if (answered(about, "input", TRITONBACKEND_RequestInput(request, names[index], &input))) ask_input(about, input);
  }
  answered(about, "name of input", TRITONBACKEND_RequestInputName(request, count, &name));
  note(about, "  no name: %s", text_of(name));
  answered(about, "input by index", TRITONBACKEND_RequestInputByIndex(request, count, &input));
  answered(about, "input INPUT", TRITONBACKEND_RequestInput(request, "INPUT", &input));
  answered(about, "input ''", TRITONBACKEND_RequestInput(request, "", &input));
  note(about, "  which is %s", input == NULL ? "none" : "there");
}

static void ask_outputs(const char *about, TRITONBACKEND_Request *request) {
  uint32_t count = 77;
  if (answered(about, "outputs", TRITONBACKEND_RequestOutputCount(request, &count))) {
    note(about, "  %u outputs", count);
  }
  for (uint32_t index = 0; index < count + 1; ++index) {
    const char *name = about;
    if (!answered(about, "name of output", TRITONBACKEND_RequestOutputName(request, index, &name))) continue;
    size_t size = 77;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
    int64_t id = 5;
    note(about, "  output %s", name);
    if (answered(about, "where it will be", TRITONBACKEND_RequestOutputBufferProperties(
                     request, name, &size, &type, &id))) {
      note(about, "  it will be in memory of type %d", (int)type);
    }
    type = TRITONSERVER_MEMORY_CPU;
    if (answered(about, "where it will be, without a size", TRITONBACKEND_RequestOutputBufferProperties(
                     request, name, NULL, &type, &id))) {
      note(about, "  without a size: of type %d", (int)type);
    }
  }
}

static void ask_request(const char *about, TRITONBACKEND_Request *request) {
  const char *text = NULL;
  uint64_t number = 77;
  uint32_t flags = 77, count = 0;
  bool is_cancelled = true;
  TRITONSERVER_InferenceTrace *trace = NULL;
  if (answered(about, "id", TRITONBACKEND_RequestId(request, &text))) note(about, "  request's id: '%s'", text);
  if (answered(about, "correlation id", TRITONBACKEND_RequestCorrelationId(request, &number))) {
    note(about, "  request's correlation id: %" PRIu64, number);
  }
  if (answered(about, "correlation text", TRITONBACKEND_RequestCorrelationIdString(request, &text))) {
    note(about, "  request's correlation text: '%s'", text);
  }
  if (answered(about, "flags", TRITONBACKEND_RequestFlags(request, &flags))) {
    note(about, "  request's flags: %u", flags);
  }
  if (answered(about, "cancelled", TRITONBACKEND_RequestIsCancelled(request, &is_cancelled))) {
    note(about, "  request is %s", is_cancelled ? "cancelled" : "wanted");
  }
  if (answered(about, "timeout", TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &number))) {
    note(about, "  request's timeout: %" PRIu64, number);
  }
  if (answered(about, "trace", TRITONBACKEND_RequestTrace(request, &trace))) {
    note(about, "  request is %s", trace == NULL ? "not traced" : "traced");
  }
  answered(about, "parameters", TRITONBACKEND_RequestParameterCount(request, &count));
  for (uint32_t index = 0; index < count + 1; ++index) {
    TRITONSERVER_ParameterType type = (TRITONSERVER_ParameterType)77;
    const void *value = NULL;
    if (answered(about, "parameter", TRITONBACKEND_RequestParameter(request, index, &text, &type, &value))) {
      note_parameter(about, text, type, value);
    }
  }
  ask_inputs(about, request);
  ask_outputs(about, request);
}

/* ---- responses ---- */

static Error *fill(TRITONBACKEND_Output *output, const void *data, uint64_t size) {
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  void *buffer = NULL;
  Error *error = TRITONBACKEND_OutputBuffer(output, &buffer, size, &type, &id);
  if (error == NULL && size > 0) memcpy(buffer, data, size);
  return error;
}

/* INPUT<i> as OUTPUT<i>. */
static void copy(const char *about, TRITONBACKEND_Request *request, TRITONBACKEND_Response *response) {
  uint32_t count = 0;
  answered(about, "outputs", TRITONBACKEND_RequestOutputCount(request, &count));
  for (uint32_t index = 0; index < count; ++index) {
    const char *name = "";
    char source[kNoteBytes];
    TRITONBACKEND_Input *input = NULL;
    TRITONBACKEND_Output *output = NULL;
    TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
    const int64_t *shape = NULL;
    uint32_t dim_count = 0, buffer_count = 0;
    uint64_t size = 0, offset = 0;
    answered(about, "name", TRITONBACKEND_RequestOutputName(request, index, &name));
    snprintf(source, sizeof(source), "INPUT%s", strlen(name) > 6 ? name + 6 : "");
    if (!answered(about, "input", TRITONBACKEND_RequestInput(request, source, &input)) ||
        !answered(about, "input", TRITONBACKEND_InputProperties(
                      input, NULL, &datatype, &shape, &dim_count, &size, &buffer_count)) ||
        !answered(about, "output", TRITONBACKEND_ResponseOutput(
                      response, &output, name, datatype, shape, dim_count))) {
      continue;
    }
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
    int64_t id = 5;
    char *buffer = NULL;
    if (!answered(about, "buffer", TRITONBACKEND_OutputBuffer(output, (void **)&buffer, size, &type, &id))) continue;
    note(about, "  buffer of type %d", (int)type);
    for (uint32_t part = 0; part < buffer_count; ++part) {
      const void *data = NULL;
      uint64_t part_size = 0;
      answered(about, "data", TRITONBACKEND_InputBuffer(input, part, &data, &part_size, &type, &id));
      memcpy(buffer + offset, data, part_size);
      offset += part_size;
    }
  }
}

static void set_parameters(const char *about, TRITONBACKEND_Response *response) {
  answered(about, "text", TRITONBACKEND_ResponseSetStringParameter(response, "text", "größer \"als\"\n"));
  answered(about, "empty", TRITONBACKEND_ResponseSetStringParameter(response, "empty", ""));
  answered(about, "whole", TRITONBACKEND_ResponseSetIntParameter(response, "whole", INT64_MIN));
  answered(about, "most", TRITONBACKEND_ResponseSetIntParameter(response, "most", INT64_MAX));
  answered(about, "yes", TRITONBACKEND_ResponseSetBoolParameter(response, "yes", true));
  answered(about, "no", TRITONBACKEND_ResponseSetBoolParameter(response, "no", false));
  answered(about, "part", TRITONBACKEND_ResponseSetDoubleParameter(response, "part", -0.1));
  answered(about, "again", TRITONBACKEND_ResponseSetStringParameter(response, "again", "first"));
  answered(about, "again", TRITONBACKEND_ResponseSetIntParameter(response, "again", 2));
}

/* Outputs as nobody should make them. */
static void make_odd_outputs(const char *about, TRITONBACKEND_Response *response) {
  static const int64_t kShape[] = {1, 2};
  static const int32_t kData[] = {5, 6};
  TRITONBACKEND_Output *output = NULL;
  TRITONSERVER_BufferAttributes *attributes = NULL;
  if (!answered(about, "output", TRITONBACKEND_ResponseOutput(
                    response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, kShape, 2))) {
    return;
  }
  answered(about, "fill", fill(output, kData, sizeof(kData)));
  if (answered(about, "attributes", TRITONBACKEND_OutputBufferAttributes(output, &attributes))) {
    size_t size = 77;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
    answered(about, "size", TRITONSERVER_BufferAttributesByteSize(attributes, &size));
    answered(about, "type", TRITONSERVER_BufferAttributesMemoryType(attributes, &type));
    note(about, "  output's attributes: %zu bytes of type %d", size, (int)type);
  }
  answered(about, "fill again", fill(output, kData, sizeof(kData)));
}

/* One output with these properties, and as many bytes of a buffer. */
static void make_output(
    const char *about, TRITONBACKEND_Response *response, const char *name, TRITONSERVER_DataType datatype,
    const int64_t *shape, uint32_t dim_count, uint64_t size) {
  static const char kData[64] = "\1\0\0\0\2\0\0\0\3\0\0\0\4";
  TRITONBACKEND_Output *output = NULL;
  if (answered(about, name, TRITONBACKEND_ResponseOutput(response, &output, name, datatype, shape, dim_count))) {
    answered(about, "fill", fill(output, kData, size));
  }
}

static bool make(const char *about, const char *what, TRITONBACKEND_Response *response) {
  static const int64_t kOther[] = {1, 3}, kLong[] = {1, 1, 1, 1}, kNone[] = {1, 0};
  const TRITONSERVER_DataType int32 = TRITONSERVER_TYPE_INT32;
  if (strcmp(what, "other shape") == 0) make_output(about, response, "OUTPUT0", int32, kOther, 2, 12);
  else if (strcmp(what, "more dims") == 0) make_output(about, response, "OUTPUT0", int32, kLong, 4, 4);
  else if (strcmp(what, "no dims") == 0) make_output(about, response, "OUTPUT0", int32, kLong, 0, 4);
  else if (strcmp(what, "no elements") == 0) make_output(about, response, "OUTPUT0", int32, kNone, 2, 0);
  else if (strcmp(what, "other type") == 0) make_output(about, response, "OUTPUT0", TRITONSERVER_TYPE_FP32, kOther, 2, 12);
  else if (strcmp(what, "odd outputs") == 0) make_odd_outputs(about, response);
  else if (strcmp(what, "parameters") == 0) set_parameters(about, response);
  else return strcmp(what, "nothing") == 0;
  return true;
}

static void answer(const char *about, TRITONBACKEND_Request *request, const char *what) {
  TRITONBACKEND_Response *response = NULL;
  Error *error = NULL;
  int code = 0;
  if (!answered(about, "response", TRITONBACKEND_ResponseNew(&response, request))) return;
  if (strcmp(what, "dropped response") == 0) { /* Triton would not survive that it is sent */
    static const int64_t kShape[] = {1, 2};
    TRITONBACKEND_Output *output = NULL;
    copy(about, request, response);
    if (answered(about, "other name", TRITONBACKEND_ResponseOutput(
                                          response, &output, "ANOTHER", TRITONSERVER_TYPE_INT32, kShape, 2))) {
      note(about, "  other name: taken");
    }
    answered(about, "drop", TRITONBACKEND_ResponseDelete(response));
    if (!answered(about, "response", TRITONBACKEND_ResponseNew(&response, request))) return;
  }
  if (!make(about, what, response)) copy(about, request, response);
  if (sscanf(what, "error %d", &code) == 1) {
    error = TRITONSERVER_ErrorNew((TRITONSERVER_Error_Code)code, "größer \"als\" gedacht");
  }
  answered(about, "send", TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error));
  TRITONSERVER_ErrorDelete(error);
}

/* From a factory, after the request has been released: as many as the wish says, in one way of ending. */
static void answer_often(const char *about, TRITONBACKEND_Request *request, const char *what) {
  TRITONBACKEND_ResponseFactory *factory = NULL;
  static const int64_t kOne[] = {1};
  int count = 0;
  bool is_cancelled = true;
  if (!answered(about, "factory", TRITONBACKEND_ResponseFactoryNew(&factory, request))) return;
  const bool ends_apart = strstr(what, "apart") != NULL, fails = strstr(what, "fail") != NULL;
  sscanf(what, "%d", &count);
  answered(about, "release", TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL));
  if (answered(about, "cancelled", TRITONBACKEND_ResponseFactoryIsCancelled(factory, &is_cancelled))) {
    note(about, "  responses are %s", is_cancelled ? "cancelled" : "wanted");
  }
  for (int index = 0; index < count; ++index) {
    const bool is_last = index == count - 1;
    Error *error = is_last && fails ? TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "the last one") : NULL;
    TRITONBACKEND_Response *response = NULL;
    TRITONBACKEND_Output *output = NULL;
    if (!answered(about, "response", TRITONBACKEND_ResponseNewFromFactory(&response, factory))) break;
    answered(about, "number", TRITONBACKEND_ResponseSetIntParameter(response, "number", index));
    answered(about, "output", TRITONBACKEND_ResponseOutput(
                                  response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, kOne, 1));
    answered(about, "fill", fill(output, &index, sizeof(index)));
    answered(about, "send", TRITONBACKEND_ResponseSend(
                                response, is_last && !ends_apart ? TRITONSERVER_RESPONSE_COMPLETE_FINAL : 0, error));
    TRITONSERVER_ErrorDelete(error);
  }
  if (ends_apart || count == 0) {
    answered(about, "flags", TRITONBACKEND_ResponseFactorySendFlags(factory, 0));
    answered(about, "final flag",
             TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL));
  }
  answered(about, "end of the factory", TRITONBACKEND_ResponseFactoryDelete(factory));
}

/* Of a request to a model that batches; else 1. */
static uint64_t rows(TRITONBACKEND_Model *model, TRITONBACKEND_Request *request) {
  TRITONBACKEND_Input *input = NULL;
  const int64_t *shape = NULL;
  TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestInput(request, "INPUT0", &input));
  TRITONSERVER_ErrorDelete(TRITONBACKEND_InputProperties(input, NULL, NULL, &shape, NULL, NULL, NULL));
  return config_has(model, "\"max_batch_size\":0,") ? 1 : (uint64_t)shape[0];
}

Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  /* The three parts of an execution are of lengths that statistics can be told apart by. */
  const uint64_t exec_start = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
  const uint64_t start = exec_start + 1000, end = start + 20000, exec_end = end + 300000;
  char about[kNoteBytes];
  TRITONBACKEND_Model *model = NULL;
  note(instance_name(about, instance), "ModelInstanceExecute of %u", request_count);
  answered(about, "model", TRITONBACKEND_ModelInstanceModel(instance, &model));
  for (uint32_t index = 0; index < request_count; ++index) ask_request(about, requests[index]);
  int code = 0;
  if (sscanf(wish(requests[0]), "refuse %d", &code) == 1) {
    return TRITONSERVER_ErrorNew((TRITONSERVER_Error_Code)code, "the execution is refused");
  }
  const bool is_decoupled = config_has(model, "\"decoupled\":true");
  uint64_t batch_size = 0;
  for (uint32_t index = 0; index < request_count; ++index) {
    char what[kNoteBytes];
    snprintf(what, sizeof(what), "%s", wish(requests[index]));
    const bool succeeds = strncmp(what, "error", 5) != 0;
    if (strncmp(what, "log", 3) == 0) {
      for (int level = TRITONSERVER_LOG_INFO; level <= TRITONSERVER_LOG_VERBOSE; ++level) {
        note(about, "  level %d is %s", level,
             TRITONSERVER_LogIsEnabled((TRITONSERVER_LogLevel)level) ? "enabled" : "disabled");
        answered(about, "log", TRITONSERVER_LogMessage(
                                   (TRITONSERVER_LogLevel)level, "/a/curious.c", 7, "größer \"als\"\n\tgedacht"));
      }
    }
    batch_size += rows(model, requests[index]);
    if (is_decoupled) {
      answered(about, "statistics", TRITONBACKEND_ModelInstanceReportStatistics(
                                        instance, requests[index], succeeds, exec_start, start, end, exec_end));
      answer_often(about, requests[index], what);
      continue;
    }
    answer(about, requests[index], what);
    if (strcmp(what, "unreported") != 0) {
      answered(about, "statistics", TRITONBACKEND_ModelInstanceReportStatistics(
                                        instance, requests[index], succeeds, exec_start, start, end, exec_end));
    }
    answered(about, "release", TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  answered(about, "statistics of the batch", TRITONBACKEND_ModelInstanceReportBatchStatistics(
                                                 instance, batch_size, exec_start, start, end, exec_end));
  return NULL;
}
