/* Writes the order in which it is called to the file that the parameter JOURNAL of its model names: a line
 * for each call, with the number of the batch and, for a request, its id and whether it joins. A batch has room
 * for as many requests as the parameter ROOM says. */
#include <stdio.h>
#include <stdlib.h>

#include "tritonpy/batching.h"
#include "tritonpy/parameters.h"

struct TRITONBACKEND_Batcher {
  FILE *journal;
  int room;
  int batch_count;
};

typedef struct {
  TRITONBACKEND_Batcher *batcher;
  int number;
  int left;
} Batch;

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  char path[512] = "", room[16] = "1000000";
  TRITONSERVER_Error *error = tritonpy_model_parameter(model, "JOURNAL", path, sizeof path);
  if (error == NULL) {
    error = tritonpy_model_parameter(model, "ROOM", room, sizeof room);
  }
  if (error != NULL) {
    return error;
  }
  FILE *journal = fopen(path, "a");
  if (journal == NULL) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "JOURNAL cannot be opened");
  }
  setvbuf(journal, NULL, _IOLBF, 0);
  *batcher = calloc(1, sizeof **batcher);
  (*batcher)->journal = journal;
  (*batcher)->room = atoi(room);
  fputs("batcher initialize\n", journal);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  fputs("batcher finalize\n", batcher->journal);
  fclose(batcher->journal);
  free(batcher);
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  Batch *batch = malloc(sizeof *batch);
  batch->batcher = (TRITONBACKEND_Batcher *)batcher;
  batch->number = ++batch->batcher->batch_count;
  batch->left = batcher->room;
  fprintf(batcher->journal, "%d initialize\n", batch->number);
  *userp = batch;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  Batch *batch = userp;
  const char *id = "";
  TRITONSERVER_Error *error = TRITONBACKEND_RequestId(request, &id);
  if (error != NULL) {
    return error;
  }
  *should_include = batch->left > 0;
  batch->left -= *should_include;
  fprintf(batch->batcher->journal, "%d include %s %s\n", batch->number, id, *should_include ? "yes" : "no");
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  Batch *batch = userp;
  fprintf(batch->batcher->journal, "%d finalize\n", batch->number);
  free(batch);
  return NULL;
}
