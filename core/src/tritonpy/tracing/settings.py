"""What is traced: the settings of the server, or of one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag


class TraceLevel(IntFlag):
    """What is noted of a request; the numbers are those of `TRITONSERVER_InferenceTraceLevel`."""

    OFF = 0
    TIMESTAMPS = 4
    TENSORS = 8


LEVELS = {"OFF": TraceLevel.OFF, "TIMESTAMPS": TraceLevel.TIMESTAMPS, "TENSORS": TraceLevel.TENSORS}
"""Levels by the names that users write."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """What is traced.

    Attributes:
        level: what is noted.
        rate: every so many-th request is traced; 0 for none but those that bring a trace with them.
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
        """Why nothing can be traced with these settings, in Triton's words; None when something can."""
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
