/* Writes down all that a strategy can see, a line of JSON for each thing, and takes every request. The file
 * is the model's parameter OBSERVER_FILE. Two servers that say the same of the same requests write the same
 * lines. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tritonpy/batching.h"

struct TRITONBACKEND_Batcher {
  FILE *file;
};

static void put_bytes(FILE *file, const char *bytes, size_t byte_size) {
  fputc('"', file);
  for (size_t index = 0; index < byte_size; ++index) {
    const unsigned char byte = (unsigned char)bytes[index];
    if (byte < ' ' || byte == '"' || byte == '\\' || byte > '~') {
      fprintf(file, "\\u%04x", byte);
    } else {
      fputc(byte, file);
    }
  }
  fputc('"', file);
}

static void put_text(FILE *file, const char *text) {
  if (text == NULL) {
    fputs("null", file);
  } else {
    put_bytes(file, text, strlen(text));
  }
}

static void begin(FILE *file, const char *what) { fprintf(file, "{\"what\": \"%s\"", what); }

static void key(FILE *file, const char *name) { fprintf(file, ", \"%s\": ", name); }

static void end(FILE *file) {
  fputs("}\n", file);
  fflush(file);
}

/* Writes an error into the line, if there is one; true if there is none. */
static bool went_well(FILE *file, TRITONSERVER_Error *error) {
  if (error == NULL) {
    return true;
  }
  key(file, "code");
  put_text(file, TRITONSERVER_ErrorCodeString(error));
  key(file, "error");
  put_text(file, TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return false;
}

static void put_message(FILE *file, TRITONSERVER_Message *message) {
  const char *json;
  size_t byte_size;
  if (went_well(file, TRITONSERVER_MessageSerializeToJson(message, &json, &byte_size))) {
    key(file, "json");
    fwrite(json, 1, byte_size, file);
  }
}

static void observe_config(FILE *file, TRITONBACKEND_Model *model, uint32_t config_version) {
  TRITONSERVER_Message *message;
  begin(file, "config");
  if (went_well(file, TRITONBACKEND_ModelConfig(model, config_version, &message))) {
    put_message(file, message);
    went_well(file, TRITONSERVER_MessageDelete(message));
  }
  end(file);
}

static void observe_backend(FILE *file, TRITONBACKEND_Backend *backend) {
  const char *text;
  TRITONBACKEND_ArtifactType artifacts;
  TRITONBACKEND_ExecutionPolicy policy;
  TRITONSERVER_Message *message;
  begin(file, "backend");
  if (went_well(file, TRITONBACKEND_BackendName(backend, &text))) {
    key(file, "name");
    put_text(file, text);
  }
  if (went_well(file, TRITONBACKEND_BackendArtifacts(backend, &artifacts, &text))) {
    key(file, "artifacts");
    fprintf(file, "%d", (int)artifacts);
    key(file, "location");
    put_text(file, text);
  }
  if (went_well(file, TRITONBACKEND_BackendExecutionPolicy(backend, &policy))) {
    key(file, "policy");
    fprintf(file, "%d", (int)policy);
  }
  if (went_well(file, TRITONBACKEND_BackendConfig(backend, &message))) {
    put_message(file, message);  // it stays the backend's
  }
  end(file);
}

static void observe_model(FILE *file, TRITONBACKEND_Model *model) {
  const char *text;
  uint64_t version;
  bool completes;
  TRITONBACKEND_ArtifactType artifacts;
  TRITONBACKEND_Backend *backend;

  begin(file, "model");
  if (went_well(file, TRITONBACKEND_ModelName(model, &text))) {
    key(file, "name");
    put_text(file, text);
  }
  if (went_well(file, TRITONBACKEND_ModelVersion(model, &version))) {
    key(file, "version");
    fprintf(file, "%" PRIu64, version);
  }
  if (went_well(file, TRITONBACKEND_ModelRepository(model, &artifacts, &text))) {
    key(file, "artifacts");
    fprintf(file, "%d", (int)artifacts);
    key(file, "location");
    put_text(file, text);
  }
  if (went_well(file, TRITONBACKEND_ModelAutoCompleteConfig(model, &completes))) {
    key(file, "completes");
    fputs(completes ? "true" : "false", file);
  }
  end(file);

  observe_config(file, model, 1);
  observe_config(file, model, 2);
  if (TRITONBACKEND_ModelBackend(model, &backend) == NULL) {
    observe_backend(file, backend);
  }
}

static void observe_parameter(FILE *file, TRITONBACKEND_Request *request, uint32_t index) {
  const char *name;
  TRITONSERVER_ParameterType type;
  const void *value;
  begin(file, "parameter");
  if (went_well(file, TRITONBACKEND_RequestParameter(request, index, &name, &type, &value))) {
    key(file, "name");
    put_text(file, name);
    key(file, "type");
    put_text(file, TRITONSERVER_ParameterTypeString(type));
    key(file, "value");
    if (type == TRITONSERVER_PARAMETER_STRING) {
      put_text(file, value);
    } else if (type == TRITONSERVER_PARAMETER_INT) {
      fprintf(file, "%" PRId64, *(const int64_t *)value);
    } else if (type == TRITONSERVER_PARAMETER_BOOL) {
      fputs(*(const bool *)value ? "true" : "false", file);
    } else if (type == TRITONSERVER_PARAMETER_DOUBLE) {
      fprintf(file, "%.17g", *(const double *)value);
    } else {
      fputs("null", file);
    }
  }
  end(file);
}

static void observe_buffer(FILE *file, TRITONBACKEND_Input *input, uint32_t index, const char *host_policy) {
  const void *bytes = file;
  uint64_t byte_size = 77;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  TRITONSERVER_Error *error;
  begin(file, host_policy == NULL ? "buffer" : "buffer for a host policy");
  if (host_policy == NULL) {
    error = TRITONBACKEND_InputBuffer(input, index, &bytes, &byte_size, &memory_type, &memory_type_id);
  } else {
    error = TRITONBACKEND_InputBufferForHostPolicy(
        input, host_policy, index, &bytes, &byte_size, &memory_type, &memory_type_id);
  }
  if (went_well(file, error)) {
    key(file, "bytes");
    put_bytes(file, bytes, byte_size < 64 ? byte_size : 64);
  }
  key(file, "is_null");
  fputs(bytes == NULL ? "true" : "false", file);
  key(file, "byte_size");
  fprintf(file, "%" PRIu64, byte_size);
  key(file, "memory_type");
  put_text(file, TRITONSERVER_MemoryTypeString(memory_type));
  key(file, "memory_type_id");
  fprintf(file, "%" PRId64, memory_type_id);
  end(file);
}

static void observe_attributes(FILE *file, TRITONBACKEND_Input *input, uint32_t index) {
  const void *bytes = file;
  TRITONSERVER_BufferAttributes *attributes = NULL;
  TRITONSERVER_MemoryType memory_type;
  int64_t memory_type_id;
  size_t byte_size;
  void *handle;
  begin(file, "attributes");
  if (went_well(file, TRITONBACKEND_InputBufferAttributes(input, index, &bytes, &attributes))) {
    key(file, "is_null");
    fputs(bytes == NULL ? "true" : "false", file);
    if (went_well(file, TRITONSERVER_BufferAttributesByteSize(attributes, &byte_size))) {
      key(file, "byte_size");
      fprintf(file, "%zu", byte_size);
    }
    if (went_well(file, TRITONSERVER_BufferAttributesMemoryType(attributes, &memory_type))) {
      key(file, "memory_type");
      put_text(file, TRITONSERVER_MemoryTypeString(memory_type));
    }
    if (went_well(file, TRITONSERVER_BufferAttributesMemoryTypeId(attributes, &memory_type_id))) {
      key(file, "memory_type_id");
      fprintf(file, "%" PRId64, memory_type_id);
    }
    if (went_well(file, TRITONSERVER_BufferAttributesCudaIpcHandle(attributes, &handle))) {
      key(file, "has_handle");
      fputs(handle == NULL ? "false" : "true", file);
    }
  }
  end(file);
}

static void observe_input(FILE *file, TRITONBACKEND_Input *input, const char *host_policy) {
  const char *name;
  TRITONSERVER_DataType datatype;
  const int64_t *shape;
  uint32_t dim_count;
  uint64_t byte_size;
  uint32_t buffer_count = 0;
  TRITONSERVER_Error *error;
  begin(file, host_policy == NULL ? "input" : "input for a host policy");
  if (host_policy == NULL) {
    error =
        TRITONBACKEND_InputProperties(input, &name, &datatype, &shape, &dim_count, &byte_size, &buffer_count);
  } else {
    error = TRITONBACKEND_InputPropertiesForHostPolicy(
        input, host_policy, &name, &datatype, &shape, &dim_count, &byte_size, &buffer_count);
  }
  if (went_well(file, error)) {
    key(file, "name");
    put_text(file, name);
    key(file, "datatype");
    put_text(file, TRITONSERVER_DataTypeString(datatype));
    key(file, "shape");
    fputc('[', file);
    for (uint32_t index = 0; index < dim_count; ++index) {
      fprintf(file, "%s%" PRId64, index == 0 ? "" : ", ", shape[index]);
    }
    fputc(']', file);
    key(file, "byte_size");
    fprintf(file, "%" PRIu64, byte_size);
    key(file, "buffer_count");
    fprintf(file, "%" PRIu32, buffer_count);
  }
  if (went_well(file, TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, NULL, NULL))) {
    key(file, "takes_null");
    fputs("true", file);
  }
  end(file);
  for (uint32_t index = 0; index <= buffer_count; ++index) {
    observe_buffer(file, input, index, host_policy);
  }
  if (host_policy == NULL) {
    // Not of one behind the last: at that a real server ends.
    for (uint32_t index = 0; index < buffer_count; ++index) {
      observe_attributes(file, input, index);
    }
  }
}

