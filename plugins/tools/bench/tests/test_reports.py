"""Reports of a measurement that is known: text, JSON, CSV, and the page."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest
from tritonpy_bench import (
    Concurrency,
    Histogram,
    Load,
    Measurement,
    Rate,
    ServerSide,
    Stability,
    Window,
    measurement_json,
)
from tritonpy_bench.paces import Pace
from tritonpy_bench.report_csv import csv_report
from tritonpy_bench.report_html import html_report
from tritonpy_bench.report_text import text_report
from tritonpy_bench.server_side import Counts, between
from tritonpy_bench.stability import agree


def measured(pace: Pace, *, is_stable: bool = True, errors: dict[str, int] | None = None) -> Measurement:
    latency = Histogram([1_000_000] * 99 + [5_000_000])
    window = Window(2.0, latency, Counter(errors or {}), 100, 1.9)
    if isinstance(pace, Rate):
        window.service_ns = Histogram([500_000] * 100)
    side = ServerSide(
        "m<1>",
        "3",
        200,
        50,
        100,
        1,
        {"request": 900.0, "queue": 300.0, "compute_infer": 500.0, "cache_hit": 20.0},
        {2: 10, 4: 30, 6: 10},
        {"full": 40, "delay over": 10},
    )
    load = Load(model="m<1>", pace=pace, batch_size=2)
    return Measurement(load, is_stable, [window, window], window, [side])


def test_the_table_has_a_row_for_each_load_and_says_what_the_server_did() -> None:
    text = text_report([measured(Concurrency(1)), measured(Concurrency(2))])

    rows = [line.split() for line in text.splitlines() if re.match(r"concurrency \d +\d", line)]
    assert rows[0][:8] == ["concurrency", "1", "100.0", "100", "1040", "1000", "1000", "1000"]
    assert rows[0][-2:] == ["0", "yes"]
    assert "900 µs a request (queue 300, compute infer 500, cache hit 20)" in text
    assert "50 executions of 4.00 rows: 2 20%, 4 60%, 6 20%" in text
    assert "batches closed: full 80%, delay over 20%" in text
    assert "1 requests failed" in text
    assert "the clients were busy 95% of the time" in text


def test_errors_are_told_by_their_texts_and_the_others_together() -> None:
    errors = {f"error {number}": 10 - number for number in range(7)}

    text = text_report([measured(Concurrency(1), is_stable=False, errors=errors)])

    assert "failed 10 times: error 0" in text
    assert "failed 9 times with other errors" in text
    assert "not stable: requests/s of the last windows were 50, 50" in text


def test_a_rate_that_was_not_kept_is_told_with_both_latencies() -> None:
    text = text_report([measured(Rate(80))])

    assert "50 requests were answered in a second where 80 were due" in text
    assert "from when requests were sent, not when they were due: mean 500, p50 500, p99 500 µs" in text


def test_json_has_all_of_it() -> None:
    document = json.loads(json.dumps(measurement_json(measured(Rate(50), errors={"why": 2}))))

    assert document["load"]["pace"] == "rate 50/s"
    assert (document["infer_per_s"], document["requests_per_s"]) == (100.0, 50.0)
    assert document["errors"] == {"why": 2}
    assert document["latency_us"]["p99"] == pytest.approx(1000, rel=0.001)
    assert document["service_us"]["mean"] == pytest.approx(500, rel=0.001)
    assert document["server"][0]["batch_sizes"] == {"2": 10, "4": 30, "6": 10}
    assert sum(count for _, count in document["latency_us"]["buckets_ns"]) == 100


def test_csv_has_the_columns_of_perf_analyzer() -> None:
    [row] = csv.DictReader(csv_report([measured(Concurrency(4))]).splitlines())

    assert (row["Concurrency"], row["Inferences/Second"], row["p99 latency"]) == ("4", "100.000", "1000")
    assert (row["Server Queue"], row["Server Compute Infer"], row["Failed"]) == ("300", "500", "0")


def test_the_page_is_well_formed_and_asks_for_nothing_else() -> None:
    class Checker(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.counts: Counter[str] = Counter()

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.counts[tag] += 1
            assert not {"src", "href"} & dict(attrs).keys()
            if tag not in ("meta", "line", "rect", "polyline"):
                self.open.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.counts[tag] += 1

        def handle_endtag(self, tag: str) -> None:
            if tag not in ("rect",):
                assert self.open.pop() == tag

    page = html_report([measured(Concurrency(1)), measured(Concurrency(2), errors={"<why>": 3})])
    checker = Checker()
    checker.feed(page)

    assert checker.open == []
    assert (checker.counts["svg"], checker.counts["tr"]) == (7, 3)
    assert "m&lt;1&gt;" in page
    assert "&lt;why&gt;" in page
    assert "<why>" not in page


def test_a_page_of_loads_with_nothing_to_draw() -> None:
    load = Load(model="m")

    page = html_report([Measurement(load, True, [], Window())])

    assert "<svg" in page


@pytest.mark.parametrize(
    ("rates", "expected"),
    [([100, 100], False), ([100, 100, 100], True), ([50, 100, 100, 100], True), ([100, 100, 130], False)],
)
def test_windows_agree_when_the_last_three_do(rates: list[int], expected: bool) -> None:
    windows = [Window(1.0, Histogram([1000] * rate)) for rate in rates]

    assert agree(windows, Stability()) is expected


def test_windows_agree_in_their_latencies_too() -> None:
    windows = [Window(1.0, Histogram([1000] * 98 + [slow] * 2)) for slow in (1000, 1000, 3000)]

    assert agree(windows, Stability())
    assert not agree(windows, Stability(percentile=99))
    assert not agree([*windows[:2], Window(1.0)], Stability(spread=9))


def test_what_a_server_counted_between_two_looks() -> None:
    def counts(success: int, queue_ns: int, sizes: dict[int, int]) -> Counts:
        numbers = {"success.count": success, "success.ns": 2 * queue_ns, "fail.count": 0, "fail.ns": 0}
        queue = {"queue.count": success, "queue.ns": queue_ns, "inference_count": success}
        return Counts("m", "1", {**numbers, **queue, "execution_count": success}, sizes, {"full": success})

    idle = Counts("idle", "1", {"success.count": 3})

    [side] = between([counts(5, 1000, {1: 5}), idle], [counts(15, 31_000, {1: 5, 2: 10}), idle])
    [after_reload] = between([counts(50, 1000, {1: 50})], [counts(15, 30_000, {1: 15})])

    assert (side.success_count, side.durations_us["queue"], side.durations_us["request"]) == (10, 3.0, 6.0)
    assert (side.batch_sizes, side.closed) == ({2: 10}, {"full": 10})
    assert (after_reload.success_count, after_reload.durations_us["queue"]) == (15, 2.0)
