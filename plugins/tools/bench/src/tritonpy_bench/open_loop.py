"""An open loop: requests at given times, whether or not others are answered."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

from tritonpy_bench.alarm import Alarm
from tritonpy_bench.calls import Transport
from tritonpy_bench.sources import Source
from tritonpy_bench.tally import Tally
from tritonpy_bench.timed_call import TimedCall

MOST_FLYING = 1024
"""Requests that an open loop has in flight at most."""

_MOST_AT_ONCE = 64  # are sent before answers are looked at again


class OpenLoop:
    """Sends each request when it is due; satisfies `Loop`.

    A latency begins when its request was due. So a server, or a client, that is held up delays all requests
    of that time and not only the one that happened to be in flight.

    Args:
        transport: carries the requests.
        sources: makes the sources of requests; of sequences, each has one request at a time.
        tally: counts them.
        times_s: when each is due, in seconds from the start.
        limit: send so many in all; 0 for no limit.
        most_flying: requests at a time; further ones wait here, which their latencies tell.
        takes_turns: make so many sources at the start, of which the one sends that has waited longest; so
            that so many sequences are under way at a time, however soon requests are answered.
    """

    def __init__(
        self,
        transport: Transport,
        sources: Callable[[], Source],
        tally: Tally,
        times_s: Iterator[float],
        limit: int = 0,
        most_flying: int = MOST_FLYING,
        *,
        takes_turns: bool = False,
    ) -> None:
        self.idle = asyncio.Event()
        self._transport = transport
        self._sources = sources
        self._most_flying = most_flying
        self._tally = tally
        self._times_s = times_s
        self._left = limit or -1
        self._flying = 0
        self._waiting: deque[int] = deque()
        self._free: deque[TimedCall] = deque()
        if takes_turns:
            self._free.extend(self._new_call() for _ in range(most_flying))
        self._start_ns = 0
        self._next_ns = 0
        self._alarm: Alarm | None = None

    def start(self) -> None:
        """Begin; the times count from now."""
        self._start_ns = time.monotonic_ns()
        self._alarm = Alarm(self._ring)
        self._step()
        self._ring()

    def stop(self) -> None:
        """Send nothing more."""
        self._left = 0
        self._waiting.clear()
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None
        self._look()

    def _step(self) -> None:
        """Find when the next request is due."""
        if self._left:
            try:
                self._next_ns = self._start_ns + int(next(self._times_s) * 1e9)
                return
            except StopIteration:
                self._left = 0
        self._look()

    def _ring(self) -> None:
        for _ in range(_MOST_AT_ONCE):
            if not self._left or self._next_ns > time.monotonic_ns():
                break
            self._left -= 1
            self._tally.due_count += 1
            if self._flying < self._most_flying:
                self._send(self._next_ns)
            else:
                self._waiting.append(self._next_ns)
            self._step()
        if self._left and self._alarm is not None:
            self._alarm.set(self._next_ns)

    def _send(self, due_ns: int) -> None:
        call = self._free.popleft() if self._free else self._new_call()
        self._flying += 1
        self._tally.sent_count += 1
        request = call.source.next()
        call.begin()
        call.late_ns = time.monotonic_ns() - due_ns
        self._transport.send(request, call)

    def _new_call(self) -> TimedCall:
        return TimedCall(self._sources(), self._tally, self._answered)

    def _answered(self, call: TimedCall, error: str | None) -> None:
        self._flying -= 1
        if error is None:
            service_ns = call.came_ns - call.sent_ns
            self._tally.latency.add(service_ns + call.late_ns)
            self._tally.service.add(service_ns)
        else:
            self._tally.failed(error)
            call.source.abandon()
        self._free.append(call)
        if self._waiting:
            self._send(self._waiting.popleft())
        elif not self._left:
            self._look()

    def _look(self) -> None:
        if not self._left and not self._flying and not self._waiting:
            self.idle.set()
