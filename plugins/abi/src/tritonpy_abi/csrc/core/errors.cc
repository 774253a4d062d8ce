#include <string>

#include "core/objects.h"

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};

namespace {

const char* const kNames[] = {"Unknown",     "Internal",    "Not found",      "Invalid argument",
                              "Unavailable", "Unsupported", "Already exists", "Cancelled"};
constexpr int kCount = sizeof(kNames) / sizeof(kNames[0]);

}  // namespace

TRITONSERVER_Error* tritonpy::invalid(const std::string& message) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, message.c_str());
}

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* message) {
  return new TRITONSERVER_Error{code, message == nullptr ? "" : message};
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) { delete error; }

// Success, which is NULL, has neither code nor text; whoever asks all the same goes on.
TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) {
  return error == nullptr ? TRITONSERVER_ERROR_UNKNOWN : error->code;
}

const char* TRITONSERVER_ErrorCodeString(TRITONSERVER_Error* error) {
  const int code = static_cast<int>(TRITONSERVER_ErrorCode(error));
  return kNames[code < 0 || code >= kCount ? 0 : code];
}

const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) {
  return error == nullptr ? "" : error->message.c_str();
}

int TRITONPY_ErrorCode(TRITONSERVER_Error* error) { return static_cast<int>(error->code); }

const char* TRITONPY_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }

void TRITONPY_ErrorDelete(TRITONSERVER_Error* error) { delete error; }
