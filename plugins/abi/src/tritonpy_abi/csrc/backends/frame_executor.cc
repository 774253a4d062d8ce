// An instance in a worker while it executes: batches come from the server's socket, and answers go there.

#include <algorithm>
#include <atomic>
#include <memory>

#include "backends/execute_timed.h"
#include "backends/frame_channel.h"
#include "backends/frames.h"
#include "backends/objects.h"

using tritonpy::Event;
using tritonpy::EventKind;
using tritonpy::FrameBatch;

struct TRITONPY_FrameBatch {
  std::unique_ptr<FrameBatch> batch;
};

namespace {

// What has become of the requests of a batch, if each was answered, with one response, and released.
class Outcome {
 public:
  Outcome(uint64_t first_tag, size_t count, uint64_t inline_byte_size)
      : first_tag_(first_tag), inline_byte_size_(inline_byte_size), requests_(count) {}

  // Takes all events of a queue, or none where the driver has to see them.
  bool take(tritonpy::Events* events) {
    const auto is_usual = [this](const std::deque<Event>& all) {
      const auto is_over = [](const Request& each) {
        return each.response != nullptr && each.is_final && each.is_released && each.is_over;
      };
      return std::all_of(all.begin(), all.end(), [this](const Event& event) { return note(event); }) &&
             std::all_of(requests_.begin(), requests_.end(), is_over);
    };
    return events->take_all_if(is_usual, &taken_);
  }

  void write(const TRITONPY_Executed& execution, tritonpy::FrameWriter* frame) const {
    frame->tuple(6);
    frame->integer(tritonpy::kExecutedFrame);
    frame->tuple(0);
    frame->integer(static_cast<int64_t>(execution.batch));
    frame->tuple(4);
    for (const uint64_t time : {execution.start_ns, execution.compute_start_ns, execution.compute_end_ns, execution.end_ns}) {
      frame->integer(static_cast<int64_t>(time));
    }
    frame->list(requests_.size());
    for (const Request& each : requests_) {
      write(*each.response, frame);
    }
    frame->none();
  }

 private:
  struct Request {
    const TRITONBACKEND_Response* response = nullptr;
    bool is_final = false;
    bool is_released = false;
    bool is_over = false;
  };

  // False for what a frame of a usual answer does not say.
  bool note(const Event& event) {
    if (event.tag < first_tag_ || event.tag - first_tag_ >= requests_.size()) {
      return false;
    }
    Request& request = requests_[event.tag - first_tag_];
    switch (event.kind) {
      case EventKind::kResponse:
        request.is_final = request.is_final || event.is_final;
        if (event.response == nullptr) {
          return true;
        }
        if (request.response != nullptr || !is_plain(*event.response)) {
          return false;
        }
        request.response = event.response.get();
        return true;
      case EventKind::kRelease:
        return request.is_released = true;
      case EventKind::kEnd:
        return request.is_over = true;
      default:
        return false;
    }
  }

  bool is_plain(const TRITONBACKEND_Response& response) const {
    const auto is_small = [this](const TRITONBACKEND_Output& output) {
      return output.byte_size <= inline_byte_size_ && is_whole(output) && tritonpy::is_utf8(output.name);
    };
    return !response.has_error && response.parameters.empty() &&
           std::all_of(response.outputs.begin(), response.outputs.end(), is_small);
  }

  // Whether the bytes are those of its elements.
  static bool is_whole(const TRITONBACKEND_Output& output) {
    uint64_t byte_size = TRITONSERVER_DataTypeByteSize(output.datatype);
    if (byte_size == 0) {
      return true;  // as many as they need
    }
    for (const int64_t dim : output.shape) {
      if (__builtin_mul_overflow(byte_size, static_cast<uint64_t>(dim), &byte_size)) {
        return false;
      }
    }
    return byte_size == output.byte_size;
  }

  static void write(const TRITONBACKEND_Response& response, tritonpy::FrameWriter* frame) {
    frame->tuple(3);
    frame->list(response.outputs.size());
    for (const TRITONBACKEND_Output& output : response.outputs) {
      frame->tuple(4);
      frame->text(output.name);
      frame->text(TRITONSERVER_DataTypeString(output.datatype));
      frame->tuple(output.shape.size());
      for (const int64_t dim : output.shape) {
        frame->integer(dim);
      }
      frame->bytes(output.data, output.byte_size);
    }
    frame->none();
    frame->none();
  }

  const uint64_t first_tag_;
  const uint64_t inline_byte_size_;
  std::vector<Request> requests_;
  std::deque<Event> taken_;
};

}  // namespace

