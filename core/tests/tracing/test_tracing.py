"""Which requests are traced, and how settings of the server and of models go together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.tracing.settings import CollectorSettings, TraceLevel, TraceSettings
from tritonpy.tracing.trace import FinishedTrace
from tritonpy.tracing.tracing import Tracing
from tritonpy_sdk.testing import until

from .support import Kept

ON = TraceSettings(level=TraceLevel.TIMESTAMPS, rate=1, file="trace.json")


def traced(tracing: Tracing, count: int, model: str = "m") -> str:
    """Which of the next requests are traced, a letter each."""
    return "".join("-" if tracing.begin(model) is None else "T" for _ in range(count))


def shown(tracing: Tracing, model: str = "") -> dict[str, Any]:
    return dict(tracing.shown(model))


def make(settings: TraceSettings = ON, **more: Any) -> Tracing:
    return Tracing(settings, destination=Kept(), **more)


@pytest.mark.parametrize(
    ("rate", "expected"), [(1, "TTTTTT"), (2, "-T-T-T"), (3, "--T--T"), (7, "------"), (4, "---T--")]
)
def test_every_so_many_th_request_is_traced(rate: int, expected: str) -> None:
    tracing = make(TraceSettings(TraceLevel.TENSORS, rate, file="f"))

    assert traced(tracing, 6) == expected


def test_no_more_requests_are_traced_than_the_count_says() -> None:
    tracing = make(TraceSettings(TraceLevel.TIMESTAMPS, 2, 2, file="f"))

    assert traced(tracing, 8) == "-T-T----"
    assert shown(tracing)["trace_count"] == "1"  # until what was traced is written, which nobody does here


def test_a_request_that_is_never_answered_keeps_no_count_from_0_for_ever(tmp_path: Path) -> None:
    clock = iter((0.0, 59.0, 61.0))
    alone = make(TraceSettings(TraceLevel.TIMESTAMPS, 1, 1, file="f"), clock=lambda: next(clock))
    hung = alone.begin("m")
    assert hung is not None
    assert [shown(alone)["trace_count"] for _ in range(2)] == ["1", "0"]

    now_s = 0.0
    settings = TraceSettings(TraceLevel.TIMESTAMPS, 1, 2, file=str(tmp_path / "t"))
    tracing = Tracing(settings, clock=lambda: now_s)
    hung = tracing.begin("m")
    assert tracing.begin("m") is not None  # whose request has been answered
    assert shown(tracing)["trace_count"] == "1"
    now_s = 61.0
    until(lambda: shown(tracing)["trace_count"] == "0")
    assert [path.name for path in tmp_path.iterdir()] == ["t.0"]
    assert len(json.loads((tmp_path / "t.0").read_bytes())) > 0

    del hung  # it is answered after all
    tracing.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.0", "t.1"]


@pytest.mark.parametrize(
    "settings",
    [
        TraceSettings(rate=1, file="f"),
        TraceSettings(TraceLevel.TIMESTAMPS, 0, file="f"),
        TraceSettings(TraceLevel.TIMESTAMPS, 1, 0, file="f"),
        TraceSettings(TraceLevel.TIMESTAMPS, 1),
    ],
    ids=["level", "rate", "count", "file"],
)
def test_settings_that_let_nothing_be_traced_switch_tracing_off(settings: TraceSettings) -> None:
    tracing = make(settings)

    assert not tracing.is_on
    assert traced(tracing, 3) == "---"


def test_ids_go_on_over_all_models() -> None:
    tracing = make()
    traces = [tracing.begin(name) for name in ("a", "b", "a")]
    children = [traces[0].child() if traces[0] else None]

    assert [trace.id for trace in (*traces, *children) if trace] == [1, 2, 3, 4]


def test_settings_of_a_model_hold_for_it_alone() -> None:
    tracing = make(TraceSettings(file="f", rate=1))
    tracing.change({"level": TraceLevel.TIMESTAMPS}, "a")

    assert tracing.is_on
    assert (traced(tracing, 2, "a"), traced(tracing, 2, "b")) == ("TT", "--")


def test_what_a_model_does_not_set_follows_the_server() -> None:
    tracing = make()
    tracing.change({"rate": 5}, "a")
    tracing.change({"rate": 7, "count": 9, "log_frequency": 2})

    assert shown(tracing, "a") == {**shown(tracing), "trace_rate": "5"}
    assert shown(tracing)["trace_rate"] == "7"


def test_clearing_takes_the_value_of_the_level_above() -> None:
    tracing = make()
    tracing.change({"rate": 5})
    tracing.change({"rate": 6, "count": 3}, "a")

    tracing.change({"rate": None}, "a")
    assert (shown(tracing, "a")["trace_rate"], shown(tracing, "a")["trace_count"]) == ("5", "3")
    tracing.change({"rate": None})
    assert (shown(tracing, "a")["trace_rate"], shown(tracing)["trace_rate"]) == ("1", "1")


def test_counts_begin_anew_with_a_change_but_not_one_that_was_set() -> None:
    tracing = make(TraceSettings(TraceLevel.TIMESTAMPS, 2, 5, file="f"))
    traced(tracing, 3)
    tracing.change({})

    assert shown(tracing)["trace_count"] == "5"
    assert traced(tracing, 2) == "-T"
    tracing.change({"count": 8})
    traced(tracing, 4)
    tracing.change({"log_frequency": 1})
    assert shown(tracing)["trace_count"] == "6"


def test_a_model_without_settings_of_its_own_counts_with_the_others() -> None:
    tracing = make(TraceSettings(TraceLevel.TIMESTAMPS, 2, file="f"))

    assert traced(tracing, 1, "a") + traced(tracing, 1, "b") + traced(tracing, 2, "a") == "-T-T"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rate": 0}, "sample rate must be non-zero"),
        ({"count": 0}, "trace count must be non-zero"),
    ],
)
def test_a_change_after_which_nothing_could_be_traced_is_refused(
    changes: dict[str, object], reason: str
) -> None:
    tracing = make()
    before = tracing.shown()

    with pytest.raises(InvalidArg) as refused:
        tracing.change(changes)

    assert refused.value.message == f"Attempting to set invalid trace setting :{reason}"
    assert tracing.shown() == before
    assert traced(tracing, 1) == "T"


def test_a_level_without_a_file_is_refused_and_off_is_not() -> None:
    tracing = make(TraceSettings())

    with pytest.raises(InvalidArg, match="trace file name is not given"):
        tracing.change({"level": TraceLevel.TENSORS})
    tracing.change({"level": TraceLevel.OFF, "count": 0})
    assert shown(tracing)["trace_level"] == ("OFF",)


def test_a_change_of_the_server_that_a_model_cannot_follow_changes_nothing() -> None:
    tracing = make(TraceSettings(file="f"))
    tracing.change({"rate": 0}, "a")
    before = (tracing.shown(), tracing.shown("a"))

    with pytest.raises(InvalidArg):
        tracing.change({"level": TraceLevel.TIMESTAMPS})

    assert (tracing.shown(), tracing.shown("a")) == before


def test_traces_end_where_the_settings_were_when_they_began() -> None:
    kept = Kept()
    tracing = Tracing(ON, destination=kept)
    tracing.begin("m")
    before = tracing.begin("m")
    tracing.change({"log_frequency": 3})
    after = tracing.begin("m")
    del before, after
    tracing.close()

    frequencies = [trace.stream.log_frequency for trace in kept.traces]  # type: ignore[attr-defined]
    assert (frequencies, len(kept.ended), kept.is_closed.is_set()) == ([0, 0, 3], 2, True)


CONTEXT = f"00-{'a' * 32}-{'b' * 16}"


def collected(settings: TraceSettings, *headers: str | None) -> list[FinishedTrace]:
    kept = Kept()
    tracing = Tracing(settings, "opentelemetry", CollectorSettings(), destination=kept)
    for header in headers:
        tracing.begin("m", header)
    tracing.close()
    return kept.traces


def test_a_request_that_is_part_of_a_trace_is_traced_whatever_rate_and_count_say() -> None:
    rare = TraceSettings(TraceLevel.TIMESTAMPS, 0, 0)
    (trace,) = collected(rare, None, f"{CONTEXT}-01", f"{CONTEXT}-00", "nonsense")

    assert trace.context is not None
    assert (trace.context.trace_id, trace.context.span_id) == ("a" * 32, "b" * 16)
    assert collected(TraceSettings(), f"{CONTEXT}-01") == []


def test_a_request_of_a_trace_that_is_not_sampled_counts_like_any_other_and_joins_it() -> None:
    first, second = collected(TraceSettings(TraceLevel.TIMESTAMPS, 2), None, f"{CONTEXT}-00", None, None)

    assert first.context is not None
    assert second.context is not None
    assert (first.context.trace_id, first.context.span_id) == ("a" * 32, "b" * 16)
    assert (second.context.trace_id != "a" * 32, second.context.span_id) == (True, "")


def test_a_context_means_nothing_in_tritons_mode() -> None:
    tracing = make(TraceSettings(TraceLevel.TIMESTAMPS, 2, file="f"))

    assert tracing.begin("m", f"{CONTEXT}-01") is None
    assert not tracing.takes_context


def test_tensors_alone_switch_nothing_on_where_spans_have_none() -> None:
    assert collected(TraceSettings(TraceLevel.TENSORS, 1), None, f"{CONTEXT}-01") == []


def test_the_settings_of_a_collector_are_shown_in_place_of_those_of_a_file() -> None:
    collector = CollectorSettings("http://c", (("a", "b=c"), ("d", "e")))
    tracing = Tracing(ON, "opentelemetry", collector, destination=Kept())

    assert tracing.shown() == [
        ("trace_level", ("TIMESTAMPS",)),
        ("trace_rate", "1"),
        ("trace_count", "-1"),
        ("trace_mode", "opentelemetry"),
        ("url", "http://c"),
        ("resource", ("a=b=c", "d=e")),
        ("bsp_max_export_batch_size", "512"),
        ("bsp_schedule_delay", "5000"),
        ("bsp_max_queue_size", "2048"),
    ]
