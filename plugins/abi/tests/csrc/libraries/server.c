/* Stands for a library of Triton's: it has one of its functions, and another meaning of it. */
#include "tritonpy/core.h"

TRITONSERVER_Error *TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char *message) {
  (void)code;
  (void)message;
  return NULL;
}
