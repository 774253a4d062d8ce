"""An open loop: requests at given times, whether or not others are answered."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator

from tritonpy_bench.alarm import Alarm
from tritonpy_bench.calls import Transport
from tritonpy_bench.tally import Tally

_MOST_FLYING = 1024  # further ones wait here, which their latencies tell
_MOST_AT_ONCE = 64  # are sent before answers are looked at again


class OpenLoop:
    """Sends each request when it is due; satisfies `Loop`.

    A latency begins when its request was due. So a server, or a client, that is held up delays all requests
    of that time and not only the one that happened to be in flight.

    Args:
        transport: carries the requests.
        requests: the next one each time; it never ends.
        tally: counts them.
        times_s: when each is due, in seconds from the start.
        limit: send so many in all; 0 for no limit.
    """

    def __init__(
        self,
        transport: Transport,
        requests: Iterator[bytes],
        tally: Tally,
        times_s: Iterator[float],
        limit: int = 0,
    ) -> None:
        self.idle = asyncio.Event()
        self._transport = transport
        self._requests = requests
        self._tally = tally
        self._times_s = times_s
        self._left = limit or -1
        self._flying = 0
        self._waiting: deque[int] = deque()
        self._free: list[_OpenCall] = []
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
            if self._flying < _MOST_FLYING:
                self._send(self._next_ns)
            else:
                self._waiting.append(self._next_ns)
            self._step()
        if self._left and self._alarm is not None:
            self._alarm.set(self._next_ns)

    def _send(self, due_ns: int) -> None:
        call = self._free.pop() if self._free else _OpenCall(self)
        self._flying += 1
        self._tally.sent_count += 1
        call.sent_ns = time.perf_counter_ns()
        call.late_ns = time.monotonic_ns() - due_ns
        self._transport.send(next(self._requests), call)

    def _answered(self, call: _OpenCall, error: str | None) -> None:
        self._flying -= 1
        if error is None:
            service_ns = time.perf_counter_ns() - call.sent_ns
            self._tally.succeeded(service_ns + call.late_ns)
            self._tally.served(service_ns)
        else:
            self._tally.failed(error)
        self._free.append(call)
        if self._waiting:
            self._send(self._waiting.popleft())
        elif not self._left:
            self._look()

    def _look(self) -> None:
        if not self._left and not self._flying and not self._waiting:
            self.idle.set()


class _OpenCall:
    """A request that is in flight; satisfies `Call`."""

    __slots__ = ("_loop", "late_ns", "sent_ns")

    def __init__(self, loop: OpenLoop) -> None:
        self._loop = loop
        self.late_ns = self.sent_ns = 0

    def answered(self, error: str | None) -> None:
        self._loop._answered(self, error)
