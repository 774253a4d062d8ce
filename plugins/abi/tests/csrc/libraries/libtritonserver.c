/* What strategies are linked with where no server is at hand, as Triton's own build does it: its name, and
 * nothing behind its functions. A server that loads such a strategy has a library of this name already. */
#include "tritonpy/batching.h"

TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *message) {
  (void)code;
  (void)message;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_RequestInputCount(TRITONBACKEND_Request *request, uint32_t *count) {
  (void)request;
  (void)count;
  return NULL;
}
