"""Triton's own load generator against our server: it finds no error and reads our statistics."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ClientServer

pytestmark = pytest.mark.parity  # `make test-all` fetches the program

LAUNCHER = Path(__file__).parents[2] / "benchmarks" / "real_triton.py"
# It ends after three windows with requests; on a busy machine there may be others before.
SHORT = ("--measurement-interval", "300", "--stability-percentage", "999", "--max-trials", "50")
BUSY_MACHINE = "not able to keep up with the desired"  # load, or rate of requests
SERVER_SIDE = ("Server Queue", "Server Compute Input", "Server Compute Infer", "Server Compute Output")


def run(server: ClientServer, report: Path, protocol: str, model: str, *words: str) -> list[dict[str, str]]:
    """Run the program; the rows of its report."""
    where = server.http if protocol == "http" else server.grpc
    command = [sys.executable, str(LAUNCHER), "perf", "--", "-m", model, "-i", protocol, "-u", where]
    command += [*SHORT, "-f", str(report), *words]
    for attempt in range(3):
        done = subprocess.run(command, capture_output=True, text=True, timeout=70, check=False)
        # Now and then it finds nothing in its windows, while all of its requests are answered.
        if done.returncode == 0 or "No valid requests recorded" not in done.stdout + done.stderr:
            break
        assert attempt < 2, done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    warnings = [line for line in done.stdout.splitlines() if "[WARNING]" in line]
    assert [line for line in warnings if BUSY_MACHINE not in line] == [], done.stdout
    return list(csv.DictReader(report.read_text().splitlines()))


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("scores", ["--concurrency-range", "2"]),
        ("scores", ["--concurrency-range", "1:2:1"]),
        ("scores", ["-b", "4"]),
        ("scores", ["--async", "--concurrency-range", "4"]),
        ("scores", ["--sync"]),
        ("scores", ["--request-rate-range", "50"]),
        ("scores", ["--request-rate-range", "50", "--request-distribution", "poisson"]),
        ("scores", ["--percentile", "95"]),
        ("scores", ["--shared-memory", "system", "--output-shared-memory-size", "64"]),
        ("scores", ["--shared-memory", "system", "--output-shared-memory-size", "512", "-b", "8", "--async"]),
        ("texts", ["--string-data", "some text"]),
        ("texts", ["--string-length", "1000", "-b", "2"]),
        ("echo", ["--shape", "NUMBERS_IN:16", "--shape", "TEXTS_IN:2"]),
        ("echo", ["--shape", "NUMBERS_IN:16", "--shape", "TEXTS_IN:2", "--request-parameter", "mine:7:int"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_it_measures_without_an_error(server, tmp_path, protocol, model, words):
    if protocol == "http" and "--request-parameter" in words:
        pytest.skip("it sends parameters of its own over gRPC only")
    rows = run(server, tmp_path / "report.csv", protocol, model, *words)

    assert len(rows) == (2 if "1:2:1" in words else 1)
    for row in rows:
        assert float(row["Inferences/Second"]) > 0
        assert all(float(row[name]) >= 0 for name in SERVER_SIDE)
        assert float(row["Server Compute Infer"]) + float(row["Server Compute Input"]) > 0


@pytest.mark.parametrize("words", [[], ["--async"]], ids=["", "async"])
def test_it_measures_streams(server, tmp_path, words):
    rows = run(server, tmp_path / "report.csv", "grpc", "scores", "--streaming", *words)

    assert float(rows[0]["Inferences/Second"]) > 0


def test_it_measures_decoupled_models(server, tmp_path):
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"COUNT": [3]}, {"COUNT": [1]}]}))

    rows = run(server, tmp_path / "report.csv", "grpc", "counts", "--streaming", "--input-data", str(data))

    assert float(rows[0]["Inferences/Second"]) > 0


def test_its_profile_has_no_error(server, tmp_path):
    profile = tmp_path / "profile.json"
    run(server, tmp_path / "report.csv", "http", "scores", "--profile-export-file", str(profile))

    [experiment] = json.loads(profile.read_text())["experiments"]
    assert experiment["requests"]
    assert not any("error" in request for request in experiment["requests"])
