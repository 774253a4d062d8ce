"""Triton's families for models, `nv_inference_*` and `nv_model_*`, and why batches closed, from copies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Metric

from tritonpy.latencies import CACHE_HIT, CACHE_MISS, COMPUTE, QUEUE, REQUEST
from tritonpy.metrics.exposition import add_histogram, number_text
from tritonpy.metrics.settings import FIRST_RESPONSE, MetricsSettings
from tritonpy.stats import ModelStats

BATCH_CLOSED = "tritonpy_batch_closed_total"


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """One loaded model version at a scrape.

    Attributes:
        name: the model.
        version: its version.
        stats: a copy that the loop no longer changes (`ModelStats.snapshot()`).
        tags: `metric_tags` of the model's configuration; they become labels `_<key>`.
        load_duration_s: how long loading took; None when unknown.
        namespace: the repository that tells it from others of its name; "" where names are unique.
        gpu_uuid: the GPU that all its instances are on; "" if they are on several or on none.
    """

    name: str
    version: str
    stats: ModelStats
    tags: Mapping[str, str] = field(default_factory=dict)
    load_duration_s: float | None = None
    namespace: str = ""
    gpu_uuid: str = ""


SnapshotSource = Callable[[], Iterable[ModelSnapshot]]
"""Copies the counters of all loaded model versions; called on the loop."""

_Value = Callable[[ModelStats], int]
_Labelled = Sequence[tuple[ModelSnapshot, dict[str, str]]]

# name, help, value
_COUNTS: Sequence[tuple[str, str, _Value]] = (
    (
        "nv_inference_count",
        "Number of inferences performed (does not include cached requests)",
        lambda s: s.inference_count,
    ),
    (
        "nv_inference_exec_count",
        "Number of model executions performed (does not include cached requests)",
        lambda s: s.execution_count,
    ),
)
_DURATIONS: Sequence[tuple[str, str, _Value]] = (
    (
        "nv_inference_request_duration_us",
        "Cumulative inference request duration in microseconds (includes cached requests)",
        lambda s: s.success_ns // 1000,
    ),
    (
        "nv_inference_queue_duration_us",
        "Cumulative inference queuing duration in microseconds (includes cached requests)",
        lambda s: s.queue_ns // 1000,
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Cumulative compute input duration in microseconds (does not include cached requests)",
        lambda s: s.compute_input_ns // 1000,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Cumulative compute inference duration in microseconds (does not include cached requests)",
        lambda s: s.compute_infer_ns // 1000,
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Cumulative inference compute output duration in microseconds (does not include cached requests)",
        lambda s: s.compute_output_ns // 1000,
    ),
)
_CACHE: Sequence[tuple[str, str, _Value]] = (
    ("nv_cache_num_hits_per_model", "Number of cache hits per model", lambda s: s.cache_hit_count),
    (
        "nv_cache_hit_duration_per_model",
        "Total cache hit duration per model, in microseconds",
        lambda s: s.cache_hit_ns // 1000,
    ),
    ("nv_cache_num_misses_per_model", "Number of cache misses per model", lambda s: s.cache_miss_count),
    (
        "nv_cache_miss_duration_per_model",
        "Total cache miss (insert+lookup) duration per model, in microseconds",
        lambda s: s.cache_miss_ns // 1000,
    ),
)
_SUMMARIES = (
    # phase, name, help
    (
        REQUEST,
        "nv_inference_request_summary_us",
        "Summary of inference request duration in microseconds (includes cached requests)",
    ),
    (
        QUEUE,
        "nv_inference_queue_summary_us",
        "Summary of inference queuing duration in microseconds (includes cached requests)",
    ),
    *(
        (
            phase,
            f"nv_inference_{phase}_summary_us",
            f"Cumulative {words} duration in microseconds (does not include cached requests)",
        )
        for phase, words in zip(
            COMPUTE, ("compute input", "compute inference", "inference compute output"), strict=True
        )
    ),
    *(
        (
            phase,
            f"nv_{phase}_summary_per_model",
            f"Summary of {phase.replace('_', ' ')} counts/durations per model, in microseconds.",
        )
        for phase in (CACHE_HIT, CACHE_MISS)
    ),
)


class ModelMetrics:
    """Collects the families of all models, from the copies that `take` made last.

    Args:
        registry: where to register; one per server, so that two servers fit in one process.
        source: copies the counters.
        settings: which latencies are shown, and how.
    """

    def __init__(
        self, registry: CollectorRegistry, source: SnapshotSource, settings: MetricsSettings | None = None
    ) -> None:
        self._source = source
        self._settings = settings or MetricsSettings()
        self._taken: tuple[ModelSnapshot, ...] = ()
        registry.register(self)

    def take(self) -> None:
        """Copy the counters; on the loop, before `collect` runs on a thread."""
        self._taken = tuple(self._source())

    def describe(self) -> Iterator[Metric]:
        """Every family without samples: the registry refuses a second one of the same name."""
        return self._families(())

    def collect(self) -> Iterator[Metric]:
        """Every family with its samples, from copies; on any thread."""
        return self._families(self._taken)

    def _families(self, models: Sequence[ModelSnapshot]) -> Iterator[Metric]:
        labelled = [(model, _labels(model)) for model in models]
        yield from _request_families(labelled)
        yield from _counters(_COUNTS, labelled)
        if self._settings.has_counters:
            yield from _counters(_DURATIONS, labelled)
            yield from _counters(_CACHE, [(model, tags) for model, tags in labelled if model.stats.is_cached])
        yield from _gauges(labelled)
        yield _closed_family(labelled)
        yield _first_responses(labelled)
        for phase, name, text in _SUMMARIES:
            yield self._summary(phase, Metric(name, text, "summary"), labelled)

    def _summary(self, phase: str, family: Metric, labelled: _Labelled) -> Metric:
        quantiles = self._settings.quantiles
        for model, labels in labelled:
            latencies = model.stats.latencies
            summary = latencies.summaries.get(phase) if latencies is not None else None
            if summary is None:
                continue
            family.add_sample(f"{family.name}_count", labels, summary.count)
            family.add_sample(f"{family.name}_sum", labels, summary.sum_us)
            for quantile, value in zip(quantiles, summary.quantiles(quantiles), strict=True):
                family.add_sample(family.name, {**labels, "quantile": number_text(quantile)}, value)
        return family


def _request_families(labelled: _Labelled) -> Iterator[Metric]:
    success = Metric(
        "nv_inference_request_success", "Number of successful inference requests, all batch sizes", "counter"
    )
    for model, labels in labelled:
        success.add_sample(success.name, labels, model.stats.success_count)
    yield success
    failure = Metric(
        "nv_inference_request_failure", "Number of failed inference requests, all batch sizes", "counter"
    )
    for model, labels in labelled:
        for reason, count in model.stats.failures.items():
            failure.add_sample(failure.name, {**labels, "reason": reason}, count)
    yield failure


def _counters(rows: Sequence[tuple[str, str, _Value]], labelled: _Labelled) -> Iterator[Metric]:
    for name, text, value in rows:
        counter = Metric(name, text, "counter")
        for model, labels in labelled:
            counter.add_sample(name, labels, value(model.stats))
        yield counter


def _gauges(labelled: _Labelled) -> Iterator[Metric]:
    pending = Metric(
        "nv_inference_pending_request_count",
        "Instantaneous number of pending requests awaiting execution per-model.",
        "gauge",
    )
    for model, labels in labelled:
        pending.add_sample(pending.name, labels, model.stats.pending_count)
    yield pending
    load = Metric("nv_model_load_duration_secs", "Model load time in seconds", "gauge")
    for model, labels in labelled:
        if model.load_duration_s is not None:
            load.add_sample(load.name, labels, model.load_duration_s)
    yield load


def _closed_family(labelled: _Labelled) -> Metric:
    closed = Metric(
        BATCH_CLOSED.removesuffix("_total"), "Batches by the reason why they left with their size", "counter"
    )
    for model, labels in labelled:
        for reason, count in sorted(model.stats.closed_counts.items()):
            closed.add_sample(BATCH_CLOSED, {**labels, "reason": reason}, count)
    return closed


def _first_responses(labelled: _Labelled) -> Metric:
    family = Metric(FIRST_RESPONSE, "Duration from request to first response in milliseconds", "histogram")
    for model, labels in labelled:
        latencies = model.stats.latencies
        histogram = latencies.first_response if latencies is not None else None
        if histogram is not None:
            add_histogram(family, labels, histogram.bounds_ms, histogram.counts, histogram.sum_ms)
    return family


def _labels(model: ModelSnapshot) -> dict[str, str]:
    labels = {"model": model.name, "version": model.version}
    if model.namespace:
        labels["namespace"] = model.namespace
    if model.gpu_uuid:
        labels["gpu_uuid"] = model.gpu_uuid
    for key, value in model.tags.items():
        labels[f"_{re.sub('[^a-zA-Z0-9_]', '_', key)}"] = value
    return labels
