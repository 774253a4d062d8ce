// Life of a backend, its models and their instances, as the driver leads it.

#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/objects.h"
#include "calls/calls.h"
#include "guard.h"

using tritonpy::Event;
using tritonpy::Events;
using tritonpy::EventKind;
using tritonpy::guarded;
using tritonpy::ReplyHold;

namespace {

template <typename Handle>
using Step = TRITONSERVER_Error* (*)(Handle*);

struct Functions {
  explicit Functions(void* const* found)
      : initialize(reinterpret_cast<Step<TRITONBACKEND_Backend>>(found[0])),
        finalize(reinterpret_cast<Step<TRITONBACKEND_Backend>>(found[1])),
        model_initialize(reinterpret_cast<Step<TRITONBACKEND_Model>>(found[2])),
        model_finalize(reinterpret_cast<Step<TRITONBACKEND_Model>>(found[3])),
        instance_initialize(reinterpret_cast<Step<TRITONBACKEND_ModelInstance>>(found[4])),
        instance_finalize(reinterpret_cast<Step<TRITONBACKEND_ModelInstance>>(found[5])),
        execute(reinterpret_cast<decltype(&TRITONBACKEND_ModelInstanceExecute)>(found[6])),
        instance_ready(reinterpret_cast<Step<TRITONBACKEND_ModelInstance>>(found[7])) {}

  const Step<TRITONBACKEND_Backend> initialize;
  const Step<TRITONBACKEND_Backend> finalize;
  const Step<TRITONBACKEND_Model> model_initialize;
  const Step<TRITONBACKEND_Model> model_finalize;
  const Step<TRITONBACKEND_ModelInstance> instance_initialize;
  const Step<TRITONBACKEND_ModelInstance> instance_finalize;
  decltype(&TRITONBACKEND_ModelInstanceExecute) const execute;
  const Step<TRITONBACKEND_ModelInstance> instance_ready;
};

// A backend with its library; strategies have one without.
struct OpenBackend : TRITONBACKEND_Backend {
  OpenBackend(void* const* found, TRITONBACKEND_Backend described)
      : TRITONBACKEND_Backend(std::move(described)), functions(found) {}

  const Functions functions;
};

const Functions& functions_of(const TRITONBACKEND_Backend* backend) {
  return static_cast<const OpenBackend*>(backend)->functions;
}

// Calls a function that a library need not have.
template <typename Handle>
TRITONSERVER_Error* call(const char* name, Step<Handle> step, Handle* handle) {
  return step == nullptr ? nullptr : guarded(name, [&] { return step(handle); });
}


void describe(TRITONBACKEND_Response& response, TRITONPY_Event* to) {
  for (TRITONBACKEND_Output& output : response.outputs) {
    response.sent_outputs.push_back(
        {output.name.c_str(), output.shape.data(), output.data, output.byte_size,
         static_cast<uint32_t>(output.shape.size()), output.datatype});
    output.data = nullptr;  // the driver's from here on
  }
  for (const TRITONSERVER_Parameter& parameter : response.parameters) {
    response.sent_parameters.push_back(
        {parameter.name.c_str(), parameter.type, parameter.text.c_str(), parameter.integer, parameter.number,
         parameter.boolean});
  }
  to->has_response = true;
  to->has_error = response.has_error;
  to->error_code = response.error_code;
  to->error = response.error.c_str();
  to->outputs = response.sent_outputs.data();
  to->output_count = static_cast<uint32_t>(response.sent_outputs.size());
  to->parameters = response.sent_parameters.data();
  to->parameter_count = static_cast<uint32_t>(response.sent_parameters.size());
}

}  // namespace

TRITONSERVER_Error* TRITONPY_BackendOpen(
    void* const* functions, const char* name, const char* location, const char* config,
    TRITONBACKEND_Backend** backend) {
  auto opened = std::make_unique<OpenBackend>(functions, TRITONBACKEND_Backend{name, location, {config}});
  TRITONBACKEND_Backend* handle = opened.get();
  if (auto* error = call("TRITONBACKEND_Initialize", opened->functions.initialize, handle)) {
    return error;
  }
  *backend = opened.release();
  return nullptr;
}

