/* Metrics that are made, counted and deleted by some threads while others read all of them. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#define ROUNDS 100

static TRITONSERVER_Metric *shared_counter;

static TRITONSERVER_Metric *make_metric(
    TRITONSERVER_MetricFamily *family, const char *label, const TRITONSERVER_MetricArgs *args) {
  TRITONSERVER_Parameter *parameter =
      TRITONSERVER_ParameterNew("thread", TRITONSERVER_PARAMETER_STRING, label);
  const TRITONSERVER_Parameter *labels[] = {parameter};
  TRITONSERVER_Metric *metric;
  OK(TRITONSERVER_MetricNewWithArgs(&metric, family, labels, 1, args));
  TRITONSERVER_ParameterDelete(parameter);
  return metric;
}

static void drive_histogram(const char *label) {
  static const double bounds[] = {0.1, 1, 10};
  TRITONSERVER_MetricFamily *family;
  TRITONSERVER_MetricArgs *args;
  OK(TRITONSERVER_MetricFamilyNew(
      &family, TRITONSERVER_METRIC_KIND_HISTOGRAM, "driver_seconds", "A \"histogram\""));
  OK(TRITONSERVER_MetricArgsNew(&args));
  OK(TRITONSERVER_MetricArgsSetHistogram(args, bounds, 3));
  TRITONSERVER_Metric *metric;
  FAILS(TRITONSERVER_ERROR_INVALID_ARG, "Metric args", TRITONSERVER_MetricNew(&metric, family, NULL, 0));
  metric = make_metric(family, label, args);
  OK(TRITONSERVER_MetricArgsDelete(args));
  OK(TRITONSERVER_MetricObserve(metric, 5));
  FAILS(TRITONSERVER_ERROR_UNSUPPORTED, "Set", TRITONSERVER_MetricSet(metric, 1));
  FAILS(TRITONSERVER_ERROR_INTERNAL, "MetricDelete", TRITONSERVER_MetricFamilyDelete(family));
  OK(TRITONSERVER_MetricDelete(metric));
  OK(TRITONSERVER_MetricFamilyDelete(family));
}

static void drive_gauge(const char *label) {
  TRITONSERVER_MetricFamily *family;
  TRITONSERVER_MetricFamily *twin;
  TRITONSERVER_MetricKind kind;
  double value;
  OK(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_GAUGE, "driver_gauge", "one"));
  FAILS(
      TRITONSERVER_ERROR_INVALID_ARG, "different type",
      TRITONSERVER_MetricFamilyNew(&twin, TRITONSERVER_METRIC_KIND_COUNTER, "driver_gauge", "another"));
  FAILS(
      TRITONSERVER_ERROR_INVALID_ARG, "Invalid metric name",
      TRITONSERVER_MetricFamilyNew(&twin, TRITONSERVER_METRIC_KIND_GAUGE, "no name", ""));
  OK(TRITONSERVER_GetMetricFamilyKind(family, &kind));
  CHECK(kind == TRITONSERVER_METRIC_KIND_GAUGE);
  TRITONSERVER_Metric *metric = make_metric(family, label, NULL);
  OK(TRITONSERVER_GetMetricKind(metric, &kind));
  OK(TRITONSERVER_MetricSet(metric, 4));
  OK(TRITONSERVER_MetricIncrement(metric, -1));
  OK(TRITONSERVER_MetricValue(metric, &value));
  CHECK(value == 3);
  OK(TRITONSERVER_MetricDelete(metric));
  OK(TRITONSERVER_MetricFamilyDelete(family));
}

static void drive_some(int number, void *argument) {
  (void)argument;
  char label[20];
  snprintf(label, sizeof(label), "%d", number);
  for (int round = 0; round < ROUNDS; ++round) {
    OK(TRITONSERVER_MetricIncrement(shared_counter, 1));
    if (number == 0) {
      size_t byte_size = 0;
      char *json = TRITONPY_MetricsRead(&byte_size);
      CHECK(json != NULL && byte_size > 2 && json[0] == '[' && json[byte_size - 1] == ']');
      TRITONPY_MetricsFree(json);
    } else {
      drive_histogram(label);
      drive_gauge(label);
    }
  }
}

void drive_metrics(void) {
  TRITONSERVER_MetricFamily *family;
  double value;
  size_t byte_size;
  OK(TRITONSERVER_MetricFamilyNew(&family, TRITONSERVER_METRIC_KIND_COUNTER, "driver_total", "shared"));
  shared_counter = make_metric(family, "all", NULL);
  on_threads(drive_some, NULL);
  OK(TRITONSERVER_MetricValue(shared_counter, &value));
  CHECK(value == THREADS * ROUNDS);
  FAILS(TRITONSERVER_ERROR_INVALID_ARG, "monotonically", TRITONSERVER_MetricIncrement(shared_counter, -1));
  OK(TRITONSERVER_MetricDelete(shared_counter));
  OK(TRITONSERVER_MetricFamilyDelete(family));
  CHECK(TRITONPY_MetricsRead(&byte_size) == NULL);
}
