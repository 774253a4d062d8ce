"""Times of requests: their distribution, their parts for several clients, and files of them."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy_bench import (
    BenchError,
    Concurrency,
    PeriodicConcurrency,
    Rate,
    Schedule,
    read_intervals,
    read_replay,
)
from tritonpy_bench.paces import request_count, split_pace
from tritonpy_bench.ranges import numbers, parse_range


@given(st.integers(1, 50), st.integers(1, 8))
def test_parts_of_a_concurrency_are_the_whole(requests: int, clients: int) -> None:
    parts = split_pace(Concurrency(requests), clients)

    sizes = [part.requests for part in parts if isinstance(part, Concurrency)]
    assert sum(sizes) == requests
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) > 0


@given(st.floats(0.5, 1e4), st.integers(1, 5))
def test_parts_of_a_constant_rate_are_the_whole(per_s: float, clients: int) -> None:
    parts = [part for part in split_pace(Rate(per_s), clients) if isinstance(part, Rate)]

    merged = sorted(time_s for part in parts for time_s in islice(part.times_s(), 4))
    assert merged == pytest.approx([*islice(Rate(per_s).times_s(), 4 * clients)], abs=1e-9)


def test_a_poisson_rate_has_the_mean_and_the_spread_of_one() -> None:
    times_s = [*islice(Rate(100, "poisson").times_s(), 20_000)]
    gaps_s = [late - early for early, late in pairwise(times_s)]

    mean_s = sum(gaps_s) / len(gaps_s)
    variance = sum((gap_s - mean_s) ** 2 for gap_s in gaps_s) / len(gaps_s)
    assert mean_s == pytest.approx(0.01, rel=0.05)
    assert variance**0.5 == pytest.approx(0.01, rel=0.05)


def test_parts_of_a_poisson_rate_differ() -> None:
    one, two = (part for part in split_pace(Rate(100, "poisson"), 2) if isinstance(part, Rate))

    assert one.per_s == two.per_s == 50
    assert [*islice(one.times_s(), 5)] != [*islice(two.times_s(), 5)]


def test_intervals_are_microseconds_and_begin_again(tmp_path: Path) -> None:
    path = tmp_path / "intervals"
    path.write_text("1000\n2000\n\n3000\n")

    times_s = [*islice(read_intervals(path).times_s(), 5)]

    assert times_s == pytest.approx([0, 0.001, 0.003, 0.006, 0.007])


def test_parts_of_a_schedule_are_the_whole() -> None:
    parts = split_pace(Schedule([0.0, 0.1, 0.2, 0.5, 0.6], 1.0), 3)

    merged = sorted(time_s for part in parts if isinstance(part, Schedule) for time_s in part.offsets_s)
    assert merged == [0.0, 0.1, 0.2, 0.5, 0.6]
    assert {part.period_s for part in parts if isinstance(part, Schedule)} == {1.0}


def test_a_trace_is_replayed_at_the_times_of_the_model_s_requests(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    entries: list[dict[str, object]] = []
    for number, (model, parent, at_ns) in enumerate(
        [("m", 0, 5_000_000_000), ("m", 0, 4_000_000_000), ("other", 0, 1), ("m", 3, 4_500_000_000)], 1
    ):
        head: dict[str, object] = {"id": number, "model_name": model, "model_version": 1}
        entries.append(head | ({"parent_id": parent} if parent else {}))
        stamps = [{"name": "REQUEST_START", "ns": at_ns}, {"name": "REQUEST_END", "ns": at_ns + 9}]
        entries.append({"id": number, "timestamps": stamps})
    path.write_text(json.dumps(entries))

    replay = read_replay(path, "m", speed=2)

    assert ([*replay.times_s()], request_count(replay)) == ([0.0, 0.5], 2)
    with pytest.raises(BenchError, match="no request to model 'x', but to m, other"):
        read_replay(path, "x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no line with a number"),
        ("1\nx\n", "expected a number on each line"),
        ("[{}]", "no trace file"),
    ],
)
def test_files_without_times_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "times"
    path.write_text(text)

    with pytest.raises(BenchError, match=words):
        read_replay(path, "m")


def test_intervals_must_take_time(tmp_path: Path) -> None:
    path = tmp_path / "times"
    path.write_text("0\n0\n")

    with pytest.raises(BenchError, match="not all of them 0"):
        read_intervals(path)
    with pytest.raises(BenchError, match="No such file"):
        read_intervals(tmp_path / "absent")


def test_a_growing_concurrency_has_as_many_requests_as_its_steps_have() -> None:
    assert request_count(PeriodicConcurrency(1, 5, 2, 10)) == 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", [3]), ("1:3", [1, 2, 3]), ("2:9:3", [2, 5, 8]), ("0", None), ("3:1", None), ("1:2:0", None)],
)
def test_ranges(text: str, expected: list[int] | None) -> None:
    if expected is None:
        with pytest.raises(ValueError):
            parse_range(text, int, 1)
    else:
        assert numbers(*parse_range(text, int, 1)) == expected


def test_ranges_of_fractions_have_their_end() -> None:
    assert numbers(*parse_range("0.1:0.3:0.1", float, 1.0)) == pytest.approx([0.1, 0.2, 0.3])
