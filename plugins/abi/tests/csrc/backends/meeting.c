/* A backend for tests that executes one device at a time (DEVICE_BLOCKING), and answers with the number of
 * executions that it has seen at once. Each waits for another one: as many milliseconds as its input says. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "tritonpy/backend.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the next two */
static int here_count, leaving_count;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend) {
  return TRITONBACKEND_BackendSetExecutionPolicy(backend, TRITONBACKEND_EXECUTION_DEVICE_BLOCKING);
}

/* How many are here when another one comes, or the time is over. */
static int32_t meet(int32_t patience_ms) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += patience_ms / 1000;
  until.tv_nsec += patience_ms % 1000 * 1000000;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec += 1;
    until.tv_nsec -= 1000000000;
  }
  pthread_mutex_lock(&mutex);
  here_count += 1;
  pthread_cond_broadcast(&changed);
  while (here_count < 2 && pthread_cond_timedwait(&changed, &mutex, &until) == 0) {
  }
  const int32_t seen = here_count;
  leaving_count += 1;
  /* Who has met another one leaves after it has seen this one, too. */
  pthread_cond_broadcast(&changed);
  while (seen >= 2 && leaving_count % 2 != 0) pthread_cond_wait(&changed, &mutex);
  here_count -= 1;
  if (here_count == 0) leaving_count = 0;
  pthread_mutex_unlock(&mutex);
  return seen;
}

TRITONSERVER_Error *TRITONBACKEND_ModelInstanceExecute(
    TRITONBACKEND_ModelInstance *instance, TRITONBACKEND_Request **requests, const uint32_t request_count) {
  const int64_t shape[] = {1};
  (void)instance;
  for (uint32_t index = 0; index < request_count; ++index) {
    TRITONBACKEND_Input *input;
    const void *data;
    uint64_t size;
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    int32_t number;
    CHECK(TRITONBACKEND_RequestInputByIndex(requests[index], 0, &input));
    CHECK(TRITONBACKEND_InputBuffer(input, 0, &data, &size, &type, &id));
    memcpy(&number, data, sizeof(number));
    number = meet(number);
    TRITONBACKEND_Response *response;
    TRITONBACKEND_Output *output;
    void *buffer;
    CHECK(TRITONBACKEND_ResponseNew(&response, requests[index]));
    CHECK(TRITONBACKEND_ResponseOutput(response, &output, "OUTPUT0", TRITONSERVER_TYPE_INT32, shape, 1));
    CHECK(TRITONBACKEND_OutputBuffer(output, &buffer, sizeof(number), &type, &id));
    memcpy(buffer, &number, sizeof(number));
    CHECK(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, NULL));
    CHECK(TRITONBACKEND_RequestRelease(requests[index], TRITONSERVER_REQUEST_RELEASE_ALL));
  }
  return NULL;
}
