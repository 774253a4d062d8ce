"""The options of `corectl serve` that concern tracing."""

from __future__ import annotations

from typing import Any

import click

from tritonpy.cli.flags import Read, several
from tritonpy.errors import InvalidArg
from tritonpy.tracing.configuration import TraceWord, read_word


def read_trace_word(value: str | TraceWord) -> TraceWord:
    """Read `<mode>,<setting>=<value>`, or `<setting>=<value>` for every mode, which is then ""."""
    if not isinstance(value, str):  # click reads its own results again
        return value
    setting, equals, text = value.partition("=")
    mode, comma, key = setting.partition(",")
    if not comma:
        mode, key = "", setting
    if not equals or not key:
        raise click.BadParameter(
            f"--trace-config option format is '<trace mode>,<setting>=<value>'. Got {value}"
        )
    return _checked(mode, key, text)


def _checked(mode: str, key: str, text: str) -> TraceWord:
    try:
        read_word(mode, key, text)
    except InvalidArg as exc:
        raise click.BadParameter(exc.message) from None
    return mode, key, text


def _reader_of(mode: str, key: str) -> Read:
    def read(value: str | TraceWord) -> TraceWord:
        return value if not isinstance(value, str) else _checked(mode, key, value)

    return read


_OLD = (
    # flag, metavar, and the word that says the same
    ("--trace-file", "PATH", "triton", "file"),
    ("--trace-level", "LEVEL", "", "level"),
    ("--trace-rate", "NUMBER", "", "rate"),
    ("--trace-count", "NUMBER", "", "count"),
    ("--trace-log-frequency", "NUMBER", "triton", "log-frequency"),
)

TRACING: tuple[click.Option, ...] = (
    several(
        "--trace-config",
        "trace_config",
        "[MODE,]SETTING=VALUE",
        "What is traced: level=OFF, TIMESTAMPS or TENSORS; rate=NUMBER: every so many-th request; "
        "count=NUMBER: how many at most, -1 for all; mode=triton (files) or opentelemetry. Of triton: "
        "file=PATH, log-frequency=NUMBER (traces per file). Of opentelemetry: url=URL, resource=KEY=VALUE, "
        "bsp_max_queue_size=NUMBER, bsp_schedule_delay=MILLISECONDS, bsp_max_export_batch_size=NUMBER.",
        read_trace_word,
    ),
    *(
        click.Option(
            [flag],
            type=_reader_of(mode, key),
            multiple=True,
            metavar=metavar,
            help=f"Deprecated: --trace-config {f'{mode},' if mode else ''}{key}={metavar}.",
        )
        for flag, metavar, mode, key in _OLD
    ),
)


def merge_old_flags(given: dict[str, Any]) -> None:  # Any: one per option
    """Put what the deprecated flags said before what `--trace-config` says, which therefore holds."""
    new = {word[:2] for word in given["trace_config"]}
    old: list[TraceWord] = []
    for flag, metavar, mode, key in _OLD:
        words = given.pop(flag.removeprefix("--").replace("-", "_"))
        if words:
            instead = f"{mode},{key}={metavar}".lstrip(",")
            click.echo(f"corectl serve: {flag} is deprecated, use --trace-config {instead}", err=True)
            old += words if (mode, key) not in new else ()
    given["trace_config"] = (*old, *given["trace_config"])
