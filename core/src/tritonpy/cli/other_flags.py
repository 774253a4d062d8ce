"""Options of tritonserver that `corectl serve` has no use for: accepted without effect, or refused.

What tunes machinery that does not exist here is accepted, so that a command line written for tritonserver
goes on to work; what would change what clients see is refused with its reason. A value that asks for nothing,
such as `--trace-level=OFF`, is always accepted, and nothing is said about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from tritonpy.cli.flag_values import value_type
from tritonpy.options import Flag

_NO_THREADS = "one event loop serves all connections"

_ANY = ".*"
_NEVER = "(?!)"
_OFF = "false|0|off"  # as `flag_values` takes them
_NUMBER = "[+-]?[0-9]+"

_WHOLE = ("NUMBER", "number")
_SWITCH = ("BOOLEAN", "switch")

_IGNORED = (
    # flag, its value, tritonserver's default, values that ask for nothing, why others do nothing here
    ("--http-thread-count", _WHOLE, "8", _NEVER, _NO_THREADS),
    ("--grpc-infer-thread-count", _WHOLE, "2", _NEVER, _NO_THREADS),
    ("--grpc-infer-allocation-pool-size", _WHOLE, "8", "0+", "no request objects are kept for later"),
    ("--grpc-max-response-pool-size", _WHOLE, "2147483647", "0+", "no response objects are kept for later"),
    ("--buffer-manager-thread-count", _WHOLE, "0", "0+", "no threads copy tensors"),
    ("--enable-peer-access", _SWITCH, "true", _OFF, "frameworks decide how devices reach each other"),
)

WITHOUT_EFFECT: tuple[click.Option, ...] = tuple(
    click.Option(
        [flag],
        type=value_type(Flag(flag, metavar, why, kind=kind)),
        metavar=metavar,
        default=default,
        show_default=True,
        help=f"Nothing: {why}.",
    )
    for flag, (metavar, kind), default, _, why in _IGNORED
)

REASONS = {flag: why for flag, _, _, _, why in _IGNORED}
"""Why a flag of `WITHOUT_EFFECT` does nothing."""

_SAGEMAKER = "the SageMaker frontend is not there yet"
_VERTEX = "the Vertex AI frontend is not there yet"

_MISSING = (
    # flag, values that ask for nothing (of something that is off unless another flag asks for it: any), why
    # others are refused
    ("--allow-sagemaker", _OFF, _SAGEMAKER),
    ("--allow-vertex-ai", _OFF, _VERTEX),
    ("--sagemaker-port", _NUMBER, _SAGEMAKER),
    ("--sagemaker-safe-port-range", "[0-9]+-[0-9]+", _SAGEMAKER),
    ("--sagemaker-thread-count", _NUMBER, _SAGEMAKER),
    # The Vertex AI platform asks for its frontend by a variable, not by a flag: these are never idle.
    ("--vertex-ai-default-model", _NEVER, _VERTEX),
    ("--vertex-ai-port", _NEVER, _VERTEX),
    ("--vertex-ai-thread-count", _NEVER, _VERTEX),
)

REFUSED = {flag: why for flag, _, why in _MISSING}
"""Flags of tritonserver that are refused, and why."""

_IDLE_VALUES = {
    flag: re.compile(values, re.IGNORECASE)
    for flag, values in (
        *((flag, values) for flag, _, _, values, _ in _IGNORED),
        *((flag, values) for flag, values, _ in _MISSING),
    )
}


def asks_for_nothing(flag: str, value: str | int) -> bool:
    """True if a flag of `REFUSED` or `WITHOUT_EFFECT` has a value that is met by doing nothing."""
    return _IDLE_VALUES[flag].fullmatch(str(value)) is not None


def _idle_value_reader(flag: str) -> Callable[[str], str]:
    """A reader of values that are met by doing nothing; it refuses all others."""

    def read(value: str) -> str:
        if not asks_for_nothing(flag, value):
            shown = f"{flag}={value}"
            raise click.UsageError(
                f"'{shown}' is an option of tritonserver that is refused here: {REFUSED[flag]}"
            )
        return value

    return read


MISSING: tuple[click.Option, ...] = tuple(
    click.Option([flag], type=_idle_value_reader(flag), hidden=True, expose_value=False) for flag in REFUSED
)
"""The flags of `REFUSED`, so that they are read like others; no help shows them."""
