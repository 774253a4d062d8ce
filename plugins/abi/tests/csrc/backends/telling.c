/* A backend for tests that answers each request with what the server tells it of its instance, line by line. */

#define _GNU_SOURCE
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "tritonpy/backend.h"

typedef struct {
  char bytes[8192];
  size_t size;
} Text;

static void tell(Text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  text->size += (size_t)vsnprintf(text->bytes + text->size, sizeof(text->bytes) - text->size, format, arguments);
  va_end(arguments);
}

/* Tells of an error, which is ended; true if there was none. */
static bool fine(Text *text, const char *what, TRITONSERVER_Error *error) {
  if (error == NULL) return true;
  tell(text, "%s: %s: %s\n", what, TRITONSERVER_ErrorCodeString(error), TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
  return false;
}

static TRITONSERVER_Error *tell_instance(Text *text, TRITONBACKEND_ModelInstance *instance) {
  TRITONSERVER_InstanceGroupKind kind;
  TRITONSERVER_Message *policy;
  const char *json;
  size_t size;
  uint32_t count;
  bool is_passive;
  CHECK(TRITONBACKEND_ModelInstanceKind(instance, &kind));
  tell(text, "kind: %s\n", TRITONSERVER_InstanceGroupKindString(kind));
  CHECK(TRITONBACKEND_ModelInstanceHostPolicy(instance, &policy));
  CHECK(TRITONSERVER_MessageSerializeToJson(policy, &json, &size));
  tell(text, "policy: %.*s\n", (int)size, json);
  CHECK(TRITONBACKEND_ModelInstanceIsPassive(instance, &is_passive));
  tell(text, "passive: %d\n", is_passive);
  CHECK(TRITONBACKEND_ModelInstanceSecondaryDeviceCount(instance, &count));
  tell(text, "secondary devices: %u\n", count);
  for (uint32_t index = 0; index <= count; ++index) {
    const char *secondary;
    int64_t id;
    if (fine(text, "secondary device",
             TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(instance, index, &secondary, &id))) {
      tell(text, "secondary device: %s %ld\n", secondary, (long)id);
    }
  }
  CHECK(TRITONBACKEND_ModelInstanceProfileCount(instance, &count));
  tell(text, "profiles: %u\n", count);
  for (uint32_t index = 0; index <= count; ++index) {
    const char *profile;
    if (fine(text, "profile", TRITONBACKEND_ModelInstanceProfileName(instance, index, &profile))) {
      tell(text, "profile: %s\n", profile);
    }
  }
  cpu_set_t set;
  tell(text, "cores:");
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) tell(text, " %d", core);
    }
  }
  tell(text, "\n");
  return NULL;
}

static TRITONSERVER_Error *tell_memory(Text *text, TRITONBACKEND_ModelInstance *instance) {
  static const TRITONSERVER_MemoryType kTypes[] = {
      TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_CPU_PINNED, TRITONSERVER_MEMORY_GPU};
  TRITONBACKEND_Model *model;
  TRITONBACKEND_Backend *backend;
  TRITONBACKEND_MemoryManager *manager;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelBackend(model, &backend));
  CHECK(TRITONBACKEND_BackendMemoryManager(backend, &manager));
  for (int each = 0; each < 3; ++each) {
    const TRITONSERVER_MemoryType type = kTypes[each];
    const char *name = TRITONSERVER_MemoryTypeString(type);
    void *buffer = NULL;
    if (!fine(text, name, TRITONBACKEND_MemoryManagerAllocate(manager, &buffer, type, 0, 4096))) continue;
    if (type != TRITONSERVER_MEMORY_GPU) memset(buffer, 7, 4096);
    tell(text, "%s: %s\n", name, buffer == NULL ? "NULL" : "allocated");
    fine(text, name, TRITONBACKEND_MemoryManagerFree(manager, buffer, type, 0));
  }
  return NULL;
}

static TRITONSERVER_Error *tell_input(Text *text, TRITONBACKEND_Request *request) {
  TRITONBACKEND_Input *input;
  const char *name;
  uint64_t byte_size;
  uint32_t buffer_count;
  CHECK(TRITONBACKEND_RequestInputByIndex(request, 0, &input));
  CHECK(TRITONBACKEND_InputPropertiesForHostPolicy(
      input, "cpu", &name, NULL, NULL, NULL, &byte_size, &buffer_count));
  tell(text, "input: %s %lu %u\n", name, (unsigned long)byte_size, buffer_count);
  for (uint32_t index = 0; index < 2; ++index) {
    const void *buffer = NULL;
    uint64_t size = 99;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    if (fine(text, "buffer for policy",
             TRITONBACKEND_InputBufferForHostPolicy(input, "cpu", index, &buffer, &size, &type, &id))) {
      tell(text, "buffer for policy: %d %lu %d %ld\n", buffer != NULL, (unsigned long)size, type, (long)id);
    }
    TRITONSERVER_BufferAttributes *attributes;
    if (fine(text, "buffer with attributes",
             TRITONBACKEND_InputBufferAttributes(input, index, &buffer, &attributes)) && attributes != NULL) {
      size_t whole;
      CHECK(TRITONSERVER_BufferAttributesByteSize(attributes, &whole));
      CHECK(TRITONSERVER_BufferAttributesMemoryType(attributes, &type));
      tell(text, "buffer with attributes: %d %zu %d\n", buffer != NULL, whole, type);
    }
  }
  return NULL;
}

/* Reports as much memory of the CPU as the model's version says, for the model and for its instance. */
static TRITONSERVER_Error *report_memory(TRITONBACKEND_ModelInstance *instance, size_t byte_size) {
  TRITONBACKEND_Model *model;
  TRITONSERVER_BufferAttributes *usage;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONSERVER_BufferAttributesNew(&usage));
  CHECK(TRITONSERVER_BufferAttributesSetByteSize(usage, byte_size));
  CHECK(TRITONBACKEND_ModelInstanceReportMemoryUsage(instance, &usage, 1));
  CHECK(TRITONSERVER_BufferAttributesSetByteSize(usage, 10 * byte_size));
  CHECK(TRITONBACKEND_ModelReportMemoryUsage(model, &usage, 1));
  return TRITONSERVER_BufferAttributesDelete(usage);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance) {
  return report_memory(instance, 1000);
}

static TRITONSERVER_Error *answer(TRITONBACKEND_Request *request, const Text *text) {
  const int64_t shape[] = {1};
  TRITONBACKEND_Response *response;
  TRITONBACKEND_Output *output;
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  void *buffer;
  const uint32_t size = (uint32_t)text->size;
  CHECK(TRITONBACKEND_ResponseNew(&response, request));
  CHECK(TRITONBACKEND_ResponseOutput(response, &output, "FACTS", TRITONSERVER_TYPE_BYTES, shape, 1));
  CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, sizeof(size) + size, &type, &id));
  memcpy(buffer, &size, sizeof(size));
  memcpy((char *)buffer + sizeof(size), text->bytes, size);
  return TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL);
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  for (uint32_t index = 0; index < request_count; ++index) {
    Text *text = calloc(1, sizeof(Text));
    CHECK(tell_instance(text, instance));
    CHECK(tell_memory(text, instance));
    CHECK(tell_input(text, requests[index]));
    CHECK(report_memory(instance, 2000));
    CHECK(answer(requests[index], text));
    free(text);
    CHECK(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
