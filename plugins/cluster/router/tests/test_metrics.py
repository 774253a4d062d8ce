"""What the router counts by itself, as `prometheus_client` would show it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from tritonpy_router.metrics import _BUCKETS, RouterMetrics
from tritonpy_router.replica import Place, Replica

DURATIONS_S = (0.0001, 0.0005, 0.00051, 0.3, 1.0, 5.5, 30.0, 31.0)


def test_durations_are_shown_as_a_histogram_would() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    metrics = RouterMetrics(ours)
    histogram = Histogram(
        "tritonpy_router_request_duration_seconds",
        "From the arrival of a request to the end of its answer",
        ("protocol", "replica"),
        buckets=_BUCKETS,
        registry=theirs,
    )
    for name in ("a", "b"):
        replica = Replica(Place(name, "127.0.0.1", 1, 2))
        for duration_s in DURATIONS_S:
            metrics.answered("grpc", replica, duration_s)
            histogram.labels("grpc", name).observe(duration_s)

    def lines(registry: CollectorRegistry) -> list[str]:
        shown = generate_latest(registry).decode().splitlines()
        return [line for line in shown if "request_duration_seconds" in line and "_created" not in line]

    assert lines(ours) == lines(theirs)
    assert len(lines(ours)) == 2 + 2 * (len(_BUCKETS) + 3)