struct TRITONPY_FrameExecutor {
  TRITONPY_FrameExecutor(TRITONBACKEND_ModelInstance* executing, const TRITONPY_FrameChannel& described)
      : instance(executing), channel(described.descriptor, {described.received, described.received_byte_size}),
        cancel_flags{described.cancel_flags, described.cancel_flag_count}, outputs(described.outputs, described.outputs + described.output_count),
        inline_byte_size(described.inline_byte_size), news(described.news, described.news + described.news_count) {}

  // True where the server has the answers; otherwise what there is of them is left in the queue.
  bool execute(const FrameBatch& batch, TRITONPY_NextFrame* next);
  bool has_news() const;

  TRITONBACKEND_ModelInstance* const instance;
  tritonpy::FrameChannel channel;
  const tritonpy::CancelFlags cancel_flags;
  const std::vector<std::string> outputs;
  const uint64_t inline_byte_size;
  const std::vector<const bool*> news;
  TRITONPY_Events queue{std::make_shared<tritonpy::Events>()};
  std::atomic<uint64_t> running{0};
  std::string frame;
  std::string reply;
  uint64_t tag = 1;
  bool is_at_rest = false;
};

bool TRITONPY_FrameExecutor::has_news() const {
  return std::any_of(news.begin(), news.end(), [](const bool* each) { return __atomic_load_n(each, __ATOMIC_ACQUIRE); });
}

bool TRITONPY_FrameExecutor::execute(const FrameBatch& batch, TRITONPY_NextFrame* next) {
  const size_t count = batch.requests().size();
  std::vector<uint64_t> tags(count);
  next->first_tag = tag;
  for (uint64_t& each : tags) {
    each = tag++;
  }
  running = batch.number();
  const std::shared_ptr<tritonpy::Events> outside = instance->events;
  instance->events = queue.events;
  next->execution = tritonpy::execute_timed(instance, batch.number(), batch.requests(), tags);
  instance->events = outside;
  running = 0;
  if (next->execution.error != nullptr || next->execution.reports_memory != 0 || has_news()) {
    return false;
  }
  Outcome outcome(next->first_tag, count, inline_byte_size);
  if (!outcome.take(queue.events.get())) {
    return false;
  }
  tritonpy::FrameWriter answer;
  outcome.write(next->execution, &answer);
  const std::string& bytes = answer.end();
  channel.write(bytes.data(), bytes.size());  // a server that is gone has closed the channel: that is seen next
  return true;
}

TRITONPY_FrameExecutor* TRITONPY_FrameExecutorNew(
    TRITONBACKEND_ModelInstance* instance, const TRITONPY_FrameChannel* channel) {
  return new TRITONPY_FrameExecutor(instance, *channel);
}

bool TRITONPY_FrameExecutorNext(TRITONPY_FrameExecutor* executor, TRITONPY_NextFrame* next) {
  *next = TRITONPY_NextFrame{};
  while (executor->channel.next_command(&executor->frame)) {
    std::unique_ptr<FrameBatch> batch;
    if (!executor->is_at_rest) {
      batch = FrameBatch::read(executor->frame, executor->outputs, executor->cancel_flags);
    }
    if (batch != nullptr && executor->execute(*batch, next)) {
      continue;
    }
    if (batch != nullptr) {
      executor->frame = batch->frame();  // requests point into theirs
      next->executed = new TRITONPY_FrameBatch{std::move(batch)};
    }
    next->frame = executor->frame.data();
    next->byte_size = executor->frame.size();
    return true;
  }
  return false;
}

TRITONPY_Events* TRITONPY_FrameExecutorEvents(TRITONPY_FrameExecutor* executor) { return &executor->queue; }

uint64_t TRITONPY_FrameExecutorRunning(TRITONPY_FrameExecutor* executor) { return executor->running; }

void TRITONPY_FrameExecutorRest(TRITONPY_FrameExecutor* executor) { executor->is_at_rest = true; }

bool TRITONPY_FrameExecutorReply(TRITONPY_FrameExecutor* executor, TRITONPY_NextFrame* next) {
  *next = TRITONPY_NextFrame{};
  if (!executor->channel.next_reply(&executor->reply)) {
    return false;
  }
  next->frame = executor->reply.data();
  next->byte_size = executor->reply.size();
  return true;
}

bool TRITONPY_FrameExecutorWrite(TRITONPY_FrameExecutor* executor, const char* frame, uint64_t byte_size) {
  return executor->channel.write(frame, byte_size);
}

void TRITONPY_FrameExecutorEnd(TRITONPY_FrameExecutor* executor) {
  executor->queue.events->close();
  delete executor;
}

void TRITONPY_FrameBatchEnd(TRITONPY_FrameBatch* batch) { delete batch; }
