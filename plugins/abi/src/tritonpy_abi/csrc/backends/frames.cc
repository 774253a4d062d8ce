#include "backends/frames.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

namespace tritonpy {

namespace {

// marshal's letters, of its version 2.
constexpr char kTuple = '(', kList = '[', kDict = '{', kDictEnd = '0', kInt = 'i', kLong = 'l', kDouble = 'g';
constexpr char kText = 'u', kBytes = 's', kTrue = 'T', kFalse = 'F', kNone = 'N';

constexpr size_t kLengthSize = 4;
constexpr unsigned kDigitBits = 15;  // of a long
constexpr size_t kRequestSize = 9;  // one that is traced has more

constexpr size_t kDataAlignment = 64;  // of cache lines and the widest vectors

uint32_t read_uint32(const char* at) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(at);
  return bytes[0] | static_cast<uint32_t>(bytes[1]) << 8 | static_cast<uint32_t>(bytes[2]) << 16 |
         static_cast<uint32_t>(bytes[3]) << 24;
}

void write_uint32(char* to, uint32_t value) {
  for (size_t index = 0; index < 4; ++index) {
    to[index] = static_cast<char>(value >> (8 * index) & 0xFF);
  }
}

}  // namespace

uint64_t frame_size(std::string_view bytes) {
  return bytes.size() < kLengthSize ? 0 : kLengthSize + uint64_t{read_uint32(bytes.data())};
}

int frame_kind(const std::string& frame) {
  constexpr size_t kAt = kLengthSize + 5;  // behind the letter of the tuple, and how many it has
  const bool is_one = frame.size() >= kAt + 5 && frame[kLengthSize] == kTuple && frame[kAt] == kInt;
  return is_one ? static_cast<int>(read_uint32(frame.data() + kAt + 1)) : 0;
}

// Surrogates, which only Python has, are none.
bool is_utf8(std::string_view text) {
  size_t at = 0;
  const auto byte = [&](size_t index) { return static_cast<unsigned char>(text[index]); };
  while (at < text.size()) {
    const unsigned char first = byte(at);
    const size_t more = first < 0x80 ? 0 : first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if ((first >= 0x80 && first < 0xC2) || first > 0xF4 || at + more >= text.size()) {
      return false;
    }
    for (size_t index = 1; index <= more; ++index) {
      if ((byte(at + index) & 0xC0) != 0x80) {
        return false;
      }
    }
    const unsigned char second = more == 0 ? 0 : byte(at + 1);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90)) {
      return false;
    }
    at += 1 + more;
  }
  return true;
}

void FrameBatch::FreeData::operator()(char* block) const {
  ::operator delete(block, std::align_val_t{kDataAlignment});
}

// Every function is false where something else comes, and then all of the frame is to be read elsewhere.
class FrameBatch::Reader {
 public:
  Reader(FrameBatch* batch, const std::vector<std::string>& every_output, const CancelFlags& cancel_flags)
      : batch_(*batch), every_output_(every_output), cancel_flags_(cancel_flags),
        at_(batch->frame_.data() + kLengthSize), end_(batch->frame_.data() + batch->frame_.size()) {}

  bool read() {
    size_t item_count = 0;
    size_t release_count = 0;
    size_t request_count = 0;
    int64_t kind = 0;
    int64_t number = 0;
    if (!size_of(kTuple, &item_count) || item_count != 4 || !integer(&kind) || kind != kExecuteFrame ||
        !size_of(kTuple, &release_count) || release_count != 0 || !integer(&number) || number < 0 ||
        !size_of(kList, &request_count) || request_count == 0) {
      return false;
    }
    batch_.number_ = static_cast<uint64_t>(number);
    for (size_t index = 0; index < request_count; ++index) {
      if (!request()) {
        return false;
      }
    }
    return at_ == end_;
  }

