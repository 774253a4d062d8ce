/* A library to be opened. ANSWER tells its builds apart; MISSING is a function that nobody has. */
#include "tritonpy/core.h"

#ifndef ANSWER
#define ANSWER 1
#endif

TRITONPY_EXPORT int answer(void);
TRITONPY_EXPORT TRITONSERVER_Error *fail(void);

int answer(void) { return ANSWER; }

#ifdef MISSING
void MISSING(void);
#endif

TRITONSERVER_Error *fail(void) {
#ifdef MISSING
  MISSING();
#endif
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "the library's own words");
}