static void observe_inputs(FILE *file, TRITONBACKEND_Request *request) {
  uint32_t count = 0;
  const char *name;
  TRITONBACKEND_Input *input;
  TRITONBACKEND_Input *same;
  went_well(file, TRITONBACKEND_RequestInputCount(request, &count));
  for (uint32_t index = 0; index <= count; ++index) {
    begin(file, "input name");
    if (went_well(file, TRITONBACKEND_RequestInputName(request, index, &name))) {
      key(file, "name");
      put_text(file, name);
      if (went_well(file, TRITONBACKEND_RequestInput(request, name, &input)) &&
          went_well(file, TRITONBACKEND_RequestInputByIndex(request, index, &same))) {
        key(file, "is_same");
        fputs(input == same ? "true" : "false", file);
      }
    }
    end(file);
  }
  begin(file, "input by index behind the last");
  went_well(file, TRITONBACKEND_RequestInputByIndex(request, count, &input));
  end(file);
  begin(file, "input of no name");
  went_well(file, TRITONBACKEND_RequestInput(request, "NONE", &input));
  end(file);
  for (uint32_t index = 0; index < count; ++index) {
    if (TRITONBACKEND_RequestInputByIndex(request, index, &input) == NULL) {
      observe_input(file, input, NULL);
      observe_input(file, input, "elsewhere");
    }
  }
}

