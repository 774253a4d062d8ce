"""Read-ahead: the number of batches an instance is fed, and the wait for quick answers (ADR 0007)."""

from __future__ import annotations

import asyncio
import os
import time

from tritonpy.model.execution import Instance

# What waits in a worker's socket can be neither cancelled in the queue nor given to another instance, so no
# more than about a millisecond of work is sent ahead; a model that needs up to ten gets one batch ahead,
# which hides the way there and back.
_MOST_AHEAD = 15
_AHEAD_NS = 1_000_000
_ONE_AHEAD_BELOW_NS = 10_000_000

# A thread gets its next batch through the loop, which costs it a fifth of a millisecond. One whose calls are
# much shorter is not fed ahead: it and the loop would take the interpreter's lock from each other.
_THREAD_AHEAD_FROM_NS = 250_000
# Nothing is below 0, so no thread is fed ahead: with it one client that left had more requests executed than
# tests/protocol/test_half_closed_http.py allows, and the reason has not been found.
_THREAD_AHEAD_BELOW_NS = 0

# Putting a core to sleep and waking it costs more than a quick model computes (ADR 0007).
_SPIN_BELOW_NS = 50_000
_SPIN_NS = 100_000
_HAS_CORES = (os.cpu_count() or 1) > 1


class ReadAhead:
    """The number of batches an instance may have, from a running mean of its executions' durations.

    Attributes:
        is_quick: answers come so soon that the loop may stay awake for them.
    """

    def __init__(self) -> None:
        self._usual_ns = _AHEAD_NS
        self.is_quick = False

    def learn(self, duration_ns: int) -> int:
        """Take one more duration into account.

        Returns:
            how many batches the instance may have, the running one included.
        """
        self._usual_ns += (duration_ns - self._usual_ns) // 8
        usual_ns = max(self._usual_ns, 1)
        self.is_quick = usual_ns < _SPIN_BELOW_NS and _HAS_CORES
        ahead = min(_MOST_AHEAD, _AHEAD_NS // usual_ns)
        return 1 + (ahead or int(usual_ns < _ONE_AHEAD_BELOW_NS))


class ThreadReadAhead:
    """The number of batches that an instance on a thread may have; `ReadAhead` is for workers."""

    def __init__(self) -> None:
        self._usual_ns = 0

    def learn(self, duration_ns: int) -> int:
        """See `ReadAhead`."""
        self._usual_ns += (duration_ns - self._usual_ns) // 8
        return 2 if _THREAD_AHEAD_FROM_NS <= self._usual_ns < _THREAD_AHEAD_BELOW_NS else 1


class SpinWait:
    """Keeps the loop turning, instead of sleeping, while an instance executes; on the loop only.

    Args:
        loop: kept turning, for 100 µs at most.
        instance: `depth` says whether an answer is still to come.
    """

    __slots__ = ("_instance", "_loop", "_until_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop, instance: Instance) -> None:
        self._loop = loop
        self._instance = instance
        self._until_ns = 0

    def begin(self) -> None:
        """A batch was sent whose answer is due within microseconds."""
        self._until_ns = time.monotonic_ns() + _SPIN_NS
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if self._instance.depth and time.monotonic_ns() < self._until_ns:
            self._loop.call_soon(self._turn)
