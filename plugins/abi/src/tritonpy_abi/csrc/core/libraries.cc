#include <dlfcn.h>

#include "core/objects.h"

namespace {

// The file that an address lies in; nullptr where it lies in this library.
const char* other_file(const void* address) {
  Dl_info ours{};
  Dl_info theirs{};
  const void* own = reinterpret_cast<const void*>(&TRITONPY_Open);
  if (dladdr(own, &ours) == 0 || dladdr(address, &theirs) == 0 || ours.dli_fbase == theirs.dli_fbase) {
    return nullptr;
  }
  return theirs.dli_fname;
}

}  // namespace

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

const char* TRITONPY_Intruder(void* handle) {
  for (void* scope : {handle, static_cast<void*>(RTLD_DEFAULT)}) {
    const void* found = dlsym(scope, "TRITONSERVER_ErrorNew");
    // A library that names no other one finds the functions of this one all the same, as global ones.
    if (found != nullptr && other_file(found) != nullptr) {
      return other_file(found);
    }
  }
  return nullptr;
}