static void observe_request(FILE *file, TRITONBACKEND_Request *request) {
  const char *text;
  uint64_t number;
  uint32_t flags;
  uint32_t count;
  bool is_cancelled;

  begin(file, "request");
  if (went_well(file, TRITONBACKEND_RequestId(request, &text))) {
    key(file, "id");
    put_text(file, text);
  }
  if (went_well(file, TRITONBACKEND_RequestFlags(request, &flags))) {
    key(file, "flags");
    fprintf(file, "%" PRIu32, flags);
  }
  if (went_well(file, TRITONBACKEND_RequestIsCancelled(request, &is_cancelled))) {
    key(file, "is_cancelled");
    fputs(is_cancelled ? "true" : "false", file);
  }
  if (went_well(file, TRITONBACKEND_InferenceRequestTimeoutMicroseconds(request, &number))) {
    key(file, "timeout");
    fprintf(file, "%" PRIu64, number);
  }
  end(file);

  begin(file, "correlation id");
  if (went_well(file, TRITONBACKEND_RequestCorrelationId(request, &number))) {
    key(file, "id");
    fprintf(file, "%" PRIu64, number);
  }
  end(file);
  begin(file, "correlation id as text");
  if (went_well(file, TRITONBACKEND_RequestCorrelationIdString(request, &text))) {
    key(file, "id");
    put_text(file, text);
  }
  end(file);

  count = 0;
  begin(file, "parameters");
  if (went_well(file, TRITONBACKEND_RequestParameterCount(request, &count))) {
    key(file, "count");
    fprintf(file, "%" PRIu32, count);
  }
  end(file);
  for (uint32_t index = 0; index <= count; ++index) {
    observe_parameter(file, request, index);
  }

  count = 0;
  begin(file, "outputs");
  if (went_well(file, TRITONBACKEND_RequestOutputCount(request, &count))) {
    key(file, "count");
    fprintf(file, "%" PRIu32, count);
  }
  end(file);
  for (uint32_t index = 0; index <= count; ++index) {
    begin(file, "output");
    if (went_well(file, TRITONBACKEND_RequestOutputName(request, index, &text))) {
      key(file, "name");
      put_text(file, text);
    }
    end(file);
  }

  observe_inputs(file, request);
}

/* The value of a parameter in the configuration, with no escapes in it; NULL where there is none. */
static char *parameter(TRITONBACKEND_Model *model, const char *name) {
  TRITONSERVER_Message *message;
  const char *json;
  size_t byte_size;
  char *found = NULL;
  if (TRITONBACKEND_ModelConfig(model, 1, &message) != NULL) {
    return NULL;
  }
  if (TRITONSERVER_MessageSerializeToJson(message, &json, &byte_size) == NULL) {
    char *text = strndup(json, byte_size);
    char *at = strstr(text, name);
    at = at == NULL ? NULL : strstr(at, "\"string_value\"");
    at = at == NULL ? NULL : strchr(at + strlen("\"string_value\""), '"');
    if (at != NULL) {
      found = strndup(at + 1, strcspn(at + 1, "\""));
    }
    free(text);
  }
  TRITONSERVER_MessageDelete(message);
  return found;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  char *path = parameter(model, "\"OBSERVER_FILE\"");
  FILE *file = path == NULL ? NULL : fopen(path, "w");
  free(path);
  if (file == NULL) {
    return TRITONSERVER_ErrorNew(
        TRITONSERVER_ERROR_NOT_FOUND, "expected the path of a file that can be written in OBSERVER_FILE");
  }
  *batcher = malloc(sizeof(**batcher));
  (*batcher)->file = file;
  observe_model(file, model);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  if (batcher != NULL) {
    fclose(batcher->file);
    free(batcher);
  }
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  *userp = batcher->file;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  observe_request(userp, request);
  *should_include = true;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  (void)userp;
  return NULL;
}
