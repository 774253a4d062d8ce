"""Tracing of one server: its settings, those of its models, and the traces that they ask for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, get_args

from tritonpy.errors import InvalidArg
from tritonpy.tracing.files import TraceFiles, TraceStream
from tritonpy.tracing.output import TraceDestination, TraceOutput, collector_destination
from tritonpy.tracing.settings import CHANGEABLE, Changes, CollectorSettings, TraceLevel, TraceSettings
from tritonpy.tracing.trace import Trace, TraceContext, new_context, new_trace, read_context

MISSING_S = 60.0
"""Wait for begun traces after the last one was begun: a request may never be answered."""


class Sampler:
    """Counts requests and says which are traced; on the loop only.

    Settings that change get a new one: it counts from the start, as Triton's do.

    Args:
        settings: what is traced.
        specified: the fields that were set here, and do not follow other settings.
        possible: the levels that can be noted.
        needs_file: nothing is traced without a file.
        clock: the time in seconds.

    Attributes:
        settings, specified: as given.
        level: what is noted.
        remaining: how many more are traced; -1 for no limit.
        stream: where its traces belong.
        is_on: its settings let anything be traced.
    """

    __slots__ = (
        "_clock",
        "_needs_file",
        "_seen_count",
        "_spent_s",
        "is_on",
        "level",
        "remaining",
        "settings",
        "specified",
        "stream",
    )

    def __init__(
        self,
        settings: TraceSettings,
        specified: frozenset[str] = frozenset(),
        possible: TraceLevel = TraceLevel.TIMESTAMPS | TraceLevel.TENSORS,
        *,
        needs_file: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.specified = specified
        self.remaining = settings.count
        self.stream = TraceStream(settings.file, settings.log_frequency, settings.count)
        self.level = settings.level & possible
        self.is_on = bool(self.level) and settings.objection(needs_file) is None
        self._seen_count = 0
        self._needs_file = needs_file
        self._clock = clock
        self._spent_s = 0.0

    @property
    def shown_count(self) -> int:
        """Number of requests still to trace, as clients see it; 0 once all traces are in their file."""
        if self.remaining or not self._needs_file:
            return self.remaining
        return 0 if self.stream.is_complete else 1

    @property
    def is_overdue(self) -> bool:
        """True if a file waits for traces that may never come."""
        is_waiting = self.shown_count != self.remaining
        return is_waiting and self._clock() - self._spent_s > MISSING_S

    def wants(self) -> bool:
        """Count a request; true if it is traced."""
        if not self.is_on or not self.remaining:
            return False
        self._seen_count += 1
        if self._seen_count % self.settings.rate:
            return False
        if self.remaining > 0:
            self.remaining -= 1
            if not self.remaining:
                self._spent_s = self._clock()
        return True


TraceMode = Literal["triton", "opentelemetry"]
"""Traces go to files or to a collector."""
MODES: tuple[TraceMode, ...] = get_args(TraceMode)

Shown = list[tuple[str, str | tuple[str, ...]]]
"""Settings by the names and in the order that clients see: a text each, or several."""


class Tracing:
    """Says which requests are traced, and takes their traces; on the loop only.

    Settings stand at three levels: those the server was started with, those that clients gave it, those that
    they gave one model. What was not given at one level is that of the level above.

    Args:
        settings: what the server was started with.
        mode: where traces go; it cannot be changed.
        collector: how they get there in mode `opentelemetry`.
        destination: where they go instead; for tests.
        clock: the time in seconds; for tests.

    Attributes:
        is_on: a request may be traced; what asks about traces looks at this first.
        takes_context: traces that requests bring with them are gone on with.

    Raises:
        InvalidArg: the mode needs what is not installed.
    """

    def __init__(
        self,
        settings: TraceSettings | None = None,
        mode: TraceMode = "triton",
        collector: CollectorSettings | None = None,
        *,
        destination: TraceDestination | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._mode = mode
        self._collector = collector or CollectorSettings()
        self.takes_context = mode == "opentelemetry"
        self._at_start = settings or TraceSettings()
        self._global = self._sampler(self._at_start)
        self._models: dict[str, Sampler] = {}
        self._ids = itertools.count(1)
        if destination is None:
            destination = TraceFiles() if mode == "triton" else collector_destination(self._collector)
        self._output = TraceOutput(destination)
        self.is_on = False
        self._note_whether_on()

    # What frontends call.

    def begin(
        self,
        model_name: str,
        traceparent: str | None = None,
        tracestate: str | None = None,
        *,
        answers_once: bool = False,
    ) -> Trace | None:
        """The trace of a request that has just come; None when it is not traced.

        Args:
            model_name: the model that it is for.
            traceparent: the header of this name.
            tracestate: likewise.
            answers_once: see `Trace`.
        """
        sampler = self._models.get(model_name) or self._global
        context: TraceContext | None = None
        if self.takes_context:
            context = read_context(traceparent, tracestate)
            if context is not None and context.is_sampled and sampler.level:
                return self._new(sampler, context, answers_once)
        if not sampler.wants():
            return None
        if self.takes_context and context is None:
            context = new_context()
        return self._new(sampler, context, answers_once)

    def shown(self, model_name: str = "") -> Shown:
        """The settings of the server, or of a model."""
        sampler = self._models.get(model_name) or self._global
        settings = sampler.settings
        if sampler.is_overdue:
            self._output.give_up(sampler.stream)
        levels = tuple(level.name or "" for level in TraceLevel if level and level in settings.level)
        shown: Shown = [
            ("trace_level", levels or ("OFF",)),
            ("trace_rate", str(settings.rate)),
            ("trace_count", str(sampler.shown_count)),
        ]
        if self._mode == "triton":
            shown += [("log_frequency", str(settings.log_frequency)), ("trace_file", settings.file)]
        shown.append(("trace_mode", self._mode))
        if self._mode == "opentelemetry":
            shown += self._collector.shown()
        return shown

    def change(self, changes: Changes, model_name: str = "") -> None:
        """Change settings of the server, or of a model.

        Counting begins anew, also when nothing is changed.

        Raises:
            InvalidArg: nothing could be traced with them, though they do not say OFF; nothing is changed.
        """
        if model_name:
            changed = {model_name: self._changed(self._models.get(model_name), self._settings_now(), changes)}
        else:
            sampler = self._changed(self._global, self._at_start, changes)
            changed = {
                name: self._changed(current, sampler.settings, {})
                for name, current in self._models.items()
                if len(current.specified) < len(CHANGEABLE)  # it follows the server in something
            }
            self._output.end_stream(self._global.stream)
            self._global = sampler
        for name, sampler in changed.items():
            before = self._models.pop(name, None)
            if before is not None:
                self._output.end_stream(before.stream)
            if sampler.specified:
                self._models[name] = sampler
        self._note_whether_on()

    def close(self) -> None:
        """Write all traces, and wait for that."""
        for sampler in (self._global, *self._models.values()):
            self._output.end_stream(sampler.stream)
        self._output.close()

    # Inside.

    def _new(self, sampler: Sampler, context: TraceContext | None, answers_once: bool) -> Trace:
        return new_trace(
            sampler.stream,
            sampler.level,
            context,
            self._ids.__next__,
            self._output.put,
            answers_once=answers_once,
        )

    def _sampler(self, settings: TraceSettings, specified: frozenset[str] = frozenset()) -> Sampler:
        # Spans have no tensors, as in Triton.
        possible = TraceLevel.TIMESTAMPS if self.takes_context else TraceLevel.TIMESTAMPS | TraceLevel.TENSORS
        needs_file = not self.takes_context
        return Sampler(settings, specified, possible, needs_file=needs_file, clock=self._clock)

    def _settings_now(self) -> TraceSettings:
        """Those of the server, with the count that is left."""
        return replace(self._global.settings, count=self._global.remaining)

    def _changed(self, current: Sampler | None, fallback: TraceSettings, changes: Changes) -> Sampler:
        specified = current.specified if current is not None else frozenset()
        values: dict[str, Any] = {}  # Any: by field
        for field in CHANGEABLE:
            if field in changes and changes[field] is None:
                specified -= {field}
            elif field in changes:
                specified |= {field}
                values[field] = changes[field]
            elif current is not None and field in specified:
                values[field] = current.remaining if field == "count" else getattr(current.settings, field)
        settings = replace(fallback, **values)
        objection = settings.objection(needs_file=not self.takes_context)
        if objection is not None and settings.level:
            raise InvalidArg(f"Attempting to set invalid trace setting :{objection}")
        return self._sampler(settings, specified)

    def _note_whether_on(self) -> None:
        samplers = (self._global, *self._models.values())
        if self.takes_context:  # a request with a context is traced regardless of rate and count
            self.is_on = any(sampler.level for sampler in samplers)
        else:
            self.is_on = any(sampler.is_on for sampler in samplers)
