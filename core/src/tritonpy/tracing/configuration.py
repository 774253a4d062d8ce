"""Tracing at a server's start: the words of `--trace-config`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tritonpy.errors import InvalidArg
from tritonpy.tracing.settings import (
    LEVELS,
    SIZES,
    CollectorSettings,
    TraceLevel,
    TraceSettings,
    collector_settings,
)
from tritonpy.tracing.tracing import MODES, TraceMode, Tracing

_log = logging.getLogger("tritonpy.tracing")

TraceWord = tuple[str, str, str]
"""Mode, setting and value; the mode is "" for settings that hold in every mode."""

_NUMBERS = {
    # word: field, least, most
    ("", "rate"): ("rate", 0, 2**32 - 1),
    ("", "count"): ("count", -1, 2**31 - 1),
    ("triton", "log-frequency"): ("log_frequency", 0, 2**32 - 1),
}
_OLD_LEVELS = {"MIN": TraceLevel.TIMESTAMPS, "MAX": TraceLevel.TIMESTAMPS}


@dataclass(frozen=True, slots=True)
class TraceConfiguration:
    """Tracing as the command line asks for it.

    Attributes:
        settings: what is traced.
        mode: where traces go.
        collector: how they get there in mode `opentelemetry`.
        unknown: unknown words, which have no effect, as in Triton.
    """

    settings: TraceSettings
    mode: TraceMode
    collector: CollectorSettings
    unknown: tuple[str, ...] = ()


def make_tracing(words: Iterable[TraceWord]) -> Tracing:
    """The tracing that the words of `--trace-config` ask for.

    Raises:
        InvalidArg: a word is wrong, or the mode needs what is not installed.
    """
    configuration = read_configuration(words)
    settings, mode = configuration.settings, configuration.mode
    objection = settings.objection(needs_file=mode == "triton")
    if settings.level and objection is not None and mode == "triton":
        _log.warning("nothing is traced until the trace settings change: %s", objection)
    return Tracing(settings, mode, configuration.collector)


def read_configuration(words: Iterable[TraceWord]) -> TraceConfiguration:
    """Read all words and the environment; what has no effect is said in the log.

    Raises:
        InvalidArg: a word is wrong.
    """
    configuration = read_words(words, os.environ)
    for word in configuration.unknown:
        _log.warning("--trace-config %s has no effect: there is no such setting", word)
    if configuration.mode == "opentelemetry" and configuration.settings.level & TraceLevel.TENSORS:
        _log.warning("trace level TENSORS has no effect in trace mode 'opentelemetry': spans have no tensors")
    return configuration


def read_words(words: Iterable[TraceWord], environment: Mapping[str, str]) -> TraceConfiguration:
    """Read all words; of several for one setting the last one holds, but levels add up.

    Raises:
        InvalidArg: one is wrong.
    """
    values: dict[str, Any] = {}  # Any: by field of TraceSettings
    level = TraceLevel.OFF
    mode: TraceMode = "triton"
    url, resource, sizes = "", [], {}
    unknown: list[str] = []
    for of_mode, key, value in words:
        read = read_word(of_mode, key, value)
        match of_mode, key:
            case "", "mode":
                mode = read
            case "", "level":
                level |= read
            case "triton", "file":
                values["file"] = value
            case "opentelemetry", "url":
                url = value
            case "opentelemetry", "resource":
                resource.append(read)
            case "opentelemetry", _ if key in SIZES:
                sizes[key] = read
            case word if word in _NUMBERS:
                values[_NUMBERS[word][0]] = read
            case _:
                unknown.append(f"{of_mode},{key}={value}".lstrip(","))
    settings = replace(TraceSettings(level=level), **values)
    # Its variables are of no interest in the other mode, and a wrong one must not keep the server down.
    variables = environment if mode == "opentelemetry" else {}
    collector = collector_settings(url, tuple(resource), sizes, variables)
    return TraceConfiguration(settings, mode, collector, tuple(unknown))


def read_word(mode: str, key: str, value: str) -> Any:  # Any: each has its own type
    """The value of one word; of an unknown setting the text itself.

    Raises:
        InvalidArg: it is not one.
    """
    if mode and mode not in MODES:
        raise InvalidArg(_unknown_mode(mode))
    if (mode, key) == ("", "mode"):
        if value.lower() not in MODES:
            raise InvalidArg(_unknown_mode(value))
        return value.lower()
    if (mode, key) == ("", "level"):
        level = {**LEVELS, **_OLD_LEVELS}.get(value.upper())
        if level is None:
            raise InvalidArg(
                f"invalid value for trace level option: {value}; expected OFF, TIMESTAMPS or TENSORS"
            )
        return level
    if (mode, key) == ("opentelemetry", "resource"):
        name, equals, text = value.partition("=")
        if not name or not equals:
            raise InvalidArg(f"resource attributes are written <key>=<value>. Got {value}")
        return name, text
    if mode == "opentelemetry" and key in SIZES:
        return _number(value, 1, 2**31 - 1)
    if (mode, key) in _NUMBERS:
        _, least, most = _NUMBERS[mode, key]
        return _number(value, least, most)
    return value


def _number(text: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
        raise InvalidArg(f"Invalid option value. Got {text}; expected a number")
    if not least <= int(text) <= most:
        raise InvalidArg(f"Provided option value is out of bound. Got {text}; expected {least} to {most}")
    return int(text)


def _unknown_mode(mode: str) -> str:
    return f'invalid value for trace mode option: {mode}. Available options are "triton" and "opentelemetry"'
