/* A strategy that lacks the functions whose macros are not given: -DWITH_1 to -DWITH_5, in the order of the
 * header. */
#include "tritonpy/batching.h"

/* Shared objects need not be empty to define nothing that anybody asks for. */
TRITONPY_EXPORT int nobody_asks_for_this = 1;

/* With -DCALLS_NOBODY it is a library that cannot be opened. */
#ifdef CALLS_NOBODY
void nobody_defines_this(void);
TRITONPY_EXPORT void calls_nobody(void) { nobody_defines_this(); }
#endif

#ifdef WITH_1
TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  (void)batcher;
  (void)model;
  return NULL;
}
#endif

#ifdef WITH_2
TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  (void)batcher;
  return NULL;
}
#endif

#ifdef WITH_3
TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  (void)batcher;
  (void)userp;
  return NULL;
}
#endif

#ifdef WITH_4
TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  (void)request;
  (void)userp;
  *should_include = true;
  return NULL;
}
#endif

#ifdef WITH_5
TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  (void)userp;
  return NULL;
}
#endif
