"""A request in flight, with its times."""

from __future__ import annotations

import time
from collections.abc import Callable

from tritonpy_bench.sources import Source
from tritonpy_bench.tally import Tally


class TimedCall:
    """Satisfies `Call`; used again for one request after the other.

    Attributes:
        source: of its requests.
        sent_ns: when the request was sent.
        late_ns: how long before that it was due.

    Args:
        source: likewise.
        tally: is told the times of responses.
        over: is called when the request is over, with the error.
    """

    __slots__ = ("_last_ns", "_over", "_tally", "late_ns", "sent_ns", "source")

    def __init__(self, source: Source, tally: Tally, over: Callable[[TimedCall, str | None], None]) -> None:
        self.source = source
        self.sent_ns = self.late_ns = self._last_ns = 0
        self._tally = tally
        self._over = over

    def begin(self) -> None:
        """A request is sent now."""
        self._last_ns = 0
        self.sent_ns = time.perf_counter_ns()

    def responded(self) -> None:
        now_ns = time.perf_counter_ns()
        if self._last_ns:
            self._tally.between.add(now_ns - self._last_ns)
        else:
            self._tally.first.add(now_ns - self.sent_ns + self.late_ns)
        self._last_ns = now_ns

    def answered(self, error: str | None) -> None:
        self._over(self, error)
