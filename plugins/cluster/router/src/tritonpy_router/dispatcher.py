"""Gives each request to a replica: at once, or when one is less busy; no request waits without an end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from tritonpy.errors import TritonError, Unavailable

from tritonpy_router.model_load import ModelLoad
from tritonpy_router.replica import Replica
from tritonpy_router.scan import Asked
from tritonpy_router.view import View


class Routed(Protocol):
    """A request that wants a replica; told exactly once, unless it is withdrawn."""

    def go(self, replica: Replica) -> None:
        """Send it there; `Dispatcher.release` follows when it is over."""

    def no_replica(self, error: TritonError) -> None:
        """No replica takes it."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How many requests wait for a replica that is less busy, and how long.

    Attributes:
        replica_inflight: requests that this router has under way at one replica; 0 for any number.
        queued: requests that may wait.
        wait_s: how long each may.
    """

    replica_inflight: int = 0
    queued: int = 1000
    wait_s: float = 5.0


class _Visit(NamedTuple):
    """A request that is at a replica.

    Attributes:
        load: of its model there.
        ahead: requests for the model that were there before it.
        begun_s: when it was sent.
    """

    load: ModelLoad
    ahead: int
    begun_s: float


_Line: TypeAlias = tuple[str, str, int | str]
"""The model, version and sequence of requests of which the first must go before the next can."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request in the queue.

    Attributes:
        routed: the request; None when it was withdrawn.
        asked: what it says.
        without: replicas that it has tried.
        until_s: when it is refused.
    """

    routed: Routed | None
    asked: Asked
    without: Collection[Replica]
    until_s: float


class Dispatcher:
    """Picks replicas, counts what is under way, and lets requests wait; on the loop only.

    Args:
        view: knows the replicas.
        limits: of what is under way and waits.

    Attributes:
        queued: requests that wait.
    """

    def __init__(self, view: View, limits: QueueLimits) -> None:
        self._view = view
        self._limits = limits
        self._queues: dict[_Line, deque[_Waiting]] = {}
        self._visits: dict[object, _Visit] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._under_way = 0
        self._idle = asyncio.Event()
        self._is_retrying = False
        self.queued = 0

    def take(self, asked: Asked, routed: Routed, without: Collection[Replica] = ()) -> None:
        """Give a request to a replica, now or later.

        Args:
            asked: what it says.
            routed: is told.
            without: replicas that have been tried.
        """
        try:
            replica = self._pick(asked, without)
        except TritonError as exc:
            routed.no_replica(exc)
            return
        if replica is not None:
            self._send(replica, asked, routed)
        elif self.queued >= self._limits.queued:
            routed.no_replica(
                Unavailable(
                    f"every replica that has model '{asked.model}' has {self._limits.replica_inflight} "
                    f"requests of this router under way, and {self.queued} wait: see "
                    f"--max-replica-inflight and --max-queued"
                )
            )
        else:
            self._wait(_Waiting(routed, asked, without, self._view.now_s() + self._limits.wait_s))

    def take_any(self, replica: Replica) -> None:
        """Count a request that goes to a replica without a choice."""
        self._count(replica)

    def withdraw(self, routed: Routed) -> None:
        """A request that waits is not wanted any more."""
        for line in self._queues.values():
            for waiting in line:
                if waiting.routed is routed:
                    waiting.routed = None
                    self.queued -= 1
                    return

    def hand_over(self, routed: Routed, other: object) -> None:
        """Something that lasts, such as a stream, stands for a request, and is named when it is over."""
        visit = self._visits[other] = self._visits.pop(routed)
        visit.load.is_tried = True

    def release(self, replica: Replica, routed: object = None, is_timed: bool = False) -> None:
        """A request is over.

        Args:
            replica: had it.
            routed: the request; None for one that went there without a choice.
            is_timed: it is an inference that went well, and tells how quick the replica is.
        """
        self._under_way -= 1
        replica.inflight -= 1
        visit = self._visits.pop(routed, None)
        if visit is not None:
            visit.load.over()
            if is_timed:
                visit.load.answered(self._view.now_s() - visit.begun_s, visit.ahead)
        if self.queued:
            self.retry()
        if not (self._under_way or self.queued):
            self._idle.set()

    def retry(self) -> None:
        """Something has changed: see which of those that wait can go."""
        if self._is_retrying:  # what is placed may end another request at once
            return
        self._is_retrying = True
        try:
            for key, line in list(self._queues.items()):
                while line:
                    waiting = line.popleft()
                    if waiting.routed is not None and not self._place(waiting, waiting.routed):
                        line.appendleft(waiting)
                        break
                if not line:
                    self._queues.pop(key, None)
        finally:
            self._is_retrying = False

    async def drained(self) -> None:
        """Return when no request is under way or waits; there are no new ones."""
        while self._under_way or self.queued:
            self._idle.clear()
            await self._idle.wait()

    def close(self) -> None:
        """Refuse all that wait."""
        lines, self._queues = self._queues, {}
        self.queued = 0
        if not self._under_way:
            self._idle.set()
        for line in lines.values():
            for waiting in line:
                if waiting.routed is not None:
                    waiting.routed.no_replica(Unavailable("the router is stopping"))
        if self._timer is not None:
            self._timer.cancel()

    def _place(self, waiting: _Waiting, routed: Routed) -> bool:
        """Give a request that waits to a replica, or refuse it; False if it has to wait on."""
        try:
            replica = self._pick(waiting.asked, waiting.without)
        except TritonError as exc:
            self.queued -= 1
            routed.no_replica(exc)
            return True
        if replica is None:
            return False
        self.queued -= 1
        self._send(replica, waiting.asked, routed)
        return True

    def _pick(self, asked: Asked, without: Collection[Replica]) -> Replica | None:
        """A replica, or None if all that could have it are too busy.

        Raises:
            TritonError: none may have it.
        """
        most = self._limits.replica_inflight
        replica = self._view.pick(asked, without)
        if not most or replica.inflight < most:
            return replica
        if self._view.is_pinned(asked):
            return None
        full = {other for other in self._view if other.inflight >= most}
        try:
            return self._view.pick(asked, full | set(without))
        except TritonError:
            return None

    def _send(self, replica: Replica, asked: Asked, routed: Routed) -> None:
        self._count(replica)
        load = replica.load_of(asked.model)
        self._visits[routed] = _Visit(load, load.begin(), self._view.now_s())
        routed.go(replica)

    def _count(self, replica: Replica) -> None:
        self._under_way += 1
        replica.begin()

    def _wait(self, waiting: _Waiting) -> None:
        asked = waiting.asked
        self._queues.setdefault((asked.model, asked.version, asked.sequence), deque()).append(waiting)
        self.queued += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._limits.wait_s, self._expire)

    def _expire(self) -> None:
        """Refuse those that have waited long enough; each line has the oldest first."""
        self._timer = None
        now_s = self._view.now_s()
        for key, line in list(self._queues.items()):
            while line and (line[0].routed is None or line[0].until_s <= now_s):
                routed = line.popleft().routed
                if routed is not None:
                    self.queued -= 1
                    routed.no_replica(
                        Unavailable(
                            f"no replica that has model '{key[0]}' became less busy within "
                            f"{self._limits.wait_s:g} s: see --max-replica-inflight and --queue-timeout-secs"
                        )
                    )
            if not line:
                self._queues.pop(key, None)
        if self._queues:
            first_s = min(line[0].until_s for line in self._queues.values())
            self._timer = asyncio.get_running_loop().call_later(max(0.001, first_s - now_s), self._expire)
