from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families
from tritonpy.cache.response_cache import CacheFigures, ResponseCache
from tritonpy.handles import CacheUsage
from tritonpy.metrics.exposition import render
from tritonpy.metrics.server import CacheMetrics, PoolMetrics, WorkerMemory, WorkerSnapshot

HERE = WorkerSnapshot("net", "1", "net_0_0", os.getpid())


def scrape(*workers: WorkerSnapshot, proc: Path = Path("/proc")) -> str:
    registry = CollectorRegistry()
    memory = WorkerMemory(registry, lambda: workers, proc=proc)
    memory.take()
    return render(registry).decode()


def test_resident_memory_is_shown_by_instance() -> None:
    (family,) = text_string_to_metric_families(scrape(HERE))

    (sample,) = family.samples
    assert (sample.name, family.type) == ("tritonpy_worker_memory_bytes", "gauge")
    assert sample.labels == {"model": "net", "version": "1", "instance": "net_0_0"}
    assert 10e6 < sample.value < 100e9


def test_pages_are_counted_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text("900 25 3 1 0 100 0\n")

    text = scrape(WorkerSnapshot("net", "1", "net_0_0", 7), proc=tmp_path)

    assert text.endswith(f" {25 * os.sysconf('SC_PAGE_SIZE')}\n")


def test_workers_that_are_gone_and_other_systems_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "statm").write_text("?\n")
    workers = [WorkerSnapshot("net", "1", "net_0_0", pid) for pid in (7, 8)]

    assert scrape(*workers, proc=tmp_path) == ""


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


def scrape_cache(figures: CacheFigures, usage: CacheUsage | None) -> str:
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

    lines = scrape_cache(figures, CacheUsage(2, 1, 0.25)).splitlines()

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
    text = scrape_cache(CacheFigures(), None)

    assert "nv_cache_num_hits 0" in text
    for name in ("util", "num_entries", "num_evictions"):
        assert f"nv_cache_{name}" not in text


def test_errors_are_told_apart() -> None:
    figures = CacheFigures()
    figures.errors.update({("lookup", "timeout"): 2, ("insert", "refused"): 1})

    lines = [
        line for line in scrape_cache(figures, None).splitlines() if "tritonpy_cache_errors_total" in line
    ]

    assert lines[1:] == [
        "# TYPE tritonpy_cache_errors_total counter",
        'tritonpy_cache_errors_total{operation="insert",reason="refused"} 1',
        'tritonpy_cache_errors_total{operation="lookup",reason="timeout"} 2',
    ]
