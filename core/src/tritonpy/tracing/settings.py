"""Settings of tracing, of the server or one model, and of the way to an OpenTelemetry collector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntFlag
from typing import NamedTuple

from tritonpy.errors import InvalidArg


class TraceLevel(IntFlag):
    """Kinds of notes on a request, with the numbers of `TRITONSERVER_InferenceTraceLevel`."""

    OFF = 0
    TIMESTAMPS = 4
    TENSORS = 8


LEVELS = {"OFF": TraceLevel.OFF, "TIMESTAMPS": TraceLevel.TIMESTAMPS, "TENSORS": TraceLevel.TENSORS}
"""Levels by the names that users write."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Choice of the requests to trace, and of the notes on them.

    Attributes:
        level: what is noted.
        rate: one of this many requests is traced; 0 for none but those that bring a trace with them.
        count: how many more are traced; -1 for no limit.
        log_frequency: how many traces make a file, whose name ends in a number; 0 for one file.
        file: where traces are written; "" for nowhere.
    """

    level: TraceLevel = TraceLevel.OFF
    rate: int = 1000
    count: int = -1
    log_frequency: int = 0
    file: str = ""

    def objection(self, needs_file: bool) -> str | None:
        """The reason why these settings cannot be traced with, in Triton's words; None if they can."""
        if self.level is TraceLevel.OFF:
            return "tracing is disabled"
        if self.rate == 0:
            return "sample rate must be non-zero"
        if self.count == 0:
            return "trace count must be non-zero"
        if needs_file and not self.file:
            return "trace file name is not given"
        return None


Changes = Mapping[str, object]
"""New values by the field of `TraceSettings`; None takes the value that would hold without it."""

CHANGEABLE = ("level", "rate", "count", "log_frequency")
"""The fields that clients may change."""


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """Settings of the export to a collector.

    Attributes:
        url: where it takes OTLP over HTTP; "" for what the environment says, or the usual port of this
            machine.
        resource: attributes of the server, `(key, value)` each.
        max_queue_size: spans that may wait.
        schedule_delay_ms: how long one waits at most for others to go with it.
        max_export_batch_size: how many go at once.

    Raises:
        InvalidArg: the sizes do not fit together.
    """

    url: str = ""
    resource: tuple[tuple[str, str], ...] = ()
    max_queue_size: int = 2048
    schedule_delay_ms: int = 5000
    max_export_batch_size: int = 512

    def __post_init__(self) -> None:
        for name, value in (
            ("bsp_max_queue_size", self.max_queue_size),
            ("bsp_schedule_delay", self.schedule_delay_ms),
            ("bsp_max_export_batch_size", self.max_export_batch_size),
        ):
            if value < 1:
                raise InvalidArg(f"--trace-config opentelemetry,{name} is {value}; expected at least 1")
        if self.max_export_batch_size > self.max_queue_size:
            raise InvalidArg(
                f"--trace-config opentelemetry,bsp_max_export_batch_size is {self.max_export_batch_size}; "
                f"expected at most bsp_max_queue_size, {self.max_queue_size}"
            )

    def shown(self) -> Iterator[tuple[str, str | tuple[str, ...]]]:
        """The settings by the names that clients see."""
        if self.url:
            yield "url", self.url
        if self.resource:
            attributes = tuple(f"{key}={value}" for key, value in self.resource)
            yield "resource", attributes if len(attributes) > 1 else attributes[0]
        yield "bsp_max_export_batch_size", str(self.max_export_batch_size)
        yield "bsp_schedule_delay", str(self.schedule_delay_ms)
        yield "bsp_max_queue_size", str(self.max_queue_size)


class TraceOrigin(NamedTuple):
    """The program that spans come from.

    Attributes:
        service: the attribute `service.name`, unless settings or the environment give another one.
        scope: names the code that has made the spans.
    """

    service: str
    scope: str


TRITON = TraceOrigin("triton-inference-server", "triton-server")
"""What Triton's servers say."""


SIZES = {
    "bsp_max_queue_size": ("max_queue_size", "OTEL_BSP_MAX_QUEUE_SIZE"),
    "bsp_schedule_delay": ("schedule_delay_ms", "OTEL_BSP_SCHEDULE_DELAY"),
    "bsp_max_export_batch_size": ("max_export_batch_size", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"),
}
"""Sizes by the word of `--trace-config`: the field, and the variable that holds without the word."""


def collector_settings(
    url: str, resource: tuple[tuple[str, str], ...], sizes: Mapping[str, int], environment: Mapping[str, str]
) -> CollectorSettings:
    """Settings from what was given and, where nothing was, from OpenTelemetry's variables.

    Raises:
        InvalidArg: a variable is no number, or the sizes do not fit together.
    """
    values: dict[str, int] = {}
    for word, (field, variable) in SIZES.items():
        text = environment.get(variable, "")
        if word in sizes:
            values[field] = sizes[word]
        elif text:
            if not text.isdecimal():
                raise InvalidArg(f"{variable} is '{text}'; expected a number")
            values[field] = int(text)
    return CollectorSettings(url, resource, **values)
