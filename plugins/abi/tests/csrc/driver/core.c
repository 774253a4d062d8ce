/* Errors, types, messages, parameters, buffer attributes, versions, and what is not supported. */
#include "driver.h"

#include <string.h>

static void drive_errors(void) {
  TRITONSERVER_Error *error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "not now");
  CHECK(TRITONSERVER_ErrorCode(error) == TRITONSERVER_ERROR_UNAVAILABLE);
  CHECK(strcmp(TRITONSERVER_ErrorCodeString(error), "Unavailable") == 0);
  CHECK(strcmp(TRITONSERVER_ErrorMessage(error), "not now") == 0);
  TRITONSERVER_ErrorDelete(error);
  error = TRITONSERVER_ErrorNew((TRITONSERVER_Error_Code)77, NULL);
  CHECK(TRITONSERVER_ErrorCodeString(error) != NULL);
  CHECK(strcmp(TRITONSERVER_ErrorMessage(error), "") == 0);
  TRITONSERVER_ErrorDelete(error);
  TRITONSERVER_ErrorDelete(NULL);
}

static void drive_types(void) {
  for (int type = -1; type < 20; ++type) {
    const char *name = TRITONSERVER_DataTypeString((TRITONSERVER_DataType)type);
    const bool is_type = type > TRITONSERVER_TYPE_INVALID && type <= TRITONSERVER_TYPE_BF16;
    CHECK(is_type == (strcmp(name, "<invalid>") != 0));
    CHECK(!is_type || TRITONSERVER_StringToDataType(name) == (TRITONSERVER_DataType)type);
    CHECK(is_type || TRITONSERVER_DataTypeByteSize((TRITONSERVER_DataType)type) == 0);
    CHECK(TRITONSERVER_MemoryTypeString((TRITONSERVER_MemoryType)type) != NULL);
    CHECK(TRITONSERVER_InstanceGroupKindString((TRITONSERVER_InstanceGroupKind)type) != NULL);
    CHECK(TRITONSERVER_ParameterTypeString((TRITONSERVER_ParameterType)type) != NULL);
  }
  CHECK(TRITONSERVER_StringToDataType("FP33") == TRITONSERVER_TYPE_INVALID);
}

static void drive_versions(void) {
  uint32_t major, minor;
  OK(TRITONSERVER_ApiVersion(&major, &minor));
  CHECK(major == TRITONSERVER_API_VERSION_MAJOR && minor == TRITONSERVER_API_VERSION_MINOR);
  OK(TRITONBACKEND_ApiVersion(&major, &minor));
  OK(TRITONREPOAGENT_ApiVersion(&major, &minor));
  OK(TRITONCACHE_ApiVersion(&major, &minor));
  FAILS(TRITONSERVER_ERROR_INVALID_ARG, "version", TRITONSERVER_ApiVersion(NULL, &minor));
  CHECK(strlen(TRITONPY_Sources()) == 16);
}

static void drive_messages(void) {
  const char text[] = {'{', '}', 'x'};
  TRITONSERVER_Message *message;
  OK(TRITONSERVER_MessageNewFromSerializedJson(&message, text, 2));
  const char *json;
  size_t byte_size;
  OK(TRITONSERVER_MessageSerializeToJson(message, &json, &byte_size));
  CHECK(byte_size == 2 && memcmp(json, text, 2) == 0);
  OK(TRITONSERVER_MessageDelete(message));
  OK(TRITONSERVER_MessageNewFromSerializedJson(&message, NULL, 0));
  OK(TRITONSERVER_MessageDelete(message));
  OK(TRITONSERVER_MessageDelete(NULL));
  FAILS(TRITONSERVER_ERROR_INVALID_ARG, "json", TRITONSERVER_MessageNewFromSerializedJson(&message, NULL, 1));
  FAILS(
      TRITONSERVER_ERROR_INVALID_ARG, "message",
      TRITONSERVER_MessageSerializeToJson(NULL, &json, &byte_size));
}

