from __future__ import annotations

import os
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tritonpy.metrics import WorkerMemory, WorkerSnapshot, render

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
