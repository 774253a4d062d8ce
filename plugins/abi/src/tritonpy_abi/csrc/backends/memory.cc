// CUDA's driver is looked for when memory of its kinds is first asked for: nothing here is linked with it.

#include "backends/memory.h"

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <string>

namespace {

// The part of the driver's API that is used; its types are plain integers and pointers.
using Result = int;
using Device = int;
using Context = void*;
using Address = unsigned long long;

constexpr const char* kDriver = "libcuda.so.1";

struct Driver {
  Result (*init)(unsigned flags);
  Result (*device_get)(Device* device, int ordinal);
  Result (*context_retain)(Context* context, Device device);
  Result (*context_push)(Context context);
  Result (*context_pop)(Context* context);
  Result (*allocate)(Address* address, size_t byte_size);
  Result (*release)(Address address);
  Result (*allocate_host)(void** buffer, size_t byte_size, unsigned flags);
  Result (*release_host)(void* buffer);
  Result (*error_string)(Result result, const char** text);
};

template <typename Function>
bool find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

// NULL where there is no driver, or no device for it.
const Driver* open_driver() {
  void* handle = dlopen(kDriver, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return nullptr;
  }
  static Driver driver;
  const bool is_whole =
      find(handle, "cuInit", &driver.init) && find(handle, "cuDeviceGet", &driver.device_get) &&
      find(handle, "cuDevicePrimaryCtxRetain", &driver.context_retain) &&
      find(handle, "cuCtxPushCurrent_v2", &driver.context_push) &&
      find(handle, "cuCtxPopCurrent_v2", &driver.context_pop) &&
      find(handle, "cuMemAlloc_v2", &driver.allocate) && find(handle, "cuMemFree_v2", &driver.release) &&
      find(handle, "cuMemHostAlloc", &driver.allocate_host) &&
      find(handle, "cuMemFreeHost", &driver.release_host) &&
      find(handle, "cuGetErrorString", &driver.error_string);
  return is_whole && driver.init(0) == 0 ? &driver : nullptr;
}

const Driver* driver() {
  static const Driver* const opened = open_driver();
  return opened;
}

TRITONSERVER_Error* failed(const char* what, Result result) {
  const char* text = nullptr;
  driver()->error_string(result, &text);
  const std::string whole = std::string(what) + ": " + (text == nullptr ? "unknown error" : text);
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, whole.c_str());
}

// While this lives, its device is the one of this thread. The primary context is the one that frameworks use; it
// is kept until the process ends, as theirs is.
class Current {
 public:
  explicit Current(int64_t device_id) {
    Device device = 0;
    Context context = nullptr;
    result_ = driver()->device_get(&device, static_cast<int>(device_id));
    if (result_ == 0) {
      result_ = driver()->context_retain(&context, device);
    }
    if (result_ == 0) {
      result_ = driver()->context_push(context);
    }
  }
  ~Current() {
    Context popped = nullptr;
    if (result_ == 0) {
      driver()->context_pop(&popped);
    }
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  Result result() const { return result_; }

 private:
  Result result_;
};

template <typename Call>
TRITONSERVER_Error* on_device(int64_t device_id, const char* what, Call&& call) {
  const Current current(device_id);
  const Result result = current.result() != 0 ? current.result() : call();
  return result == 0 ? nullptr : failed(what, result);
}

TRITONSERVER_Error* unknown_type(TRITONSERVER_MemoryType type) {
  return tritonpy::invalid("unknown memory type " + std::to_string(static_cast<int>(type)));
}

}  // namespace

TRITONSERVER_Error* tritonpy::allocate(
    TRITONSERVER_MemoryType type, int64_t device_id, uint64_t byte_size, void** buffer) {
  *buffer = nullptr;
  const size_t wanted = byte_size == 0 ? 1 : byte_size;
  switch (type) {
    case TRITONSERVER_MEMORY_CPU:
      *buffer = std::malloc(wanted);
      return *buffer != nullptr
                 ? nullptr
                 : TRITONSERVER_ErrorNew(
                       TRITONSERVER_ERROR_UNAVAILABLE,
                       ("CPU memory allocation failed: " + std::to_string(byte_size) + " bytes").c_str());
    case TRITONSERVER_MEMORY_CPU_PINNED:
      if (driver() == nullptr) {
        return TRITONSERVER_ErrorNew(
            TRITONSERVER_ERROR_INTERNAL, "failed to allocate pinned system memory: no pinned memory pool");
      }
      return on_device(0, "failed to allocate pinned system memory", [&] {
        constexpr unsigned kPortable = 1;  // pinned for all devices
        return driver()->allocate_host(buffer, wanted, kPortable);
      });
    case TRITONSERVER_MEMORY_GPU: {
      if (driver() == nullptr) {
        return TRITONSERVER_ErrorNew(
            TRITONSERVER_ERROR_UNAVAILABLE, "CudaMemoryManager has no preallocated CUDA memory");
      }
      Address address = 0;
      TRITONSERVER_Error* error = on_device(
          device_id, "Failed to allocate CUDA memory", [&] { return driver()->allocate(&address, wanted); });
      *buffer = reinterpret_cast<void*>(address);
      return error;
    }
  }
  return unknown_type(type);
}

TRITONSERVER_Error* tritonpy::release(TRITONSERVER_MemoryType type, int64_t device_id, void* buffer) {
  if (buffer == nullptr && type >= TRITONSERVER_MEMORY_CPU && type <= TRITONSERVER_MEMORY_GPU) {
    return nullptr;
  }
  switch (type) {
    case TRITONSERVER_MEMORY_CPU:
      std::free(buffer);
      return nullptr;
    case TRITONSERVER_MEMORY_CPU_PINNED:
      if (driver() == nullptr) {
        return tritonpy::invalid("there is no pinned memory here that could be freed");
      }
      return on_device(
          0, "failed to deallocate pinned system memory", [&] { return driver()->release_host(buffer); });
    case TRITONSERVER_MEMORY_GPU:
      if (driver() == nullptr) {
        return tritonpy::invalid("there is no memory of a GPU here that could be freed");
      }
      return on_device(device_id, "Failed to deallocate CUDA memory", [&] {
        return driver()->release(reinterpret_cast<Address>(buffer));
      });
  }
  return unknown_type(type);
}
