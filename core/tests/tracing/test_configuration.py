from __future__ import annotations

import sys

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.tracing.configuration import make_tracing, read_words
from tritonpy.tracing.settings import CollectorSettings, TraceLevel, TraceSettings


def test_nothing_said_traces_nothing_with_tritons_defaults() -> None:
    read = read_words((), {})

    assert (read.settings, read.mode, read.collector) == (TraceSettings(), "triton", CollectorSettings())
    assert read.settings == TraceSettings(TraceLevel.OFF, 1000, -1, 0, "")


def test_the_last_word_holds_but_levels_add_up() -> None:
    words = [
        *(("", "rate", "5"), ("", "rate", "6"), ("", "count", "7"), ("", "level", "timestamps")),
        *(("", "level", "TENSORS"), ("", "level", "OFF"), ("triton", "log-frequency", "8")),
        *(("triton", "file", "a"), ("triton", "file", "b=c")),
    ]

    assert read_words(words, {}).settings == TraceSettings(
        TraceLevel.TIMESTAMPS | TraceLevel.TENSORS, 6, 7, 8, "b=c"
    )


@pytest.mark.parametrize("old", ["MIN", "max"])
def test_levels_of_old_are_timestamps(old: str) -> None:
    assert read_words([("", "level", old)], {}).settings.level is TraceLevel.TIMESTAMPS


def test_a_collector_is_described_by_words_and_by_the_environment_without_them() -> None:
    environment = {"OTEL_BSP_MAX_QUEUE_SIZE": "100", "OTEL_BSP_SCHEDULE_DELAY": "200"}
    words = [
        ("", "mode", "OpenTelemetry"),
        ("opentelemetry", "url", "http://c:4318/v1/traces"),
        ("opentelemetry", "resource", "a=b=c"),
        ("opentelemetry", "resource", "service.name=mine"),
        ("opentelemetry", "bsp_schedule_delay", "300"),
        ("opentelemetry", "bsp_max_export_batch_size", "50"),
    ]
    read = read_words(words, environment)

    assert read.mode == "opentelemetry"
    assert read.collector == CollectorSettings(
        "http://c:4318/v1/traces", (("a", "b=c"), ("service.name", "mine")), 100, 300, 50
    )


def test_variables_of_a_collector_are_not_read_without_one() -> None:
    assert read_words((), {"OTEL_BSP_MAX_QUEUE_SIZE": "x"}).collector == CollectorSettings()
    with pytest.raises(InvalidArg, match="OTEL_BSP_MAX_QUEUE_SIZE is 'x'; expected a number"):
        read_words([("", "mode", "opentelemetry")], {"OTEL_BSP_MAX_QUEUE_SIZE": "x"})


def test_a_batch_must_fit_into_the_queue() -> None:
    words = [("", "mode", "opentelemetry"), ("opentelemetry", "bsp_max_queue_size", "10")]

    with pytest.raises(InvalidArg, match="bsp_max_export_batch_size is 512; expected at most"):
        read_words(words, {})


def test_unknown_words_have_no_effect_and_are_named(caplog: pytest.LogCaptureFixture) -> None:
    make_tracing([("", "sped", "5"), ("triton", "foo", "x")]).close()

    assert [record.getMessage() for record in caplog.records] == [
        "--trace-config sped=5 has no effect: there is no such setting",
        "--trace-config triton,foo=x has no effect: there is no such setting",
    ]


def test_settings_that_trace_nothing_yet_are_told(caplog: pytest.LogCaptureFixture) -> None:
    make_tracing([("", "level", "TIMESTAMPS")]).close()

    assert caplog.messages == [
        "nothing is traced until the trace settings change: trace file name is not given"
    ]


def test_tensors_in_spans_are_told_not_to_be_there(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("opentelemetry.sdk")
    make_tracing([("", "mode", "opentelemetry"), ("", "level", "TENSORS")]).close()

    assert "trace level TENSORS has no effect" in caplog.text


def test_a_mode_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "tritonpy.tracing.collector", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(InvalidArg) as missing:
        make_tracing([("", "mode", "opentelemetry")])

    assert "pip install 'tritonpy[opentelemetry]'" in missing.value.message
