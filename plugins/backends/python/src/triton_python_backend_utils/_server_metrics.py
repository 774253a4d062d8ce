"""Metrics that the server keeps: asked for by messages, changed by few and small ones."""

from __future__ import annotations

import threading
import time
from _queue import SimpleQueue  # the C part alone: its `put` may be called from a finalizer
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ._errors import TritonModelException
from ._link import Link

_DELAY_S = 0.05
_MOST_AT_ONCE = 32
"""The number of observations in that time that are sent one by one; further ones are summed up."""

_stores: list[ServerMetrics] = []


class ServerMetrics:
    """Satisfies `_metrics.Store` for the models behind one link.

    Changes are summed up here and sent together, so that a model which counts every token costs the server no
    more than one that counts every batch. A thread sends them after a moment; the worker does when `execute`
    returns, so that a client that has its answer finds it counted. Observations are sent at once as long as
    there are few: unlike a counter, a histogram has no value that a model could ask for, only the page.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._is_in_child = False
        self._begin()

    def go_on_in_child(self) -> None:
        """Send each change at once: a forked child has no thread that does it, and may end at any time."""
        self._is_in_child = True
        self._begin()

    def _begin(self) -> None:
        # Locks that the same thread may take again: a finalizer or a signal handler may come at any point.
        self._sending = threading.RLock()  # held while changes travel, or an older one could arrive last
        self._lock = threading.RLock()  # guards the next line
        self._changes: dict[int, list[Any]] = {}  # Any: [is it set, value], or [counts by bucket, sum]
        self._is_sending = False  # written under `_sending`: what was taken may not have been sent
        self._released: deque[int] = deque()
        self._wake: SimpleQueue[bool] = SimpleQueue()  # False: no more will come
        self._is_awake = False
        self._at_once_count = 0
        if self._is_in_child:
            return
        threading.Thread(target=self._send_by_and_by, name="metrics", daemon=True).start()

    def hold(self, name: str, description: str, kind: int) -> tuple[int, str]:
        self.flush()  # a family that has just been dropped must not lend its values to its successor
        number, owner = self.link.ask("metrics.hold", str(name), str(description), kind)
        return number, owner

    def series(
        self, hold: int, labels: dict[str, str], buckets: list[float] | None
    ) -> tuple[int, list[float]]:
        self.flush()
        number, bounds = self.link.ask("metrics.series", hold, labels, buckets)
        return number, bounds

    def add(self, series: int, amount: float) -> None:
        with self._lock:
            change = self._changes.get(series)
            if change is None:
                self._changes[series] = [False, amount]
            else:
                change[1] += amount
        self._send_soon()

    def set(self, series: int, value: float) -> None:
        with self._lock:
            self._changes[series] = [True, value]
        self._send_soon()

    def observe(self, series: int, bounds: Sequence[float], value: float) -> None:
        with self._lock:
            change = self._changes.get(series)
            if change is None:
                change = self._changes[series] = [[0] * (len(bounds) + 1), 0.0]
            change[0][bisect_left(bounds, value)] += 1
            change[1] += value
        self._send_soon()
        if self._at_once_count < _MOST_AT_ONCE:
            self._at_once_count += 1
            with suppress(TritonModelException):  # a server that is gone shows nothing anyway
                self.flush()

    def value(self, series: int) -> float:
        self.flush()
        value: float = self.link.ask("metrics.value", series)
        return value

    def release(self, hold: int) -> None:
        if self._is_in_child:
            return  # the parent has it, too
        self._released.append(hold)
        self._send_soon()

    def flush(self) -> None:
        """Send what has changed; it is on its way when this returns, sent by this or another thread."""
        # In this order, and without a lock: a thread that takes changes away has first set `_is_sending`.
        if not self._changes and not self._released and not self._is_sending:
            return
        with self._sending:
            was_sending = self._is_sending  # a finalizer or a signal handler in the midst of it
            self._is_sending = True
            try:
                self._send()
            finally:
                self._is_sending = was_sending

    def close(self) -> None:
        """Send what has changed, and end the thread."""
        with suppress(TritonModelException):  # a server that is gone shows nothing anyway
            self.flush()
        self._wake.put(False)

    def _send(self) -> None:
        with self._lock:
            changes, self._changes = self._changes, {}
        if changes:
            self.link.tell("metrics.change", [(series, *change) for series, change in changes.items()])
        while self._released:
            self.link.tell("metrics.release", self._released.popleft())

    def _send_soon(self) -> None:
        if self._is_in_child:
            self.flush()
        elif not self._is_awake:
            self._is_awake = True
            self._wake.put(True)

    def _send_by_and_by(self) -> None:
        while self._wake.get():
            time.sleep(_DELAY_S)
            self._is_awake = False  # first: what changes from here on wakes this thread again
            self._at_once_count = 0
            try:
                self.flush()
            except TritonModelException:  # the server is gone, and this process soon will be
                return


def server_metrics(link: Link) -> ServerMetrics:
    """The store behind `link`; made when it is first asked for."""
    for store in _stores:
        if store.link is link:
            return store
    _stores.append(ServerMetrics(link))
    return _stores[-1]


def go_on_in_child() -> None:
    """Have all stores go on in a forked child; called by the worker."""
    for store in _stores:
        store.go_on_in_child()


def close_metrics(link: Link) -> None:
    """The model behind `link` has been finalized."""
    for store in _stores[:]:
        if store.link is link:
            _stores.remove(store)
            store.close()


def flush_metrics() -> None:
    """Send what has changed in any store; called by the worker before it answers."""
    for store in _stores:
        store.flush()
