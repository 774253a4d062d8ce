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

// These two return texts, so they have to.
TRITONPY_EXPORT const char* TRITONSERVER_InferenceTraceLevelString(int level);
TRITONPY_EXPORT const char* TRITONSERVER_InferenceTraceActivityString(int activity);

const char* TRITONSERVER_InferenceTraceLevelString(int) { return "<unknown>"; }

const char* TRITONSERVER_InferenceTraceActivityString(int) { return "<unknown>"; }
}
