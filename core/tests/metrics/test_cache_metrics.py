from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry
from tritonpy.cache.response_cache import CacheFigures, ResponseCache
from tritonpy.handles import CacheUsage
from tritonpy.metrics.cache import CacheMetrics
from tritonpy.metrics.exposition import render


def scrape(figures: CacheFigures, usage: CacheUsage | None) -> str:
    def find(name: str) -> Any:
        raise AssertionError

    cache = ResponseCache("it", {}, find, 1)
    cache.figures = figures
    cache.usage = lambda: usage  # type: ignore[method-assign]
    registry = CollectorRegistry()
    metrics = CacheMetrics(registry, cache)
    metrics.take()
    figures.hit_count += 100  # what is counted behind the copy is shown the next time
    figures.errors["insert", "refused"] += 1
    return render(registry).decode()


def test_the_gauges_have_tritons_names_and_units() -> None:
    figures = CacheFigures(hit_count=3, miss_count=2, lookup_ns=7_999, insertion_ns=2_000)

    lines = scrape(figures, CacheUsage(2, 1, 0.25)).splitlines()

    assert [line for line in lines if not line.startswith("#")] == [
        "nv_cache_util 0.25",
        "nv_cache_num_entries 2",
        "nv_cache_num_hits 3",
        "nv_cache_num_misses 2",
        "nv_cache_num_lookups 5",
        "nv_cache_num_evictions 1",
        "nv_cache_lookup_duration 7",
        "nv_cache_insertion_duration 2",
    ]
    assert [line.split()[3] for line in lines if line.startswith("# TYPE")] == ["gauge"] * 8


def test_a_cache_that_does_not_tell_how_full_it_is_has_no_such_lines() -> None:
    text = scrape(CacheFigures(), None)

    assert "nv_cache_num_hits 0" in text
    for name in ("util", "num_entries", "num_evictions"):
        assert f"nv_cache_{name}" not in text


def test_errors_are_told_apart() -> None:
    figures = CacheFigures()
    figures.errors.update({("lookup", "timeout"): 2, ("insert", "refused"): 1})

    lines = [line for line in scrape(figures, None).splitlines() if "tritonpy_cache_errors_total" in line]

    assert lines[1:] == [
        "# TYPE tritonpy_cache_errors_total counter",
        'tritonpy_cache_errors_total{operation="insert",reason="refused"} 1',
        'tritonpy_cache_errors_total{operation="lookup",reason="timeout"} 2',
    ]
