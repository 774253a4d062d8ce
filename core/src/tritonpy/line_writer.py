"""The thread behind the log, the access log and traces: no disk and no collector makes a request wait.

What waits is bounded. An item that finds too much waiting is dropped; how many were is said once for each
time that happens, behind what waited then. At the close everything that waits is written first; but where
nothing moves the thread is left behind, which cannot keep the process alive. That time is counted in short
turns: a machine that stands still for a while takes one of them and not all, and with them the last lines.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

_log = logging.getLogger("tritonpy.line_writer")

_IDLE_TURNS = 20


class LineWriter(Generic[T]):
    """Has items written in their order by a thread, which begins with the first; callable on any thread.

    Args:
        name: of what is written, and of the thread.
        write: writes some items. What it raises is logged, and costs those.
        dropped: logs the number of items that were dropped.
        end: called when all is written.
        most_held: the weight of what may wait and of what is being written, in all; one item may always.
        most_at_once: how many items `write` is given. What is put while it works comes with its next call.

    Attributes:
        held: the weight of what waits and of what is being written.
        has_begun: whether anything was put.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[T]], None],
        dropped: Callable[[int], None],
        end: Callable[[], None],
        most_held: int,
        most_at_once: int = 1000,
    ) -> None:
        self._name, self._write, self._say_dropped, self._end = name, write, dropped, end
        self._most_held, self._most_at_once = most_held, most_at_once
        # Reentrant: the garbage collector may run in `put`, and end what is then put.
        self._guard = threading.RLock()
        self._waiting: deque[tuple[T, int]] = deque()
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._is_woken = self._is_closed = self.has_begun = False
        self._dropped_count = self.held = 0
        self._thread = threading.Thread(target=self._run, name=f"tritonpy-{name}", daemon=True)

    def put(self, item: T, weight: int = 1) -> bool:
        """Have an item written, without waiting for anything.

        Returns:
            Whether it will be: not after `close`, nor where too much waits, unless it weighs nothing.
        """
        with self._guard:
            if self._is_closed:
                return False
            has_room = self.held + weight <= self._most_held or not self.held or not weight
            if has_room:
                self.held += weight
                self._waiting.append((item, weight))
            else:
                self._dropped_count += 1
            if not self._is_woken:
                self._is_woken = True
                self._wakes.put(None)  # with the lock: nothing may come behind the end
            if not self.has_begun:
                self.has_begun = True
                self._thread.start()
            return has_room

    def close(self, idle_s: float = 2.0, most_s: float = 8.0) -> bool:
        """Write what waits and end; blocking.

        Args:
            idle_s: how long to wait where nothing is written meanwhile.
            most_s: how long to wait at all.

        Returns:
            Whether all was written. Otherwise the thread goes on as long as the process does.
        """
        with self._guard:
            self._is_closed = True
        if not self.has_begun:
            self._end()
            return True
        self._wakes.put(None)
        held, idle_turns, turn_s = self.held, 0, idle_s / _IDLE_TURNS
        for _ in range(round(most_s / turn_s)):
            self._thread.join(turn_s)
            idle_turns, held = 0 if self.held < held else idle_turns + 1, self.held
            if not self._thread.is_alive() or idle_turns == _IDLE_TURNS:
                break
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_open = True
        while is_open:
            self._wakes.get()
            # Made before, for nothing may call the garbage collector while the lock is held here: what it
            # ends may log, and the thread with the lock of the log may wait for this one.
            none: deque[tuple[T, int]] = deque()
            with self._guard:
                taken, self._waiting = self._waiting, none
                dropped_count, self._dropped_count = self._dropped_count, 0
                is_open, self._is_woken = not self._is_closed, False
            while taken:
                self._write_some([taken.popleft() for _ in range(min(len(taken), self._most_at_once))])
            if dropped_count:
                self._say_dropped(dropped_count)
        self._end()

    def _write_some(self, part: Sequence[tuple[T, int]]) -> None:
        try:
            self._write([item for item, _ in part])
        except Exception:  # costs these, never the thread
            _log.exception("%d %s could not be written", len(part), self._name)
        weight = sum(weight for _, weight in part)
        with self._guard:
            self.held -= weight


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file; one that is new may be read and written by its owner alone. For `open(…, opener=…)`."""
    return os.open(path, flags, 0o600)