TRITONSERVER_Error* TRITONPY_BackendClose(TRITONBACKEND_Backend* backend) {
  const std::unique_ptr<OpenBackend> closed(static_cast<OpenBackend*>(backend));
  return call("TRITONBACKEND_Finalize", closed->functions.finalize, backend);
}

TRITONSERVER_Error* TRITONPY_ModelOpen(
    TRITONBACKEND_Backend* backend, const TRITONPY_Model* described, TRITONSERVER_Server* server,
    TRITONPY_ServedModel** model) {
  auto opened = std::make_unique<TRITONPY_ServedModel>(TRITONBACKEND_Model{
      described->name, described->version, described->location, described->config, described->completes_config,
      backend});
  TRITONBACKEND_Model* handle = opened.get();
  opened->is_initializing = true;
  opened->server = server;
  if (auto* error = call("TRITONBACKEND_ModelInitialize", functions_of(backend).model_initialize, handle)) {
    return error;
  }
  opened->is_initializing = false;
  *model = opened.release();
  return nullptr;
}

const char* TRITONPY_ModelCompleted(TRITONPY_ServedModel* model) {
  return model->is_completed ? model->config.c_str() : nullptr;
}

void TRITONPY_ModelSettle(
    TRITONPY_ServedModel* model, const char* config, bool is_decoupled, const TRITONPY_State* states,
    uint32_t state_count) {
  model->config = config;
  auto specs = std::make_shared<tritonpy::StateSpecs>();
  specs->model_name = model->name;
  for (uint32_t index = 0; index < state_count; ++index) {
    const TRITONPY_State& state = states[index];
    specs->all.push_back(
        {state.input_name, state.output_name, {state.shape, state.shape + state.dim_count},
         static_cast<TRITONSERVER_DataType>(state.datatype), state.keeps_content});
  }
  model->states = std::move(specs);
  model->queue.events->leave_at_once(is_decoupled);
}

TRITONSERVER_Error* TRITONPY_ModelFinalize(TRITONPY_ServedModel* model) {
  TRITONBACKEND_Model* handle = model;
  return call("TRITONBACKEND_ModelFinalize", functions_of(model->backend).model_finalize, handle);
}

void TRITONPY_ModelEnd(TRITONPY_ServedModel* model) {
  model->queue.events->close();
  delete model;
}

TRITONSERVER_Error* TRITONPY_InstanceOpen(
    TRITONPY_ServedModel* model, const TRITONPY_Instance* described, TRITONBACKEND_ModelInstance** instance) {
  const auto kind = static_cast<TRITONSERVER_InstanceGroupKind>(described->kind);
  auto opened = std::make_unique<TRITONBACKEND_ModelInstance>(
      TRITONBACKEND_ModelInstance{model, described->name, kind, described->device_id, {described->policy}});
  for (uint32_t index = 0; index < described->secondary_device_count; ++index) {
    const TRITONPY_SecondaryDevice& device = described->secondary_devices[index];
    opened->secondary_devices.emplace_back(device.kind, device.id);
  }
  opened->events = model->queue.events;
  opened->profiles.assign(described->profiles, described->profiles + described->profile_count);
  const bool is_device_blocking = model->backend->execution_policy == TRITONBACKEND_EXECUTION_DEVICE_BLOCKING;
  if (is_device_blocking && kind == TRITONSERVER_INSTANCEGROUPKIND_GPU) {
    opened->device_turn = model->device_turns.of(described->device_id);
  }
  const auto initialize = functions_of(model->backend).instance_initialize;
  if (auto* error = call("TRITONBACKEND_ModelInstanceInitialize", initialize, opened.get())) {
    return error;
  }
  *instance = opened.release();
  return nullptr;
}

TRITONSERVER_Error* TRITONPY_InstanceClose(TRITONBACKEND_ModelInstance* instance) {
  const std::unique_ptr<TRITONBACKEND_ModelInstance> closed(instance);
  const auto finalize = functions_of(instance->model->backend).instance_finalize;
  return call("TRITONBACKEND_ModelInstanceFinalize", finalize, instance);
}

