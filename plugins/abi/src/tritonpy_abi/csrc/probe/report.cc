#include "probe/report.h"

#include <unistd.h>

#include <cstdio>

namespace tritonpy {

void* Report::open(const char* path) const {
  calling("dlopen");
  void* handle = nullptr;
  TRITONSERVER_Error* error = TRITONPY_Open(path, &handle);
  if (error != nullptr) {
    write("cannot open " + std::string(TRITONPY_ErrorMessage(error)));
    TRITONPY_ErrorDelete(error);
  }
  return handle;
}

void Report::calling(const char* function) const { write(std::string("calling ") + function); }

void Report::failed(TRITONSERVER_Error* error) const {
  std::fflush(nullptr);  // what the plugin has printed goes with it
  write("error " + std::to_string(TRITONPY_ErrorCode(error)) + " " + TRITONPY_ErrorMessage(error));
  TRITONPY_ErrorDelete(error);
}

void Report::done() const { write("done"); }

void Report::tell(const char* what, const std::string& value) const { write(std::string(what) + " " + value); }

void Report::write(const std::string& record) const {
  // With the zero byte. It goes to a file in memory, which takes it whole; a plugin that has closed the
  // descriptor has nothing to say any more.
  [[maybe_unused]] const ssize_t written = ::write(descriptor_, record.c_str(), record.size() + 1);
}

}  // namespace tritonpy
