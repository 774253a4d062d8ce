// Messages keep the bytes they are made of. They are not read as JSON: whoever gets one does that, and says
// what is wrong with it.

#include "core/objects.h"
#include "guard.h"

TRITONSERVER_Error* TRITONSERVER_MessageNewFromSerializedJson(
    TRITONSERVER_Message** message, const char* json, size_t byte_size) {
  TRITONPY_REQUIRE(message);
  if (byte_size != 0) {
    TRITONPY_REQUIRE(json);
  }
  return tritonpy::guarded(__func__, [&]() -> TRITONSERVER_Error* {
    *message = new TRITONSERVER_Message{byte_size == 0 ? std::string() : std::string(json, byte_size)};
    return nullptr;
  });
}

TRITONSERVER_Error* TRITONSERVER_MessageSerializeToJson(
    TRITONSERVER_Message* message, const char** json, size_t* byte_size) {
  TRITONPY_REQUIRE(message);
  TRITONPY_REQUIRE(json);
  TRITONPY_REQUIRE(byte_size);
  *json = message->json.data();
  *byte_size = message->json.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_MessageDelete(TRITONSERVER_Message* message) {
  delete message;
  return nullptr;
}