TRITONSERVER_Error* TRITONPY_InstanceExecute(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* const* requests, const uint64_t* tags,
    uint32_t count) {
  const std::shared_ptr<Events> events = instance->events;
  const std::shared_ptr<const tritonpy::StateSpecs> states = instance->model->states;
  instance->compute_start_ns = instance->compute_end_ns = 0;
  std::vector<TRITONBACKEND_Request*> given(requests, requests + count);  // may be written to
  for (uint32_t index = 0; index < count; ++index) {
    requests[index]->reply =
        new ReplyHold(std::make_shared<tritonpy::Reply>(events, states, tags[index], requests[index]->cancel_flag));
    if (const TRITONPY_Trace* trace = requests[index]->trace) {
      tritonpy::Reply* reply = tritonpy::reply_of(requests[index])->get();
      reply->follow(std::unique_ptr<TRITONSERVER_InferenceTrace>(new TRITONSERVER_InferenceTrace{
          reply, trace->id, trace->parent_id, trace->model_version, trace->model_name, trace->request_id,
          trace->context}));
    }
  }
  std::unique_lock<std::mutex> turn;
  if (instance->device_turn != nullptr) {
    turn = std::unique_lock<std::mutex>(*instance->device_turn);
  }
  const Events::Execution execution(events.get(), count);
  const tritonpy::Executing executing(instance->name.c_str());
  TRITONSERVER_Error* error = guarded("TRITONBACKEND_ModelInstanceExecute", [&] {
    return functions_of(instance->model->backend).execute(instance, given.data(), count);
  });
  if (error != nullptr) {
    for (uint32_t index = 0; index < count; ++index) {
      if (requests[index]->reply != nullptr) {  // still the server's, as its error says
        (*tritonpy::reply_of(requests[index]))->close();
        TRITONSERVER_ErrorDelete(
            TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
      }
    }
  }
  return error;
}

TRITONSERVER_Error* TRITONPY_InstanceReady(TRITONBACKEND_ModelInstance* instance) {
  const auto ready = functions_of(instance->model->backend).instance_ready;
  return call("TRITONBACKEND_ModelInstanceReady", ready, instance);
}

void TRITONPY_InstanceTimes(TRITONBACKEND_ModelInstance* instance, uint64_t* start_ns, uint64_t* end_ns) {
  *start_ns = instance->compute_start_ns;
  *end_ns = instance->compute_end_ns;
}

TRITONPY_Events* TRITONPY_ModelEvents(TRITONPY_ServedModel* model) { return &model->queue; }

bool TRITONPY_EventsWait(TRITONPY_Events* queue) {
  const std::shared_ptr<Events> events = queue->events;
  return events->wait();
}

void TRITONPY_EventsStop(TRITONPY_Events* queue) { queue->events->stop(); }

void TRITONPY_EventsHold(TRITONPY_Events* queue, uint64_t tag, bool is_held) { queue->events->hold(tag, is_held); }

void TRITONPY_EventsPack(TRITONPY_Events* queue, TRITONPY_Records* records) {
  queue->packing.take(queue->events.get(), records);
}

void TRITONPY_OutputKind(TRITONPY_Events* queue, uint32_t kind, TRITONPY_SentOutput* output) {
  queue->packing.describe(kind, output);
}

bool TRITONPY_EventsTake(TRITONPY_Events* queue, TRITONPY_Event* event) {
  Event taken{};
  if (!queue->events->take(&taken)) {
    return false;
  }
  *event = TRITONPY_Event{};
  event->tag = taken.tag;
  event->kind = static_cast<int>(taken.kind);
  event->is_final = taken.is_final;
  event->time_ns = taken.time_ns;
  if (taken.response != nullptr) {
    describe(*taken.response, event);
    event->response = taken.response.release();
  }
  return true;
}

void TRITONPY_EventEnd(TRITONPY_Event* event) {
  delete event->response;
  event->response = nullptr;
}

void TRITONPY_DataEnd(void* data) { std::free(data); }
