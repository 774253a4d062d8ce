#include <dlfcn.h>

#include "api.h"

const char* TRITONPY_Version(void) { return "0.1.0"; }

TRITONSERVER_Error* TRITONPY_Open(const char* path, void** handle) {
  // Local: two libraries with functions of the same names must not see each other. At once: a name that is
  // missing shows here, and not in the middle of a request.
  *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (*handle != nullptr) {
    return nullptr;
  }
  const char* reason = dlerror();
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, reason == nullptr ? path : reason);
}

void* TRITONPY_Symbol(void* handle, const char* name) { return dlsym(handle, name); }
