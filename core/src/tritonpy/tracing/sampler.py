"""Which requests are traced under one set of settings."""

from __future__ import annotations

import time
from collections.abc import Callable

from tritonpy.tracing.files import TraceStream
from tritonpy.tracing.settings import TraceLevel, TraceSettings

MISSING_S = 60.0
"""How long traces that were begun are waited for once no more are: a request may never be answered."""


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
        """How many more are traced, as clients see it: 0 says that what was traced is in its file, too."""
        if self.remaining or not self._needs_file:
            return self.remaining
        return 0 if self.stream.is_complete else 1

    @property
    def is_overdue(self) -> bool:
        """Whether a file waits for traces that may never come."""
        is_waiting = self.shown_count != self.remaining
        return is_waiting and self._clock() - self._spent_s > MISSING_S

    def wants(self) -> bool:
        """Whether the next request is traced."""
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
