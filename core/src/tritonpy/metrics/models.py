"""Triton's families for models: `nv_inference_*` and `nv_model_*`, from copies of the models' counters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Metric

from tritonpy.stats import ModelStats


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """What a scrape needs to know of one loaded model version.

    Attributes:
        name: the model.
        version: its version.
        stats: a copy that the loop no longer changes (`ModelStats.snapshot()`).
        tags: `metric_tags` of the model's configuration; they become labels `_<key>`.
        has_queue: False for a model whose requests never wait here themselves, such as an ensemble.
        load_duration_s: how long loading took; None when unknown.
        namespace: the repository that tells it from others of its name; "" where names are unique.
    """

    name: str
    version: str
    stats: ModelStats
    tags: Mapping[str, str] = field(default_factory=dict)
    has_queue: bool = True
    load_duration_s: float | None = None
    namespace: str = ""


SnapshotSource = Callable[[], Iterable[ModelSnapshot]]
"""Copies the counters of all loaded model versions; called on the loop."""

# name, help, value
_COUNTERS: Sequence[tuple[str, str, Callable[[ModelStats], int]]] = (
    ("nv_inference_count", "Inferences performed, counted in batch elements", lambda s: s.inference_count),
    ("nv_inference_exec_count", "Executions of the model, one per batch", lambda s: s.execution_count),
    (
        "nv_inference_request_duration_us",
        "Microseconds that successful requests took in all",
        lambda s: s.success_ns // 1000,
    ),
    (
        "nv_inference_queue_duration_us",
        "Microseconds that requests waited for their execution",
        lambda s: s.queue_ns // 1000,
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Microseconds that requests spent in gathering their inputs",
        lambda s: s.compute_input_ns // 1000,
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Microseconds that requests spent in the model's own computation",
        lambda s: s.compute_infer_ns // 1000,
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Microseconds that requests spent in handing out their outputs",
        lambda s: s.compute_output_ns // 1000,
    ),
)


class ModelMetrics:
    """Collects the families of all models, from the copies that `take` made last.

    Args:
        registry: where to register; one per server, so that two servers fit in one process.
        source: copies the counters.
    """

    def __init__(self, registry: CollectorRegistry, source: SnapshotSource) -> None:
        self._source = source
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

        success = Metric("nv_inference_request_success", "Requests answered with success", "counter")
        for model, labels in labelled:
            success.add_sample(success.name, labels, model.stats.success_count)
        yield success

        failure = Metric("nv_inference_request_failure", "Requests that failed, by reason", "counter")
        for model, labels in labelled:
            for reason, count in model.stats.failures.items():
                failure.add_sample(failure.name, {**labels, "reason": reason}, count)
        yield failure

        for name, text, value in _COUNTERS:
            counter = Metric(name, text, "counter")
            for model, labels in labelled:
                counter.add_sample(name, labels, value(model.stats))
            yield counter

        pending = Metric(
            "nv_inference_pending_request_count", "Requests waiting for an execution now", "gauge"
        )
        for model, labels in labelled:
            if model.has_queue:
                pending.add_sample(pending.name, labels, model.stats.pending_count)
        yield pending

        load = Metric("nv_model_load_duration_secs", "Seconds that loading the model took", "gauge")
        for model, labels in labelled:
            if model.load_duration_s is not None:
                load.add_sample(load.name, labels, model.load_duration_s)
        yield load


def _labels(model: ModelSnapshot) -> dict[str, str]:
    labels = {"model": model.name, "version": model.version}
    if model.namespace:
        labels["namespace"] = model.namespace
    for key, value in model.tags.items():
        labels[f"_{re.sub('[^a-zA-Z0-9_]', '_', key)}"] = value
    return labels
