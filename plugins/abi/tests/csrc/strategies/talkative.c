/* A strategy that logs, also from a thread of its own, and counts; the model is a label of its metrics. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tritonpy/batching.h"

#define LONG 5000

struct talkative {
  TRITONSERVER_MetricFamily *families[3];
  TRITONSERVER_Metric *asked, *bytes_now, *bytes;
  pthread_t thread;
};

static void say(TRITONSERVER_LogLevel level, int line, const char *text) {
  TRITONSERVER_ErrorDelete(TRITONSERVER_LogMessage(level, "/src/talkative.c", line, text));
}

static void *talk(void *argument) {
  say(TRITONSERVER_LOG_INFO, 5, "talkative: from a thread");
  return argument;
}

static TRITONSERVER_Error *make_metrics(struct talkative *batcher, const char *model) {
  static const double bounds[] = {16, 64.5};
  TRITONSERVER_MetricArgs *args = NULL;
  TRITONSERVER_Parameter *label = TRITONSERVER_ParameterNew("model", TRITONSERVER_PARAMETER_STRING, model);
  TRITONSERVER_Parameter *kind =
      TRITONSERVER_ParameterNew("a_kind", TRITONSERVER_PARAMETER_STRING, "of \"C\"\\\n");
  const TRITONSERVER_Parameter *labels[] = {label, kind};
  TRITONSERVER_Error *error = TRITONSERVER_MetricFamilyNew(
      &batcher->families[0], TRITONSERVER_METRIC_KIND_COUNTER, "talkative_asked", "Requests that came");
  if (error == NULL) {
    error = TRITONSERVER_MetricFamilyNew(
        &batcher->families[1], TRITONSERVER_METRIC_KIND_GAUGE, "talkative_bytes_now", "Of the latest one");
  }
  if (error == NULL) {
    error = TRITONSERVER_MetricFamilyNew(
        &batcher->families[2], TRITONSERVER_METRIC_KIND_HISTOGRAM, "talkative_bytes", "Of requests");
  }
  if (error == NULL) error = TRITONSERVER_MetricNew(&batcher->asked, batcher->families[0], labels, 2);
  if (error == NULL) error = TRITONSERVER_MetricNew(&batcher->bytes_now, batcher->families[1], labels, 1);
  if (error == NULL) error = TRITONSERVER_MetricArgsNew(&args);
  if (error == NULL) error = TRITONSERVER_MetricArgsSetHistogram(args, bounds, 2);
  if (error == NULL) {
    error = TRITONSERVER_MetricNewWithArgs(&batcher->bytes, batcher->families[2], labels, 1, args);
  }
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricArgsDelete(args));
  TRITONSERVER_ParameterDelete(label);
  TRITONSERVER_ParameterDelete(kind);
  return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherInitialize(
    TRITONBACKEND_Batcher **batcher, TRITONBACKEND_Model *model) {
  struct talkative *made = calloc(1, sizeof(*made));
  char text[LONG + 1];
  const char *name = NULL;
  TRITONSERVER_Error *error = TRITONBACKEND_ModelName(model, &name);
  if (error == NULL) error = make_metrics(made, name);
  if (error != NULL) return error;
  say(TRITONSERVER_LOG_INFO, 1, "talkative: hello\n\"it\" is\t\xff %s");
  say(TRITONSERVER_LOG_WARN, 2, "talkative: careful");
  say(TRITONSERVER_LOG_ERROR, 3, "talkative: bad");
  say(TRITONSERVER_LOG_VERBOSE, 4, "talkative: in depth");
  pthread_create(&made->thread, NULL, talk, NULL);
  pthread_join(made->thread, NULL);
  memset(text, 'x', LONG);
  memcpy(text, "talkative: ", 11);
  text[LONG] = '\0';
  say(TRITONSERVER_LOG_INFO, 6, text);
  *batcher = (TRITONBACKEND_Batcher *)made;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchIncludeRequest(
    TRITONBACKEND_Request *request, void *userp, bool *should_include) {
  struct talkative *batcher = userp;
  TRITONBACKEND_Input *input = NULL;
  uint64_t byte_size = 0;
  *should_include = true;
  TRITONSERVER_Error *error = TRITONBACKEND_RequestInputByIndex(request, 0, &input);
  if (error == NULL) error = TRITONBACKEND_InputProperties(input, NULL, NULL, NULL, NULL, &byte_size, NULL);
  if (error == NULL) error = TRITONSERVER_MetricIncrement(batcher->asked, 1);
  if (error == NULL) error = TRITONSERVER_MetricSet(batcher->bytes_now, (double)byte_size);
  if (error == NULL) error = TRITONSERVER_MetricObserve(batcher->bytes, (double)byte_size);
  if (TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE)) {
    say(TRITONSERVER_LOG_VERBOSE, 7, "talkative: asked");
  }
  return error;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher *batcher, void **userp) {
  *userp = (void *)batcher;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatchFinalize(void *userp) {
  (void)userp;
  return NULL;
}

TRITONSERVER_Error *TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher *batcher) {
  struct talkative *ended = (struct talkative *)batcher;
  if (ended == NULL) return NULL;
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricDelete(ended->asked));
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricDelete(ended->bytes_now));
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricDelete(ended->bytes));
  for (int index = 0; index < 3; ++index) {
    TRITONSERVER_ErrorDelete(TRITONSERVER_MetricFamilyDelete(ended->families[index]));
  }
  free(ended);
  say(TRITONSERVER_LOG_INFO, 8, "talkative: bye");
  return NULL;
}
