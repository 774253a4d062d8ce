/* A backend for tests that does as `--backend-config` says: its instance groups, how its instances load. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "tritonpy/backend.h"

static TRITONSERVER_Error *refusal(const char *text) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
}

/* A setting of the command line, or ""; it is cut where it is too long. */
static TRITONSERVER_Error *setting(TRITONBACKEND_Backend *backend, const char *key, char *value, size_t size) {
  TRITONSERVER_Message *config;
  const char *json;
  size_t json_size;
  char pattern[64];
  value[0] = 0;
  CHECK(TRITONBACKEND_BackendConfig(backend, &config));
  CHECK(TRITONSERVER_MessageSerializeToJson(config, &json, &json_size));
  snprintf(pattern, sizeof(pattern), "\"%s\":\"", key);
  const char *found = memmem(json, json_size, pattern, strlen(pattern));
  if (found == NULL) return NULL;
  found += strlen(pattern);
  size_t length = strcspn(found, "\"");
  if (length >= size) length = size - 1;
  memcpy(value, found, length);
  value[length] = 0;
  return NULL;
}

static TRITONSERVER_Error *fail_as_told(TRITONBACKEND_Backend *backend, const char *function) {
  char fault[64];
  CHECK(setting(backend, function, fault, sizeof(fault)));
  if (strcmp(fault, "error") == 0) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "the backend was told to refuse");
  }
  if (strcmp(fault, "crash") == 0) abort();
  while (strcmp(fault, "hang") == 0) sleep(1);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  return fail_as_told(backend, "initialize");
}

/* `groups` is `<kind>:<count>[:<device>...]`, several with a `;` between them. */
static TRITONSERVER_Error *add_groups(TRITONBACKEND_BackendAttribute *attributes, char *groups) {
  char *rest = NULL;
  for (char *group = strtok_r(groups, ";", &rest); group != NULL; group = strtok_r(NULL, ";", &rest)) {
    uint64_t ids[8], count = 0;
    char *field = NULL;
    const int kind = atoi(strtok_r(group, ":", &field));
    const uint64_t instances = strtoull(strtok_r(NULL, ":", &field), NULL, 10);
    for (char *id = strtok_r(NULL, ":", &field); id != NULL; id = strtok_r(NULL, ":", &field)) {
      ids[count++] = strtoull(id, NULL, 10);
    }
    CHECK(TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
        attributes, (TRITONSERVER_InstanceGroupKind)kind, instances, count == 0 ? NULL : ids, count));
  }
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_GetBackendAttribute(
    TRITONBACKEND_Backend *backend, TRITONBACKEND_BackendAttribute *attributes) {
  char text[256];
  CHECK(fail_as_told(backend, "attribute"));
  CHECK(setting(backend, "groups", text, sizeof(text)));
  CHECK(add_groups(attributes, text));
  CHECK(setting(backend, "parallel", text, sizeof(text)));
  if (text[0] != 0) {
    CHECK(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(attributes, strcmp(text, "yes") == 0));
  }
  return NULL;
}

/* Instances that load meet in the directory `meeting`: each leaves its mark there while it begins. With
 * `parallel` it waits for as many as `together` says; otherwise it refuses to find another's. */
static TRITONSERVER_Error *meet(TRITONBACKEND_Backend *backend, const char *name) {
  char directory[256], together[16], path[600];
  CHECK(setting(backend, "meeting", directory, sizeof(directory)));
  CHECK(setting(backend, "together", together, sizeof(together)));
  if (directory[0] == 0) return NULL;
  if (together[0] != 0) {
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    fclose(fopen(path, "w"));
    const int length = (int)(strrchr(name, '_') - name);
    for (int number = 0; number < atoi(together); ++number) {
      snprintf(path, sizeof(path), "%s/%.*s_%d", directory, length, name, number);
      while (access(path, F_OK) != 0) usleep(1000);
    }
    return NULL;
  }
  snprintf(path, sizeof(path), "%s/alone", directory);
  FILE *mark = fopen(path, "wx");
  if (mark == NULL) return refusal("another instance begins at the same time");
  fclose(mark);
  usleep(50000); /* another one that is not kept away comes meanwhile */
  remove(path);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance *instance) {
  TRITONBACKEND_Model *model;
  TRITONBACKEND_Backend *backend;
  const char *name;
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelBackend(model, &backend));
  CHECK(TRITONBACKEND_ModelInstanceName(instance, &name));
  return meet(backend, name);
}

/* Not while the file `absence` is there. */
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceReady(TRITONBACKEND_ModelInstance *instance) {
  TRITONBACKEND_Model *model;
  TRITONBACKEND_Backend *backend;
  char path[256];
  CHECK(TRITONBACKEND_ModelInstanceModel(instance, &model));
  CHECK(TRITONBACKEND_ModelBackend(model, &backend));
  CHECK(setting(backend, "absence", path, sizeof(path)));
  return path[0] != 0 && access(path, F_OK) == 0 ? refusal("the instance is not there") : NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  (void)instance;
  (void)requests;
  (void)request_count;
  return refusal("this backend only loads");
}
