"""Triton's families for its pool of pinned memory, which dashboards of Triton ask for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric

_FAMILIES = (
    ("nv_pinned_memory_pool_total_bytes", "Pinned memory pool total memory size, in bytes"),
    ("nv_pinned_memory_pool_used_bytes", "Pinned memory pool used memory size, in bytes"),
)


class PoolMetrics:
    """Says that there is no such pool: frameworks have pools of their own, and the server holds none.

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
