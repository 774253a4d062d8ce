from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge
from tritonpy.metrics import render
from tritonpy.metrics.pools import PoolMetrics


def test_there_is_no_pinned_memory_and_nobody_else_may_say_so() -> None:
    registry = CollectorRegistry()
    PoolMetrics(registry)

    lines = render(registry).decode().splitlines()

    assert [line for line in lines if not line.startswith("#")] == [
        "nv_pinned_memory_pool_total_bytes 0",
        "nv_pinned_memory_pool_used_bytes 0",
    ]
    with pytest.raises(ValueError, match="Duplicated"):
        Gauge("nv_pinned_memory_pool_used_bytes", "Mine", registry=registry)
