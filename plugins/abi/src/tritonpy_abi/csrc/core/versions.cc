// Which versions of the API this library speaks: those of the headers it is compiled with.

#include "core/objects.h"

namespace {

TRITONSERVER_Error* tell(
    uint32_t* to_major, uint32_t* to_minor, uint32_t major_number, uint32_t minor_number) {
  if (to_major == nullptr || to_minor == nullptr) {
    return tritonpy::invalid("a version is asked for without a place for both of its numbers");
  }
  *to_major = major_number;
  *to_minor = minor_number;
  return nullptr;
}

}  // namespace

TRITONSERVER_Error* TRITONSERVER_ApiVersion(uint32_t* to_major, uint32_t* to_minor) {
  return tell(to_major, to_minor, TRITONSERVER_API_VERSION_MAJOR, TRITONSERVER_API_VERSION_MINOR);
}

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* to_major, uint32_t* to_minor) {
  return tell(to_major, to_minor, TRITONBACKEND_API_VERSION_MAJOR, TRITONBACKEND_API_VERSION_MINOR);
}

TRITONSERVER_Error* TRITONREPOAGENT_ApiVersion(uint32_t* to_major, uint32_t* to_minor) {
  return tell(to_major, to_minor, TRITONREPOAGENT_API_VERSION_MAJOR, TRITONREPOAGENT_API_VERSION_MINOR);
}

TRITONSERVER_Error* TRITONCACHE_ApiVersion(uint32_t* to_major, uint32_t* to_minor) {
  return tell(to_major, to_minor, TRITONCACHE_API_VERSION_MAJOR, TRITONCACHE_API_VERSION_MINOR);
}
