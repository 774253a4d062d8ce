/* Metrics of plugins: values live in this library, and are copied when somebody looks at them. */

/* All families that have a metric, as JSON, or NULL for none:
 * `[{"name", "description", "kind", "metrics": [{"labels": {}, "value", "bounds": [], "counts": []}]}]`.
 * The value of a histogram is its sum, and it has a count for each bound and one for what is larger. To be
 * ended with `TRITONPY_MetricsFree`. */
char *TRITONPY_MetricsRead(size_t *byte_size);
void TRITONPY_MetricsFree(char *json);
