"""The comparison with perf_analyzer, told what both have found."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"


@pytest.mark.parametrize(
    ("rates", "p50_us", "status", "words"),
    [
        ((100.0, 84.0, 98.0), 20_000.0, 0, "within 5%; infer/s of single rounds 0.84 to 1.00"),
        ((90.0, 84.0, 98.0), 20_000.0, 1, "NOT within 5%; infer/s of single rounds 0.84 to 0.98"),
        ((100.0, 100.0, 100.0), 22_000.0, 1, "NOT within 5%; infer/s of single rounds 1.00 to 1.00"),
    ],
)
def test_the_status_tells_whether_both_agree(
    rates: tuple[float, ...],
    p50_us: float,
    status: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    benchmark = importlib.import_module("bench_beside_perf_analyzer")
    title = benchmark.LOADS[0].title
    theirs = {"infer_per_s": 100.0, "p50_us": 20_000.0, "p99_us": 30_000.0, "client_us": 300.0}
    monkeypatch.setattr(benchmark.bench_servers, "start", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(
        benchmark,
        "run_round",
        lambda server, loads, number, window_ms: {
            title: {
                "ours": {**theirs, "infer_per_s": rates[number], "p50_us": p50_us},
                "perf_analyzer": theirs,
            }
        },
    )
    monkeypatch.setattr("sys.argv", ["", "--rounds=3", f"--loads={title}"])

    assert benchmark.main() == status
    assert words in capsys.readouterr().out
