/* Metrics of plugins: values live in this library, and are copied when somebody looks at them. */

/* All families that have a metric, as JSON, or NULL for none:
 * `[{"name", "description", "kind", "metrics": [{"labels": {}, "set_count", "value", "bounds": [], "counts": []}]}]`.
 * The value of a histogram is its sum, and it has a count for each bound and one for what is larger; a gauge says
 * how often it was set. To be ended with `TRITONPY_MetricsFree`. */
char *TRITONPY_MetricsRead(size_t *byte_size);
void TRITONPY_MetricsFree(char *json);
/* Waits until there is another metric, one less, or another value. */
void TRITONPY_MetricsWait(void);
/* Whether there was such a change since this was asked last. Without waiting. */
bool TRITONPY_MetricsChanged(void);
/* Where that stands, to be looked at without a call; not to be written to. */
const volatile bool *TRITONPY_MetricsFlag(void);
