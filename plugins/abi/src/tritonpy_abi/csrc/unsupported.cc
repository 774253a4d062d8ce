// The functions that nobody has written here. Each answers that it is not supported; a library that calls one
// finds it, and says so, where it would otherwise not be opened at all.

#include <string>

#include "api.h"

namespace {

TRITONSERVER_Error* unsupported(const char* name) {
  const std::string text = std::string(name) + " is not supported by tritonpy-abi";
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNSUPPORTED, text.c_str());
}

}  // namespace

extern "C" {

// Whatever arguments these are given, they read none of them: callers remove their own.
#define UNSUPPORTED(name) \
  TRITONPY_EXPORT TRITONSERVER_Error* name(); \
  TRITONSERVER_Error* name() { return unsupported(#name); }
#include "unsupported.inc"
#undef UNSUPPORTED

// Of traces there are only these names, since whoever asks for one gets a text and no error.
TRITONPY_EXPORT const char* TRITONSERVER_InferenceTraceLevelString(int level);
TRITONPY_EXPORT const char* TRITONSERVER_InferenceTraceActivityString(int activity);
}

const char* TRITONSERVER_InferenceTraceLevelString(int level) {
  switch (level) {
    case 0:
      return "DISABLED";
    case 1:
      return "MIN";
    case 2:
      return "MAX";
    case 4:  // from here on they are bits
      return "TIMESTAMPS";
    case 8:
      return "TENSORS";
    default:
      return "<unknown>";
  }
}

const char* TRITONSERVER_InferenceTraceActivityString(int activity) {
  static constexpr const char* kNames[] = {"REQUEST_START",
                                           "QUEUE_START",
                                           "COMPUTE_START",
                                           "COMPUTE_INPUT_END",
                                           "COMPUTE_OUTPUT_START",
                                           "COMPUTE_END",
                                           "REQUEST_END",
                                           "TENSOR_QUEUE_INPUT",
                                           "TENSOR_BACKEND_INPUT",
                                           "TENSOR_BACKEND_OUTPUT",
                                           "CUSTOM_ACTIVITY"};
  constexpr int kCount = sizeof(kNames) / sizeof(kNames[0]);
  return activity < 0 || activity >= kCount ? "<unknown>" : kNames[activity];
}
