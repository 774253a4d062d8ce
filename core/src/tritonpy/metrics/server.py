"""What the server counts about itself, beyond Triton's families."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram


class ServerMetrics:
    """The `tritonpy_*` families.

    Args:
        registry: where to register; one per server.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._loop_lag = Histogram(
            "tritonpy_event_loop_lag_seconds",
            "How late a timer of the event loop fired: what every request waits on top of its own work",
            buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5),
            registry=registry,
        )
        self._worker_restarts = Counter(
            "tritonpy_worker_restarts",
            "Processes behind model instances that were started again after they ended",
            ("model", "version"),
            registry=registry,
        )
        self._unanswered_requests = Counter(
            "tritonpy_unanswered_requests",
            "Requests that had no final response long after the model's execute had returned",
            ("model", "version"),
            registry=registry,
        )
        self._slow_scans = Counter(
            "tritonpy_slow_batching_scans",
            "Scans of a model's queue in which its batching strategy took over a millisecond",
            ("model", "version", "strategy"),
            registry=registry,
        )

    def observe_loop_lag(self, lag_s: float) -> None:
        """The loop ran a timer `lag_s` seconds late."""
        self._loop_lag.observe(lag_s)

    def count_worker_restart(self, model: str, version: str) -> None:
        """A worker of the model was started again."""
        self._worker_restarts.labels(model, version).inc()

    def count_unanswered_request(self, model: str, version: str) -> None:
        """The model has kept a request to itself for long."""
        self._unanswered_requests.labels(model, version).inc()

    def count_slow_scan(self, model: str, version: str, strategy: str) -> None:
        """The model's batching strategy was slow once."""
        self._slow_scans.labels(model, version, strategy).inc()
