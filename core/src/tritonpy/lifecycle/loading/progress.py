"""Progress of the load of a model or a version: logged while it takes long, and at its end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

_log = logging.getLogger("tritonpy.repository")

INTERVAL_S = 30.0
"""How often a load that goes on is mentioned in the log."""


CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]


class LoadProgress:
    """One load, from its first step to its end; a context manager on the loop.

    Args:
        label: the model, and its version as soon as that is loaded, such as `resnet:1`.
        interval_s: seconds between two lines of the log; 0 for none.
        least_s: the end of what took less is not told.
        now_s: a clock that does not jump.
        call_later: has a function called after some seconds; None for the running loop's.
    """

    def __init__(
        self,
        label: str,
        *,
        interval_s: float = INTERVAL_S,
        least_s: float = 0.0,
        now_s: Callable[[], float] = time.monotonic,
        call_later: CallLater | None = None,
    ) -> None:
        self._label = label
        self._interval_s = interval_s
        self._least_s = least_s
        self._now_s = now_s
        self._call_later = call_later
        self._timer: asyncio.TimerHandle | None = None
        self._start_s = self._step_start_s = now_s()
        self._step = ""
        self._detail = ""
        self._durations_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._start_s = self._step_start_s = self._now_s()
        self._set_timer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.duration_s < self._least_s:
            return
        if error is not None:
            _log.info("loading: %s failed after %.2f s, in %s", self._label, self.duration_s, self._where())
        else:
            self.begin("")
            _log.info("loading: %s took %.2f s (%s)", self._label, self.duration_s, self._shares())

    @property
    def duration_s(self) -> float:
        """The seconds it has taken so far."""
        return self._now_s() - self._start_s

    def begin(self, step: str, detail: str = "") -> None:
        """Begin a step.

        Args:
            step: a word or two, such as `initialize`; durations are added up under it.
            detail: more for the line about a load that goes on, such as `instance 2 of 4`.
        """
        now_s = self._now_s()
        if self._step:
            took_s = now_s - self._step_start_s
            self._durations_s[self._step] = self._durations_s.get(self._step, 0.0) + took_s
        self._step, self._detail, self._step_start_s = step, detail, now_s

    def _set_timer(self) -> None:
        if self._interval_s > 0:
            call_later = self._call_later or asyncio.get_running_loop().call_later
            self._timer = call_later(self._interval_s, self._tell)

    def _tell(self) -> None:
        _log.info("loading: %s for %.0f s, now in %s", self._label, self.duration_s, self._where())
        self._set_timer()

    def _where(self) -> str:
        return f"{self._step} ({self._detail})" if self._detail else self._step

    def _shares(self) -> str:
        return ", ".join(f"{step} {duration_s:.2f} s" for step, duration_s in self._durations_s.items())
