/* CUDA's driver for tests, as far as memory goes: one device, whose memory is this process's own. What is asked for
 * on a thread without a current context is refused, as the real one does. */

#include <stddef.h>
#include <stdlib.h>

enum { DONE = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, NO_CONTEXT = 201 };

static const size_t kMost = (size_t)1 << 30;

static _Thread_local int depth;
static int allocated_count; /* tests ask from one thread */

/* For tests: contexts that are left behind on this thread, and allocations that are not freed. */
int fake_depth(void) { return depth; }
int fake_allocated(void) { return allocated_count; }

int cuInit(unsigned flags) { return flags == 0 ? DONE : INVALID_VALUE; }

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? DONE : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
  static int primary;
  *context = &primary;
  return device == 0 ? DONE : INVALID_DEVICE;
}

int cuCtxPushCurrent_v2(void *context) {
  ++depth;
  return context == NULL ? INVALID_VALUE : DONE;
}

int cuCtxPopCurrent_v2(void **context) {
  *context = NULL;
  return --depth < 0 ? INVALID_VALUE : DONE;
}

static int allocate(void **buffer, size_t size) {
  if (depth == 0) return NO_CONTEXT;
  if (size == 0) return INVALID_VALUE;
  if (size > kMost) return OUT_OF_MEMORY;
  ++allocated_count;
  *buffer = malloc(size);
  return DONE;
}

static int release(void *buffer) {
  if (depth == 0) return NO_CONTEXT;
  --allocated_count;
  free(buffer);
  return DONE;
}

int cuMemAlloc_v2(unsigned long long *address, size_t size) {
  void *buffer = NULL;
  const int result = allocate(&buffer, size);
  *address = (unsigned long long)(size_t)buffer;
  return result;
}

int cuMemFree_v2(unsigned long long address) { return release((void *)(size_t)address); }

int cuMemHostAlloc(void **buffer, size_t size, unsigned flags) {
  return flags == 1 ? allocate(buffer, size) : INVALID_VALUE;
}

int cuMemFreeHost(void *buffer) { return release(buffer); }

int cuGetErrorString(int result, const char **text) {
  *text = result == OUT_OF_MEMORY ? "out of memory" : result == INVALID_DEVICE ? "invalid device ordinal" : NULL;
  return *text == NULL ? INVALID_VALUE : DONE;
}
