// What is being done with a plugin that is tried, in records that another process reads.
#pragma once

#include <string>

#include "api.h"

namespace tritonpy {

class Report {
 public:
  explicit Report(int descriptor) : descriptor_(descriptor) {}

  // Opens a library, and says why when it cannot; the handle is NULL then.
  void* open(const char* path) const;
  // Says which function of the plugin is called next.
  void calling(const char* function) const;
  // Says which error ended the try, and ends it.
  void failed(TRITONSERVER_Error* error) const;
  void done() const;
  // Says what was found.
  void tell(const char* what, const std::string& value) const;

 private:
  void write(const std::string& record) const;

  int descriptor_;
};

}  // namespace tritonpy
