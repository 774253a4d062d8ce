/* What backends for tests share. */
#pragma once

#include "tritonpy/core.h"

/* Go on if a call succeeds, and else return its error. */
#define CHECK(call)                       \
  do {                                    \
    TRITONSERVER_Error *failure = (call); \
    if (failure != NULL) return failure;  \
  } while (0)
