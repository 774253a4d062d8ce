"""`corectl bench` from its options to its reports."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from pathlib import Path

import pytest
from tritonpy.cli.main import main
from tritonpy_bench import Concurrency
from tritonpy_bench.command import halving

COUNTED = ("--request-count", "8")


def test_a_range_of_loads_is_told_in_every_report(
    urls: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, page = tmp_path / "table.csv", tmp_path / "page.html"
    words = ("bench", "echo", "-u", urls["http"], "--concurrency-range", "1:3:2", *COUNTED)

    assert main([*words, "-f", str(table), "--html", str(page)]) == 0

    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()[3:5]] == [
        ["concurrency", "1"],
        ["concurrency", "3"],
    ]
    assert err == ""  # no terminal, no live line
    assert [row["Concurrency"] for row in csv.DictReader(table.read_text().splitlines())] == ["1", "3"]
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "pace"),
    [
        (["--concurrency-range", "2"], "concurrency 2"),
        (["--request-rate-range", "200.5"], "rate 200.5/s"),
        (["--request-rate-range", "200", "--request-distribution", "poisson"], "rate 200/s poisson"),
        (
            ["--periodic-concurrency-range", "1:2:1", "--request-period", "4"],
            "concurrency 1 to 2, 1 more each 4 answers",
        ),
    ],
    ids=lambda value: str(value),
)
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_json_of_each_pace(
    urls: dict[str, str], capsys: pytest.CaptureFixture[str], protocol: str, words: list[str], pace: str
) -> None:
    assert main(["bench", "echo", "-i", protocol, "-u", urls[protocol], "--json", *COUNTED, *words]) == 0

    [measured] = json.loads(capsys.readouterr().out)
    assert measured["load"]["pace"] == pace
    assert measured["latency_us"]["count"] >= 8
    assert measured["errors"] == {}


def test_times_from_files(urls: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    intervals, times = tmp_path / "intervals", tmp_path / "times"
    intervals.write_text("500\n1500\n")
    times.write_text("10\n10.1\n")

    assert main(["bench", "echo", "-u", urls["http"], *COUNTED, "--request-intervals", str(intervals)]) == 0
    assert main(["bench", "echo", "-u", urls["http"], "--replay", str(times), "--replay-speed", "10"]) == 0

    out = capsys.readouterr().out
    assert "intervals of intervals " in out
    assert "replay of times 10 times as quick" in out


def test_contents_parameters_and_headers_are_taken(
    urls: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "texts", "-u", urls["http"], "-b", "2", "--shape", "INPUT0:3", *COUNTED]
    words += ["--string-data", "x", "--input-data", "zero", "-H", "X-Mine: 1"]
    words += ["--request-parameter", "depth:3:int", "--request-parameter", "on:true:bool", "--processes", "2"]

    assert main(words) == 0

    assert "texts, http at" in capsys.readouterr().out


def test_streams_sequences_and_shared_memory(
    urls: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    grpc = ["-i", "grpc", "-u", urls["grpc"], *COUNTED]

    assert main(["bench", "echo", *grpc, "--streaming"]) == 0
    assert main(["bench", "counted", *grpc, "--sequence-length", "2", "--start-sequence-id", "50"]) == 0
    assert main(["bench", "echo", *grpc, "--shared-memory", "system"]) == 0
    assert main(["bench", "echo", "-u", urls["http"], *COUNTED, "--endpoint", "generate"]) == 0

    assert "responses/s; first after" in capsys.readouterr().out


def test_a_load_beyond_the_threshold_is_the_last(
    urls: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "echo", "-u", urls["http"], "--concurrency-range", "1:9", *COUNTED, "-l", "0.000001"]

    assert main(words) == 0

    assert "concurrency 2" not in capsys.readouterr().out


@pytest.mark.parametrize("quick", range(9))
def test_halving_finds_the_last_that_is_quick(quick: int) -> None:
    paces = [Concurrency(requests) for requests in range(1, 9)]
    order = halving(paces)
    asked = [next(order)]

    with suppress(StopIteration):
        while True:
            asked.append(order.send(asked[-1].requests <= quick))

    assert len(asked) <= 4
    within = [pace.requests for pace in asked if pace.requests <= quick]
    assert max(within, default=0) == quick


def test_a_range_is_searched_by_halves(urls: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "echo", "-u", urls["http"], "--concurrency-range", "1:8", *COUNTED, "--binary-search"]

    assert main([*words, "-l", "0.000001", "--json"]) == 0

    measured = json.loads(capsys.readouterr().out)
    assert [one["load"]["pace"] for one in measured] == [f"concurrency {count}" for count in (5, 3, 2, 1)]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--concurrency-range", "0"], "'0': expected START, START:END or START:END:STEP"),
        (
            ["--request-rate-range", "5", "--replay", "x"],
            "--request-rate-range and --replay exclude each other",
        ),
        (["--shape", "INPUT0"], "--shape 'INPUT0': expected NAME:SIZES"),
        (["--shape", "INPUT0:a"], "--shape 'INPUT0:a': expected NAME:SIZES"),
        (["--header", "x"], "--header 'x': expected NAME:VALUE"),
        (
            ["--request-parameter", "x:1"],
            "expected NAME:VALUE:TYPE with a type of bool, int, double or string",
        ),
        (["--request-parameter", "x:a:int"], "expected NAME:VALUE:TYPE"),
        (["--input-data", "zero", "--input-data", "x"], "--input-data zero goes with no other"),
        (["--input-data", "absent"], "input data 'absent': No such file"),
        (["--replay", "absent"], "'absent': No such file"),
        (["--html", "/absent/x", *COUNTED], "'/absent/x': No such file"),
        (["--binary-search"], "--binary-search wants a --latency-threshold"),
        (["--streaming"], "endpoint 'stream' is one of grpc, not of http"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told(
    urls: dict[str, str], capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["bench", "echo", "-u", urls["http"], *words]) == 1

    assert told in " ".join(capsys.readouterr().err.split())
