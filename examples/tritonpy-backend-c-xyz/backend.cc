// The backend c-xyz: counts how often each of a model's words occurs in a text. A model is a file of words.
//
// It includes headers of tritonpy-sdk only, and works in Triton as it does in tritonpy.
#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tritonpy/backend.hpp"
#include "tritonpy/parameters.h"

namespace {

// A model, from its initialisation to its end. Instances only read it: nothing here needs a lock.
struct Words {
  std::vector<std::string> words;
  bool ignores_case;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::vector<std::string> read_words(const std::string &path) {
  std::ifstream file(path);
  if (!file) throw tritonpy::invalid("expected a file with a word on each line: " + path);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word);) {
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

// How often each word occurs in a text, in which blanks and line breaks separate words.
std::vector<int32_t> count(const Words &model, std::string text, bool ignores_case) {
  std::map<std::string, int32_t> counts;
  if (ignores_case) text = lower(text);
  for (size_t end, start = 0; start < text.size(); start = end + 1) {
    end = std::min(text.find_first_of(" \t\r\n", start), text.size());
    ++counts[text.substr(start, end - start)];
  }
  std::vector<int32_t> found;
  for (const std::string &word : model.words) found.push_back(counts[ignores_case ? lower(word) : word]);
  return found;
}

// What the request says, or else the model's configuration.
bool ignores_case(const Words &model, TRITONBACKEND_Request *request) {
  TRITONSERVER_ParameterType type;
  const void *value;
  tritonpy::check(tritonpy_request_parameter(request, "ignore_case", &type, &value));
  if (value == nullptr) return model.ignores_case;
  if (type != TRITONSERVER_PARAMETER_BOOL) throw tritonpy::invalid("ignore_case: expected true or false");
  return *static_cast<const bool *>(value);
}

}  // namespace

// Once for each version of a model. An error is the reason for which it does not load.
TRITONSERVER_Error *TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model *handle) {
  return tritonpy::guarded([&] {
    char flag[8] = "false";
    tritonpy::check(tritonpy_model_parameter(handle, "IGNORE_CASE", flag, sizeof flag));
    auto model = std::make_unique<Words>(Words{
        read_words(tritonpy::directory_of(handle) + "/words.txt"), std::string_view(flag) == "true"});
    const std::string size = std::to_string(model->words.size());
    tritonpy::complete_config(
        handle, 64, R"([{"name": "TEXT", "data_type": "TYPE_STRING", "dims": [1]}])",
        R"([{"name": "COUNTS", "data_type": "TYPE_INT32", "dims": [)" + size + R"(]},
            {"name": "TOP", "data_type": "TYPE_STRING", "dims": [1]}])");
    tritonpy::keep_state(handle, std::move(model));
  });
}

TRITONSERVER_Error *TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model *handle) {
  return tritonpy::guarded([&] { tritonpy::forget_state<Words>(handle); });
}

// A batch: texts of several requests. What is thrown for one request is the error that its client gets.
TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  return tritonpy::answer_each(instance, requests, request_count, [&](auto *request, auto &response) {
    const auto &model = *tritonpy::state_of<Words>(instance);
    const bool ignores = ignores_case(model, request);
    const tritonpy::Input input(request, "TEXT");
    const auto texts = input.texts();
    const auto row_count = static_cast<int64_t>(texts.size());
    const auto word_count = static_cast<int64_t>(model.words.size());

    std::vector<int32_t> counts;
    std::vector<std::string> tops;
    int64_t total = 0;
    for (const std::string_view text : texts) {
      const std::vector<int32_t> row = count(model, std::string(text), ignores);
      const auto top = std::max_element(row.begin(), row.end());
      tops.push_back(top == row.end() || *top == 0 ? "" : model.words[top - row.begin()]);
      for (const int32_t each : row) total += each;
      counts.insert(counts.end(), row.begin(), row.end());
    }
    response.add("COUNTS", {row_count, word_count}, counts);
    response.add("TOP", {row_count, 1}, tops);
    tritonpy::check(TRITONBACKEND_ResponseSetIntParameter(response.handle, "total", total));
    return row_count;
  });
}
