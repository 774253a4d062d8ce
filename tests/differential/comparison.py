"""Asking both servers the same, and telling deliberate differences from mistakes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .answers import comparable
from .differences import DIFFERENCES, Difference
from .servers import MAX_RESTARTS, RealServerEnded, Request, Server

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Case:
    """A request, or some in a row, to both servers.

    Attributes:
        name: what it tries.
        steps: the requests; each is answered before the next one is sent.
    """

    name: str
    steps: tuple[Request, ...]


@dataclass(frozen=True)
class Divergence:
    """Two answers to one request that are not equal.

    Attributes:
        request: what was asked.
        real, ours: the parts of the answers; see `answers.comparable`.
    """

    request: Request
    real: dict[str, Any]
    ours: dict[str, Any]

    def __str__(self) -> str:
        lines = [f"{self.request}:"]
        for part in {**self.real, **self.ours}:
            if self.real.get(part) != self.ours.get(part):
                lines.append(f"  {part}")
                lines.append(f"    real: {self.real.get(part)!r}")
                lines.append(f"    ours: {self.ours.get(part)!r}")
        return "\n".join(lines)


class Pair:
    """A real server and ours.

    Attributes:
        met: the deliberate differences that have been seen so far.
    """

    def __init__(self, real: Server, ours: Server) -> None:
        self.real = real
        self.ours = ours
        self.met: set[Difference] = set()
        self._left: dict[str, list[Divergence]] = {}

    def divergences(self, case: Case) -> list[Divergence]:
        """What no listed difference explains; a case is sent once however often it is asked for."""
        if case.name not in self._left:
            self._left[case.name] = []  # also where a server ends over it
            self._left[case.name] = self._survived(
                lambda: [left for step in case.steps if (left := self._compare(step)) is not None]
            )
        return self._left[case.name]

    def compare(self, request: Request) -> Divergence | None:
        """Send one request to both; gives the answers unless they are equal or meant to differ."""
        return self._survived(lambda: self._compare(request))

    def _survived(self, ask: Callable[[], _T]) -> _T:
        """What `ask` returns. Where the real server ends over it, both begin anew and are asked once more.

        What ends it always ends it twice.
        """
        try:
            return ask()
        except RealServerEnded as ended:
            if self.real.restart_count > MAX_RESTARTS:
                raise
            _logger.warning("%s, both are asked again", ended)
        self.ours.restart()
        return ask()

    def _compare(self, request: Request) -> Divergence | None:
        real = comparable(request, self.real.ask(request))
        ours = comparable(request, self.ours.ask(request))
        if real == ours:
            return None
        for difference in DIFFERENCES:
            if difference.explains(request, real, ours):
                self.met.add(difference)
                return None
        return Divergence(request, real, ours)