static void drive_parameters(void) {
  /* Values need not be aligned. */
  char raw[17] = {0};
  const int64_t number = -3;
  const double half = 0.5;
  memcpy(raw + 1, &number, sizeof(number));
  memcpy(raw + 9, &half, sizeof(half));
  const bool truth = true;
  TRITONSERVER_ParameterDelete(TRITONSERVER_ParameterNew("text", TRITONSERVER_PARAMETER_STRING, "value"));
  TRITONSERVER_ParameterDelete(TRITONSERVER_ParameterNew("number", TRITONSERVER_PARAMETER_INT, raw + 1));
  TRITONSERVER_ParameterDelete(TRITONSERVER_ParameterNew("half", TRITONSERVER_PARAMETER_DOUBLE, raw + 9));
  TRITONSERVER_ParameterDelete(TRITONSERVER_ParameterNew("truth", TRITONSERVER_PARAMETER_BOOL, &truth));
  TRITONSERVER_ParameterDelete(TRITONSERVER_ParameterBytesNew("bytes", raw, sizeof(raw)));
  TRITONSERVER_ParameterDelete(TRITONSERVER_ParameterBytesNew("none", NULL, 0));
  TRITONSERVER_ParameterDelete(NULL);
  CHECK(TRITONSERVER_ParameterNew("odd", (TRITONSERVER_ParameterType)9, raw) == NULL);
  CHECK(TRITONSERVER_ParameterNew(NULL, TRITONSERVER_PARAMETER_STRING, "value") == NULL);
}

static void drive_buffer_attributes(void) {
  TRITONSERVER_BufferAttributes *attributes;
  OK(TRITONSERVER_BufferAttributesNew(&attributes));
  OK(TRITONSERVER_BufferAttributesSetByteSize(attributes, 12));
  OK(TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_CPU_PINNED));
  OK(TRITONSERVER_BufferAttributesSetMemoryTypeId(attributes, 3));
  char handle[64] = "a handle as large as those of CUDA";
  OK(TRITONSERVER_BufferAttributesSetCudaIpcHandle(attributes, handle));
  size_t byte_size;
  TRITONSERVER_MemoryType type;
  int64_t id;
  void *got;
  OK(TRITONSERVER_BufferAttributesByteSize(attributes, &byte_size));
  OK(TRITONSERVER_BufferAttributesMemoryType(attributes, &type));
  OK(TRITONSERVER_BufferAttributesMemoryTypeId(attributes, &id));
  OK(TRITONSERVER_BufferAttributesCudaIpcHandle(attributes, &got));
  CHECK(byte_size == 12 && type == TRITONSERVER_MEMORY_CPU_PINNED && id == 3);
  CHECK(memcmp(got, handle, sizeof(handle)) == 0);
  OK(TRITONSERVER_BufferAttributesSetCudaIpcHandle(attributes, NULL));
  OK(TRITONSERVER_BufferAttributesCudaIpcHandle(attributes, &got));
  CHECK(got == NULL);
  OK(TRITONSERVER_BufferAttributesDelete(attributes));
  FAILS(TRITONSERVER_ERROR_INVALID_ARG, "NULL", TRITONSERVER_BufferAttributesByteSize(NULL, &byte_size));
}

/* It is one of many that have a body alike, and reads none of its arguments. */
extern TRITONSERVER_Error *TRITONSERVER_ServerNew(void **server, void *options);

static void drive_all(int number, void *argument) {
  (void)number;
  (void)argument;
  for (int round = 0; round < 20; ++round) {
    drive_errors();
    drive_types();
    drive_versions();
    drive_messages();
    drive_parameters();
    drive_buffer_attributes();
    FAILS(
        TRITONSERVER_ERROR_UNSUPPORTED, "TRITONSERVER_ServerNew is not supported",
        TRITONSERVER_ServerNew(NULL, NULL));
  }
}

void drive_core(void) {
  on_threads(drive_all, NULL);
  void *handle;
  FAILS(TRITONSERVER_ERROR_NOT_FOUND, "no_such_file", TRITONPY_Open("/no_such_file.so", &handle));
  CHECK(handle == NULL);
}
