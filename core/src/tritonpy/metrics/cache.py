"""Families of the response cache: Triton's, which have no labels, and what has failed in it."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric

from tritonpy.cache.response_cache import CacheFigures, ResponseCache
from tritonpy.handles import CacheUsage

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
