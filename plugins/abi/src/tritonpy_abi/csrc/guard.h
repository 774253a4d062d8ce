// C++ exceptions of plugins end here: one that left a C function would end the process.
#pragma once

#include <exception>
#include <string>

#include "api.h"

namespace tritonpy {

// Calls a function of a plugin; what it throws becomes an error that names the function.
template <typename Call>
TRITONSERVER_Error* guarded(const char* name, Call&& call) {
  try {
    return call();
  } catch (const std::exception& thrown) {
    const char* what = thrown.what();
    const std::string text =
        std::string(name) + " threw a C++ exception: " + (what == nullptr ? "it says nothing" : what);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, text.c_str());
  } catch (...) {
    const std::string text = std::string(name) + " threw a C++ exception that is no std::exception";
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, text.c_str());
  }
}

}  // namespace tritonpy