 private:
  bool request() {
    size_t item_count = 0;
    int64_t slot = 0;
    int64_t flags = 0;
    int64_t timeout_us = 0;
    int64_t priority = 0;
    int64_t number = 0;
    std::string_view id;
    std::string_view correlation;
    if (!size_of(kTuple, &item_count) || item_count != kRequestSize || !integer(&slot) || slot < 0 ||
        static_cast<uint64_t>(slot) >= cancel_flags_.count || !text(&id) || !integer(&flags)) {
      return false;
    }
    const bool has_text = at_ < end_ && *at_ == kText;
    if (!(has_text ? text(&correlation) : integer(&number) && number >= 0) || !integer(&timeout_us) ||
        timeout_us < 0 || !integer(&priority)) {
      return false;
    }
    std::vector<TRITONPY_RequestParameter> given;
    if (!none() && !parameters(&given)) {
      return false;
    }
    std::vector<const char*> wanted;
    size_t input_count = 0;
    if (!outputs(&wanted) || !size_of(kList, &input_count)) {
      return false;
    }
    const size_t size = sizeof(TRITONBACKEND_Request) + input_count * sizeof(TRITONBACKEND_Input);
    if (size > static_cast<size_t>(end_ - at_) * sizeof(TRITONBACKEND_Input)) {
      return false;  // each input has at least a few bytes
    }
    batch_.blocks_.emplace_back(new uint64_t[(size + sizeof(uint64_t) - 1) / sizeof(uint64_t)]());
    auto* const block = reinterpret_cast<TRITONBACKEND_Request*>(batch_.blocks_.back().get());
    block->id = kept(id);
    block->flags = static_cast<uint32_t>(flags);
    block->correlation_text = has_text ? kept(correlation) : nullptr;
    block->correlation_number = static_cast<uint64_t>(number);
    block->timeout_us = static_cast<uint64_t>(timeout_us);
    block->cancel_flag = cancel_flags_.flags + slot;
    batch_.parameters_.push_back(std::move(given));
    block->parameters = batch_.parameters_.back().data();
    block->parameter_count = static_cast<uint32_t>(batch_.parameters_.back().size());
    block->input_count = static_cast<uint32_t>(input_count);
    batch_.wanted_.push_back(std::move(wanted));
    block->outputs = batch_.wanted_.back().data();
    block->output_count = static_cast<uint32_t>(batch_.wanted_.back().size());
    for (uint32_t index = 0; index < input_count; ++index) {
      if (!input(&block->inputs[index])) {
        return false;
      }
      block->inputs[index].index = index;
    }
    batch_.requests_.push_back(block);
    return true;
  }

  bool input(TRITONBACKEND_Input* to) {
    size_t item_count = 0;
    size_t dim_count = 0;
    size_t byte_size = 0;
    std::string_view name;
    std::string_view datatype;
    if (!size_of(kTuple, &item_count) || item_count != 4 || !text(&name) || !text(&datatype) ||
        !size_of(kTuple, &dim_count)) {
      return false;
    }
    std::vector<int64_t> shape(dim_count);
    for (int64_t& dim : shape) {
      if (!integer(&dim)) {
        return false;
      }
    }
    if (!size_of(kBytes, &byte_size)) {  // or it lies in shared memory
      return false;
    }
    to->data = aligned(at_, byte_size);
    to->byte_size = byte_size;
    at_ += byte_size;
    to->name = kept(name);
    to->datatype = TRITONSERVER_StringToDataType(kept(datatype));
    batch_.shapes_.push_back(std::move(shape));
    to->shape = batch_.shapes_.back().data();
    to->dim_count = static_cast<uint32_t>(dim_count);
    to->memory_type = TRITONSERVER_MEMORY_CPU;
    to->descriptor = -1;
    return true;
  }

  bool parameters(std::vector<TRITONPY_RequestParameter>* given) {
    if (!letter(kDict, 0)) {
      return false;
    }
    while (!letter(kDictEnd, 0)) {
      std::string_view name;
      TRITONPY_RequestParameter parameter{};
      if (!text(&name) || !value(&parameter)) {
        return false;
      }
      parameter.name = kept(name);
      given->push_back(parameter);
    }
    return true;
  }

  bool value(TRITONPY_RequestParameter* to) {
    std::string_view chars;
    if (text(&chars)) {
      to->type = TRITONSERVER_PARAMETER_STRING;
      to->text = kept(chars);
      return true;
    }
    if (integer(&to->integer)) {
      to->type = TRITONSERVER_PARAMETER_INT;
      return true;
    }
    if (letter(kDouble, sizeof(to->number))) {
      to->type = TRITONSERVER_PARAMETER_DOUBLE;
      const uint64_t bits = read_uint32(at_) | static_cast<uint64_t>(read_uint32(at_ + 4)) << 32;
      std::memcpy(&to->number, &bits, sizeof(bits));
      at_ += sizeof(bits);
      return true;
    }
    to->type = TRITONSERVER_PARAMETER_BOOL;
    to->boolean = at_ < end_ && *at_ == kTrue;
    return letter(kTrue, 0) || letter(kFalse, 0);
  }

  // The names of the outputs that are wanted, each once and in order.
  bool outputs(std::vector<const char*>* names) {
    if (none()) {
      for (const std::string& name : every_output_) {
        names->push_back(name.c_str());
      }
      return true;
    }
    size_t count = 0;
    if (!size_of(kTuple, &count)) {
      return false;
    }
    std::vector<std::string_view> wanted(count);
    for (std::string_view& name : wanted) {
      if (!text(&name)) {
        return false;
      }
    }
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    for (const std::string_view name : wanted) {
      names->push_back(kept(name));
    }
    return true;
  }

  bool letter(char expected, size_t size) {
    if (static_cast<size_t>(end_ - at_) < 1 + size || *at_ != expected) {
      return false;
    }
    at_ += 1;
    return true;
  }

