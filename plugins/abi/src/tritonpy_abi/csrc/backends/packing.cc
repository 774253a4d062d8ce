#include "backends/packing.h"

#include "backends/objects.h"

namespace tritonpy {

namespace {

enum Flag : uint32_t {
  kResponse = 1,
  kFinal = 2,
  kRelease = 4,
  kEnd = 8,
  kOutput = 16,
  kMoreOutputs = 32,
  kInline = 64,
  kNewKind = 128,
};

// Copying as much costs less than a block of memory of its own, which the interpreter has to end.
constexpr uint64_t kMostInline = 16 * 1024;

// Backends may answer with any shapes, one after the other.
constexpr size_t kMostKinds = 1024;

bool is_describable(const Event& event) {
  return event.kind <= EventKind::kEnd &&
         (event.response == nullptr || (!event.response->has_error && event.response->parameters.empty()));
}

}  // namespace

void Packing::take(Events* events, TRITONPY_Records* records) {
  records_.clear();
  bytes_.clear();
  if (kinds_.size() > kMostKinds) {
    kinds_.clear();
    numbers_.clear();
  }
  std::deque<Event> taken;
  const bool has_more = events->take_while(is_describable, &taken);
  for (Event& event : taken) {
    add(event);
  }
  records->records = records_.data();
  records->record_count = static_cast<uint32_t>(records_.size());
  records->bytes = bytes_.data();
  records->byte_size = bytes_.size();
  records->has_more = has_more;
}

// Of a request that is answered and released at once, as usual, all events together are one record.
void Packing::add(Event& event) {
  const bool is_response = event.kind == EventKind::kResponse;
  const bool joins = !records_.empty() && records_[last_].tag == event.tag && !is_response;
  if (!joins) {
    last_ = records_.size();
    records_.push_back({event.tag, 0, 0, 0, 0});
  }
  if (event.response != nullptr) {
    add_response(*event.response);
  }
  uint32_t& flags = records_[last_].flags;
  if (is_response) {
    flags |= event.is_final ? kFinal : 0U;
  } else {
    flags |= event.kind == EventKind::kRelease ? kRelease : kEnd;
  }
}

void Packing::add_response(TRITONBACKEND_Response& response) {
  records_[last_].flags |= kResponse;
  bool is_first = true;
  for (TRITONBACKEND_Output& output : response.outputs) {
    if (!is_first) {
      records_.back().flags |= kMoreOutputs;
      records_.push_back({records_[last_].tag, 0, 0, 0, 0});
    }
    is_first = false;
    TRITONPY_Record& record = records_.back();
    record.flags |= kOutput;
    record.kind = kind_of(output, &record.flags);
    record.byte_size = output.byte_size;
    if (record.byte_size <= kMostInline) {
      record.flags |= kInline;
      record.place = bytes_.size();
      const char* data = static_cast<const char*>(output.data);
      bytes_.insert(bytes_.end(), data, data + record.byte_size);
    } else {
      record.place = reinterpret_cast<uint64_t>(output.data);
      output.data = nullptr;  // the driver's from here on
    }
  }
}

uint32_t Packing::kind_of(const TRITONBACKEND_Output& output, uint32_t* flags) {
  std::string key = output.name;
  key.push_back('\0');
  key.push_back(static_cast<char>(output.datatype));
  key.append(reinterpret_cast<const char*>(output.shape.data()), output.shape.size() * sizeof(int64_t));
  const auto [found, is_new] = numbers_.try_emplace(std::move(key), static_cast<uint32_t>(kinds_.size()));
  if (is_new) {
    kinds_.push_back({output.name, output.datatype, output.shape});
    *flags |= kNewKind;
  }
  return found->second;
}

void Packing::describe(uint32_t kind, TRITONPY_SentOutput* output) const {
  const Kind& described = kinds_[kind];
  output->name = described.name.c_str();
  output->datatype = described.datatype;
  output->shape = described.shape.data();
  output->dim_count = static_cast<uint32_t>(described.shape.size());
}

}  // namespace tritonpy
