// In a file of its own: only this object changes with every source.

#include "api.h"

const char* TRITONPY_Sources(void) {
  return
#include "digest.inc"
      ;
}
