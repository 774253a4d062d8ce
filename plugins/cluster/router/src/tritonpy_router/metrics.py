"""The router's own metrics; those of replicas are theirs to show."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from tritonpy.errors import TritonError
from tritonpy.version import __version__

from tritonpy_router.replica import Replica

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Durations(Collector):
    """How long requests took, by protocol and replica: plain counts, as each request is counted here."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._sums_s: dict[tuple[str, str], float] = {}

    def add(self, protocol: str, replica: str, duration_s: float) -> None:
        """Count a request."""
        key = protocol, replica
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * (len(_BUCKETS) + 1)
            self._sums_s[key] = 0.0
        counts[bisect_left(_BUCKETS, duration_s)] += 1
        self._sums_s[key] += duration_s

    def collect(self) -> Iterable[Metric]:
        """See `prometheus_client`."""
        family = HistogramMetricFamily(
            "tritonpy_router_request_duration_seconds",
            "From the arrival of a request to the end of its answer",
            labels=("protocol", "replica"),
        )
        bounds = [*(str(float(bound)) for bound in _BUCKETS), "+Inf"]
        for key, counts in self._counts.items():
            buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
            family.add_metric(key, buckets, self._sums_s[key])
        return (family,)


class RouterMetrics:
    """Counts what the router does; on the loop only.

    Args:
        registry: of the page.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._durations = Durations()
        registry.register(self._durations)
        self._refused = Counter(
            "tritonpy_router_refused",
            "Requests that no replica got, by the code of their error",
            ("protocol", "code"),
            registry=registry,
        )
        self._retried = Counter(
            "tritonpy_router_retries", "Requests sent to another replica", ("replica",), registry=registry
        )
        self._lost = Counter(
            "tritonpy_router_lost",
            "Requests whose replica was lost before it answered",
            ("replica",),
            registry=registry,
        )

    def answered(self, protocol: str, replica: Replica, duration_s: float) -> None:
        """A replica has answered."""
        self._durations.add(protocol, replica.place.name, duration_s)

    def refused(self, protocol: str, error: TritonError) -> None:
        """A request ended with an error of the router's own."""
        self._refused.labels(protocol, error.code.name.lower()).inc()

    def retried(self, replica: Replica) -> None:
        """A request goes to another replica than this one."""
        self._retried.labels(replica.name).inc()

    def lost(self, replica: Replica) -> None:
        """A request was lost with this replica."""
        self._lost.labels(replica.name).inc()


class ReplicaRow(NamedTuple):
    """The state of one replica.

    Attributes:
        name: of it.
        inflight: requests of this router under way there.
        is_up: it takes requests.
        model_count: models that it serves.
        queue_s: what requests have waited there lately; None where it does not tell.
    """

    name: str
    inflight: int
    is_up: bool
    model_count: int
    queue_s: float | None


class ReplicaCollector(Collector):
    """The state of each replica, at the moment of a scrape.

    Args:
        rows: gives the state of each.
        queued: gives the requests that wait in the router.
    """

    def __init__(self, rows: Callable[[], list[ReplicaRow]], queued: Callable[[], int]) -> None:
        self._rows = rows
        self._queued = queued

    def collect(self) -> Iterable[Metric]:
        """See `prometheus_client`."""
        inflight = GaugeMetricFamily(
            "tritonpy_router_inflight", "Requests of this router under way", labels=("replica",)
        )
        takes = GaugeMetricFamily(
            "tritonpy_router_replica_up", "1 for a replica that gets requests", labels=("replica",)
        )
        models = GaugeMetricFamily(
            "tritonpy_router_replica_models", "Models that a replica serves", labels=("replica",)
        )
        waits = GaugeMetricFamily(
            "tritonpy_router_replica_queue_seconds",
            "What requests have waited for their execution at a replica lately, where it tells",
            labels=("replica",),
        )
        for row in self._rows():
            inflight.add_metric((row.name,), row.inflight)
            takes.add_metric((row.name,), float(row.is_up))
            models.add_metric((row.name,), row.model_count)
            if row.queue_s is not None:
                waits.add_metric((row.name,), row.queue_s)
        queued = GaugeMetricFamily(
            "tritonpy_router_queued", "Requests that wait for a replica that is less busy"
        )
        queued.add_metric((), self._queued())
        who = InfoMetricFamily("tritonpy_router", "The process that shows this page, and its version")
        who.add_metric((), {"pid": str(os.getpid()), "version": __version__})
        return inflight, takes, models, waits, queued, who
