from __future__ import annotations

from typing import Any

import click
import pytest
from tritonpy.cli.flag_values import value_type
from tritonpy.cli.main import main
from tritonpy.cli.old_flags import merge_old_flags
from tritonpy.cli.serve import serve as command
from tritonpy.cli.serve_flags import FLAGS


def shown(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, dict[str, str], str]:
    status = main(["serve", "--model-repository=m", "--show-config", *flags])
    captured = capsys.readouterr()
    rows = [line.split(maxsplit=1) for line in captured.out.splitlines()]
    return status, {row[0]: row[1] for row in rows if row[0].startswith("--trace")}, captured.err


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("rate=5", ("", "rate", "5")),
        ("level=timestamps", ("", "level", "timestamps")),
        ("mode=opentelemetry", ("", "mode", "opentelemetry")),
        ("triton,file=/tmp/a,b=c.json", ("triton", "file", "/tmp/a,b=c.json")),
        ("opentelemetry,resource=service.name=x", ("opentelemetry", "resource", "service.name=x")),
        ("whatever=1", ("", "whatever", "1")),
    ],
)
def test_words_are_taken_apart_as_tritonserver_does(text: str, word: tuple[str, str, str]) -> None:
    read = value_type(FLAGS["trace_config"])

    assert read(text) == word
    assert read(word) == word


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("nonsense", "--trace-config option format is '<trace mode>,<setting>=<value>'. Got nonsense"),
        ("level=BAD", "invalid value for trace level option: BAD; expected OFF, TIMESTAMPS or TENSORS"),
        ("rate=x", "Invalid option value. Got x; expected a number"),
        ("rate=-3", "Provided option value is out of bound. Got -3; expected 0 to 4294967295"),
        ("count=-2", "Provided option value is out of bound. Got -2; expected -1 to 2147483647"),
        ("triton,log-frequency=x", "Invalid option value. Got x; expected a number"),
        (
            "mode=foo",
            'invalid value for trace mode option: foo. Available options are "triton" and "opentelemetry"',
        ),
        (
            "bar,foo=3",
            'invalid value for trace mode option: bar. Available options are "triton" and "opentelemetry"',
        ),
        ("opentelemetry,bsp_max_queue_size=0", "Got 0; expected 1 to 2147483647"),
        ("opentelemetry,resource=x", "resource attributes are written <key>=<value>. Got x"),
    ],
)
def test_a_word_that_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], given: str, text: str
) -> None:
    status, _, error = shown(capsys, f"--trace-config={given}")

    assert status == 1
    assert 'Error: Bad option: "--trace-config". ' in error
    assert text in error


def test_old_flags_say_what_to_write_instead(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = shown(capsys, "--trace-file=f", "--trace-level=MIN", "--trace-log-frequency=2")

    assert status == 0
    assert error.splitlines() == [
        "corectl serve: --trace-file is deprecated, use --trace-config triton,file=PATH",
        "corectl serve: --trace-level is deprecated, use --trace-config level=LEVEL",
        "corectl serve: --trace-log-frequency is deprecated, use --trace-config triton,log-frequency=NUMBER",
    ]


def options(*flags: str) -> tuple[tuple[str, str, str], ...]:
    context = command.make_context("serve", ["--model-repository=m", *flags])
    given: dict[str, Any] = {"auto_complete_config": True, **context.params}
    merge_old_flags(context, given)
    return given["trace_config"]


def test_new_flags_hold_against_old_ones() -> None:
    words = options("--trace-config=rate=5", "--trace-rate=7", "--trace-count=3", "--trace-config=level=OFF")

    assert words == (("", "count", "3"), ("", "rate", "5"), ("", "level", "OFF"))


@pytest.mark.parametrize("flag", ["--trace-rate=x", "--trace-level=BAD", "--trace-count=-7"])
def test_old_flags_are_read_like_new_ones(flag: str) -> None:
    with pytest.raises(click.UsageError, match="Bad option"):
        command.make_context("serve", ["--model-repository=m", flag])


def test_what_is_traced_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _, rows, _ = shown(capsys, "--trace-config=rate=5", "--trace-config=triton,file=f")

    assert rows["--trace-config"].split("  ")[0] == "rate=5 triton,file=f"
