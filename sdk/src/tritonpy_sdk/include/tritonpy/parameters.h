/* Parameters of a model and of a request, for batching strategies.
 *
 * A model's are in its configuration: `parameters { key: "LIMIT" value { string_value: "8" } }`. A request's
 * were sent along by its client. These functions become part of your library, and use nothing but what is
 * declared in batching.h.
 */
#ifndef TRITONPY_PARAMETERS_H
#define TRITONPY_PARAMETERS_H

#include <stdio.h>
#include <string.h>

#include "tritonpy/batching.h"

/* Where the text begins that follows `"key": {"string_value": "`, or NULL. Inside of JSON's strings a quote
 * has a backslash before it, so that none of them can look like this. */
static inline const char *tritonpy_find_parameter(const char *json, const char *end, const char *key) {
  const char *const tokens[] = {"\"", key, "\"", ":", "{", "\"string_value\"", ":", "\""};
  for (const char *start = json; start < end; ++start) {
    const char *at = start;
    size_t found = 0;
    if (*start != '"' || (start > json && start[-1] == '\\')) continue;
    for (; found < sizeof tokens / sizeof *tokens; ++found) {
      const size_t length = strlen(tokens[found]);
      while (found > 2 && at < end && strchr(" \t\r\n", *at) != NULL) ++at;
      if ((size_t)(end - at) < length || memcmp(at, tokens[found], length) != 0) break;
      at += length;
    }
    if (found == sizeof tokens / sizeof *tokens) return at;
  }
  return NULL;
}

/* Copy the value that a model's configuration gives to `key`. Where it gives none, `value` stays as it is:
 * put the default there before. An error if it does not fit into `size` bytes, the final zero among them. */
static inline TRITONSERVER_Error *tritonpy_model_parameter(
    TRITONBACKEND_Model *model, const char *key, char *value, size_t size) {
  TRITONSERVER_Message *config;
  const char *json, *end, *at;
  size_t byte_size, length = 0;
  char text[256];
  TRITONSERVER_Error *error = TRITONBACKEND_ModelConfig(model, 1, &config);
  if (error != NULL) return error;
  error = TRITONSERVER_MessageSerializeToJson(config, &json, &byte_size);
  if (error != NULL) {
    TRITONSERVER_MessageDelete(config);
    return error;
  }
  end = json + byte_size;
  at = tritonpy_find_parameter(json, end, key);
  while (at != NULL && at < end && *at != '"' && error == NULL) {
    if (*at == '\\') {
      ++at;
      if (at == end || strchr("\"\\/", *at) == NULL) {
        snprintf(text, sizeof text, "parameter %.100s: expected a value of letters, digits and signs", key);
        error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
        break;
      }
    }
    if (length + 1 >= size) {
      const int shown = length < 40 ? (int)length : 40;
      snprintf(
          text, sizeof text, "parameter %.100s: got '%.*s...', expected a value of less than %zu bytes", key,
          shown, value, size);
      error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text);
      break;
    }
    value[length++] = *at++;
  }
  if (at != NULL && error == NULL) value[length] = '\0';
  TRITONSERVER_MessageDelete(config);
  return error;
}

/* What a client gave to `key`: `*value` points to what the type says, as for `TRITONSERVER_ParameterNew`. It
 * is NULL where the client gave nothing. */
static inline TRITONSERVER_Error *tritonpy_request_parameter(
    TRITONBACKEND_Request *request, const char *key, TRITONSERVER_ParameterType *type, const void **value) {
  uint32_t count;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestParameterCount(request, &count);
  for (uint32_t index = 0; index < count && error == NULL; ++index) {
    const char *name;
    error = TRITONBACKEND_RequestParameter(request, index, &name, type, value);
    if (error == NULL && strcmp(name, key) == 0) return NULL;
  }
  *value = NULL;
  return error;
}

#endif
