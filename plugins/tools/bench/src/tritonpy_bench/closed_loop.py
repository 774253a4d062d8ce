"""A closed loop: so many requests at any time, each answer followed by the next request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tritonpy_bench.calls import Transport
from tritonpy_bench.paces import Concurrency, PeriodicConcurrency
from tritonpy_bench.sources import Source
from tritonpy_bench.tally import Tally
from tritonpy_bench.timed_call import TimedCall

_PAUSE_S = 0.02  # after a failure, so that a server that is gone is not asked a million times


class ClosedLoop:
    """Keeps requests in flight; satisfies `Loop`.

    Args:
        transport: carries them.
        sources: makes the source of each of the requests at a time.
        tally: counts them.
        pace: how many at a time.
        limit: send so many in all; 0 for no limit.
    """

    def __init__(
        self,
        transport: Transport,
        sources: Callable[[], Source],
        tally: Tally,
        pace: Concurrency | PeriodicConcurrency,
        limit: int = 0,
    ) -> None:
        self.idle = asyncio.Event()  # nothing is in flight, and nothing will be sent
        self._transport = transport
        self._sources = sources
        self._tally = tally
        self._left = limit or -1
        self._pace = pace
        self._wanted = 0
        self._until_step = pace.period if isinstance(pace, PeriodicConcurrency) else -1
        self._flying = 0

    def start(self) -> None:
        """Begin with as many as the pace begins with."""
        pace = self._pace
        self.set_concurrency(pace.start if isinstance(pace, PeriodicConcurrency) else pace.requests)

    def set_concurrency(self, requests: int) -> None:
        """Keep so many in flight from now on; what is too many comes to its end first."""
        self._wanted = requests
        while self._flying < self._wanted and self._left:
            self._flying += 1
            self._send(TimedCall(self._sources(), self._tally, self._answered))
        self._look()

    def stop(self) -> None:
        """Send nothing more."""
        self._left = 0
        self.set_concurrency(0)

    def _send(self, call: TimedCall) -> None:
        if self._left > 0:
            self._left -= 1
        self._tally.sent_count += 1
        request = call.source.next()
        call.begin()
        self._transport.send(request, call)

    def _goes_on(self, call: TimedCall) -> bool:
        """True if another request follows; a sequence that has begun comes to its end in any case."""
        return bool(self._left and self._flying <= self._wanted) or call.source.is_open

    def _answered(self, call: TimedCall, error: str | None) -> None:
        latency_ns = call.came_ns - call.sent_ns
        self._until_step -= 1
        if not self._until_step:
            self._grow()
        if error is None:
            self._tally.latency.add(latency_ns)
            if self._goes_on(call):
                self._send(call)
                return
        else:
            self._tally.failed(error)
            call.source.abandon()
            if self._goes_on(call):
                asyncio.get_running_loop().call_later(_PAUSE_S, self._again, call)
                return
        self._end()

    def _grow(self) -> None:
        pace = self._pace
        assert isinstance(pace, PeriodicConcurrency)  # no other counts down to 0
        if self._wanted >= pace.end:
            self.stop()
            return
        self._until_step = pace.period
        self.set_concurrency(min(pace.end, self._wanted + pace.step))

    def _again(self, call: TimedCall) -> None:
        if self._goes_on(call):
            self._send(call)
        else:
            self._end()

    def _end(self) -> None:
        self._flying -= 1
        self._look()

    def _look(self) -> None:
        if not self._flying and (not self._left or not self._wanted):
            self.idle.set()
