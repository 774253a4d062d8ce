// What a model's configuration says of the states of its sequences.
#pragma once

#include <string>
#include <vector>

#include "core/objects.h"

namespace tritonpy {

struct StateSpec {
  std::string input_name;
  std::string output_name;
  std::vector<int64_t> shape;  // -1 for any size
  TRITONSERVER_DataType datatype;
  bool keeps_content;  // a new one begins as a copy of the one before
};

struct StateSpecs {
  std::string model_name;
  std::vector<StateSpec> all;
};

}  // namespace tritonpy
