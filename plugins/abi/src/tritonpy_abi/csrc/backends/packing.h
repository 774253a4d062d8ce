// What happened to the requests of a model, packed for the driver: it crosses once for an execution.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/events.h"

namespace tritonpy {

class Packing {
 public:
  // Takes the events that a record can describe.
  void take(Events* events, TRITONPY_Records* records);
  void describe(uint32_t kind, TRITONPY_SentOutput* output) const;

 private:
  struct Kind {
    std::string name;
    TRITONSERVER_DataType datatype;
    std::vector<int64_t> shape;
  };

  void add(Event& event);
  void add_response(TRITONBACKEND_Response& response);
  // The number of what an output has beside its bytes; whether it is new goes into the flags.
  uint32_t kind_of(const TRITONBACKEND_Output& output, uint32_t* flags);

  std::vector<TRITONPY_Record> records_;
  std::vector<char> bytes_;
  size_t last_ = 0;  // the record that stands for the last event
  std::deque<Kind> kinds_;
  std::unordered_map<std::string, uint32_t> numbers_;  // of the kinds
};

}  // namespace tritonpy