  // How much there is of it; no more than there are bytes.
  bool size_of(char expected, size_t* count) {
    if (!letter(expected, 4)) {
      return false;
    }
    *count = read_uint32(at_);
    at_ += 4;
    return *count <= static_cast<size_t>(end_ - at_) || broken();
  }

  bool none() { return letter(kNone, 0); }

  bool integer(int64_t* value) {
    if (letter(kInt, 4)) {
      *value = static_cast<int32_t>(read_uint32(at_));
      at_ += 4;
      return true;
    }
    if (!letter(kLong, 4)) {
      return false;
    }
    const auto count = static_cast<int32_t>(read_uint32(at_));
    at_ += 4;
    if (count < 0 || count > 5 || end_ - at_ < 2 * count) {  // negative, or with more than 64 bits
      return broken();
    }
    uint64_t sum = 0;
    for (int32_t index = 0; index < count; ++index) {
      const auto* digit = reinterpret_cast<const unsigned char*>(at_) + 2 * index;
      const uint64_t bits = digit[0] | static_cast<uint64_t>(digit[1]) << 8;
      if (index == 4 && bits > 7) {
        return broken();
      }
      sum |= bits << (kDigitBits * static_cast<unsigned>(index));
    }
    if (sum > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return broken();
    }
    at_ += 2 * count;
    *value = static_cast<int64_t>(sum);
    return true;
  }

  bool text(std::string_view* value) {
    size_t size = 0;
    if (!size_of(kText, &size)) {
      return false;
    }
    *value = std::string_view(at_, size);
    at_ += size;
    return is_utf8(*value) || broken();
  }

  // What has begun as something known does not go on so: nothing else may be found behind it.
  bool broken() {
    at_ = end_;
    return false;
  }

  // Tensors begin anywhere in a frame. Backends read them as what they are, and some by vector instructions.
  const char* aligned(const char* data, size_t byte_size) {
    if (byte_size == 0 || reinterpret_cast<uintptr_t>(data) % kDataAlignment == 0) {
      return data;
    }
    void* const block = ::operator new(byte_size, std::align_val_t{kDataAlignment});
    batch_.data_.emplace_back(static_cast<char*>(block));
    std::memcpy(block, data, byte_size);
    return static_cast<const char*>(block);
  }

  const char* kept(std::string_view text) { return batch_.texts_.emplace_back(text).c_str(); }

  FrameBatch& batch_;
  const std::vector<std::string>& every_output_;
  const CancelFlags& cancel_flags_;
  const char* at_;
  const char* const end_;
};

std::unique_ptr<FrameBatch> FrameBatch::read(
    std::string& frame, const std::vector<std::string>& every_output, const CancelFlags& cancel_flags) {
  if (frame_kind(frame) != kExecuteFrame) {
    return nullptr;
  }
  auto batch = std::make_unique<FrameBatch>();
  batch->frame_.swap(frame);
  if (!Reader(batch.get(), every_output, cancel_flags).read()) {
    batch->frame_.swap(frame);
    return nullptr;
  }
  return batch;
}

FrameWriter::FrameWriter() : frame_(kLengthSize, '\0') {}

void FrameWriter::size(size_t count) {
  frame_.append(kLengthSize, '\0');
  write_uint32(frame_.data() + frame_.size() - kLengthSize, static_cast<uint32_t>(count));
}

void FrameWriter::tuple(size_t count) {
  frame_.push_back(kTuple);
  size(count);
}

void FrameWriter::list(size_t count) {
  frame_.push_back(kList);
  size(count);
}

void FrameWriter::none() { frame_.push_back(kNone); }

void FrameWriter::integer(int64_t value) {
  if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max()) {
    frame_.push_back(kInt);
    size(static_cast<uint32_t>(static_cast<int32_t>(value)));
    return;
  }
  uint64_t rest = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  std::string digits;
  int32_t count = 0;
  for (; rest != 0; rest >>= kDigitBits, ++count) {
    digits.push_back(static_cast<char>(rest & 0xFF));
    digits.push_back(static_cast<char>(rest >> 8 & 0x7F));
  }
  frame_.push_back(kLong);
  size(static_cast<uint32_t>(value < 0 ? -count : count));
  frame_ += digits;
}

void FrameWriter::text(std::string_view value) {
  frame_.push_back(kText);
  size(value.size());
  frame_ += value;
}

void FrameWriter::bytes(const void* data, size_t byte_size) {
  frame_.push_back(kBytes);
  size(byte_size);
  if (byte_size != 0) {
    frame_.append(static_cast<const char*>(data), byte_size);
  }
}

const std::string& FrameWriter::end() {
  write_uint32(frame_.data(), static_cast<uint32_t>(frame_.size() - kLengthSize));
  return frame_;
}

}  // namespace tritonpy
