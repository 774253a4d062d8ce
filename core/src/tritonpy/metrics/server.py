"""Metrics of the server itself: event loop, workers' memory, response cache, pinned memory pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric

from tritonpy.cache.response_cache import CacheFigures, ResponseCache
from tritonpy.handles import CacheUsage


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
        """The model has not answered a request for long."""
        self._unanswered_requests.labels(model, version).inc()

    def count_slow_scan(self, model: str, version: str, strategy: str) -> None:
        """The model's batching strategy was slow once."""
        self._slow_scans.labels(model, version, strategy).inc()


_FAMILIES = (
    ("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes"),
    ("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes"),
)


class PoolMetrics:
    """The families of Triton's pinned memory pool, always 0: the server has none.

    Args:
        registry: where to register; one per server.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Both families; the registry refuses a second one of the same name."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Both families, which are 0; on any thread."""
        for name, text in _FAMILIES:
            family = Metric(name, text, "gauge")
            family.add_sample(name, {}, 0)
            yield family


_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """One worker.

    Attributes:
        model: the name of its model.
        version: the model's version.
        instance: the name of its instance.
        pid: its process id.
        namespace: the repository that tells its model from others of its name; "" where names are unique.
    """

    model: str
    version: str
    instance: str
    pid: int
    namespace: str = ""


class WorkerMemory:
    """Collects the resident memory of all workers; nothing on systems without `/proc/<pid>/statm`.

    Shared memory counts in each process that has touched it, so the sum over workers says more than there is.

    Args:
        registry: where to register; one per server.
        source: names all workers; called on the loop.
        proc: where the system shows its processes.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        source: Callable[[], Iterable[WorkerSnapshot]],
        *,
        proc: Path = _PROC,
    ) -> None:
        self._source = source
        self._proc = proc
        self._taken: tuple[WorkerSnapshot, ...] = ()
        registry.register(self)

    def take(self) -> None:
        """Note the models and workers that are there; on the loop, before `collect` runs on a thread."""
        self._taken = tuple(self._source())

    def describe(self) -> Iterator[Metric]:
        """The family without samples."""
        yield _family()

    def collect(self) -> Iterator[Metric]:
        """The family with its samples; reads files, so not on the loop."""
        family = _family()
        for worker in self._taken:
            byte_size = self._resident_byte_size(worker.pid)
            if byte_size is not None:
                labels = {"model": worker.model, "version": worker.version, "instance": worker.instance}
                if worker.namespace:
                    labels["namespace"] = worker.namespace
                family.add_sample(family.name, labels, byte_size)
        yield family

    def _resident_byte_size(self, pid: int) -> int | None:
        try:
            pages = int((self._proc / str(pid) / "statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):  # it has just ended, or this system shows it otherwise
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")


def _family() -> Metric:
    return Metric(
        "tritonpy_worker_memory_bytes", "Resident memory of the process behind an instance", "gauge"
    )


ERRORS = "tritonpy_cache_errors_total"


class CacheMetrics:
    """Shows a cache's numbers, as `take` has seen them last.

    Args:
        registry: where to register; one per server.
        cache: the server's.
    """

    def __init__(self, registry: CollectorRegistry, cache: ResponseCache) -> None:
        self._cache = cache
        self._figures = CacheFigures()
        self._usage: CacheUsage | None = None
        registry.register(self)

    def take(self) -> None:
        """Copy the numbers; on the loop, before `collect` runs on a thread."""
        self._figures = self._cache.figures.snapshot()
        self._usage = self._cache.usage()

    def describe(self) -> Iterator[Metric]:
        """Every family; the registry refuses a second one of the same name."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Every family with its samples, from copies; on any thread."""
        figures, usage = self._figures, self._usage
        rows: tuple[tuple[str, str, float | None], ...] = (
            ("util", "Cache utilization [0.0 - 1.0]", usage.fraction if usage else None),
            (
                "num_entries",
                "Number of responses stored in response cache",
                usage.entry_count if usage else None,
            ),
            ("num_hits", "Number of cache hits in response cache", figures.hit_count),
            ("num_misses", "Number of cache misses in response cache", figures.miss_count),
            ("num_lookups", "Number of cache lookups in response cache", figures.lookup_count),
            (
                "num_evictions",
                "Number of cache evictions in response cache",
                usage.eviction_count if usage else None,
            ),
            (
                "lookup_duration",
                "Total cache lookup duration (hit and miss), in microseconds",
                figures.lookup_ns // 1000,
            ),
            (
                "insertion_duration",
                "Total cache insertion duration, in microseconds",
                figures.insertion_ns // 1000,
            ),
        )
        for name, text, value in rows:
            gauge = Metric(f"nv_cache_{name}", text, "gauge")
            if value is not None:
                gauge.add_sample(gauge.name, {}, value)
            yield gauge
        errors = Metric(
            ERRORS, "Lookups and insertions that the response cache did not carry out, by reason", "counter"
        )
        for (operation, reason), count in sorted(figures.errors.items()):
            errors.add_sample(ERRORS, {"operation": operation, "reason": reason}, count)
        yield errors
