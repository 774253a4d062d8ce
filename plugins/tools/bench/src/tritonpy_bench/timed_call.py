"""A request in flight, with its times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tritonpy_bench.answers import Expected, Outputs
from tritonpy_bench.sources import Source
from tritonpy_bench.tally import Tally


class TimedCall:
    """Satisfies `Call`; used again for one request after the other.

    Attributes:
        source: of its requests.
        sent_ns: when the request was sent.
        late_ns: how long before that it was due.
        came_ns: when the last of its answer came, before anything in it was read.

    Args:
        source: likewise.
        tally: is told the times of responses.
        over: is called when the request is over, with the error.
    """

    __slots__ = (
        "_expected",
        "_is_read",
        "_last_ns",
        "_over",
        "_tally",
        "_tokens",
        "came_ns",
        "late_ns",
        "sent_ns",
        "source",
    )

    def __init__(self, source: Source, tally: Tally, over: Callable[[TimedCall, str | None], None]) -> None:
        self.source = source
        self.sent_ns = self.late_ns = self.came_ns = self._last_ns = self._tokens = 0
        self._expected: Sequence[Expected] = ()
        self._is_read = False  # a response of the request in flight
        self._tally = tally
        self._over = over

    def begin(self) -> None:
        """A request is sent now."""
        self._last_ns = self._tokens = 0
        self._is_read = False
        self._expected = self.source.expected
        self.sent_ns = time.perf_counter_ns()

    def read(self, outputs: Outputs) -> str | None:
        self._is_read = True
        self._tokens = self._tally.count_tokens(outputs)
        for expected in self._expected:
            if difference := expected.difference(outputs):
                return difference
        return None

    def responded(self, came_ns: int = 0) -> None:
        came_ns = self._came(came_ns)
        if self._last_ns:
            self._tally.between.add(came_ns - self._last_ns)
            if self._tokens:
                self._tally.token_gaps.add_each((came_ns - self._last_ns) // self._tokens, self._tokens)
        else:
            self._tally.first.add(came_ns - self.sent_ns + self.late_ns)
        self._last_ns = came_ns

    def answered(self, error: str | None, came_ns: int = 0) -> None:
        self.came_ns = self._came(came_ns)
        if error is None and self._expected and not self._is_read:
            first = self._expected[0]
            error = f"{first.where}: no response, expected output '{first.name}'"
        self._over(self, error)

    def _came(self, came_ns: int) -> int:
        # What came before the request was sent is no answer to it, unless a server answers unasked.
        return came_ns if came_ns > self.sent_ns else time.perf_counter_ns()
