"""The requests that wait for a batcher, in the order in which they are to run.

Without queue policies that is the order of arrival. With them a queue has *levels*: level 1 runs before level
2, and inside a level requests run as they came. A level limits how many wait and how long; one whose time is
up leaves with an error or steps back behind the others of its level.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from tritonpy.errors import TritonError, Unavailable
from tritonpy.request import InferRequest

_US = 1000
_LEAST_GONE = 64


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """The queue policy of one priority level.

    Attributes:
        max_size: how many may wait; 0 means no limit.
        timeout_ns: how long each may wait; 0 means no limit.
        allows_override: a request may bring a timeout of its own, if it is shorter.
        delays: a request whose time is up waits on behind the others of its level, instead of failing.
    """

    max_size: int = 0
    timeout_ns: int = 0
    allows_override: bool = False
    delays: bool = False

    def deadline_ns(self, request: InferRequest) -> int:
        """The time at which a request's wait is up; 0 for never."""
        timeout_ns = self.timeout_ns
        if self.allows_override and 0 < request.timeout_us * _US < timeout_ns:
            timeout_ns = request.timeout_us * _US
        return request.queue_start_ns + timeout_ns if timeout_ns else 0


_Place: TypeAlias = tuple[int, bool, int]
"""Where a request stands: its level, whether it is delayed, and its arrival."""

_NO_POLICIES: Mapping[int, QueuePolicy] = MappingProxyType({})


class LeveledQueue:
    """A queue with levels; the caller holds `order` and reads it, all changes go through the methods.

    Each level has two segments of `order`: the requests in time, behind them those that were delayed, both in
    the order of arrival. Nothing is kept for a level that has no request: there may be any number of them.

    Args:
        policy: of the levels that have none of their own.
        level_count: the levels are those from 1 to this one.
        default_level: of requests that name none, or one that does not exist.
        own_policies: of single levels.

    Attributes:
        order: the requests as they are to run.
    """

    def __init__(
        self,
        policy: QueuePolicy,
        level_count: int = 1,
        default_level: int = 1,
        own_policies: Mapping[int, QueuePolicy] = _NO_POLICIES,
    ) -> None:
        self.order: deque[InferRequest] = deque()
        self._policy = policy
        self._level_count = level_count
        self._default_level = default_level
        self._own_policies = own_policies
        self._places: dict[InferRequest, _Place] = {}
        self._deadlines: list[tuple[int, int, InferRequest]] = []
        self._arrivals = 0

    def add(self, request: InferRequest) -> int:
        """Put a request where it belongs; its index.

        Raises:
            Unavailable: its level is full.
        """
        level = request.priority if 1 <= request.priority <= self._level_count else self._default_level
        policy = self._policy_of(level)
        if policy.max_size and self._size(level) >= policy.max_size:
            raise Unavailable(f"{request.label}Exceeds maximum queue size")
        self._arrivals += 1
        deadline_ns = policy.deadline_ns(request)
        if deadline_ns:
            heapq.heappush(self._deadlines, (deadline_ns, self._arrivals, request))
        return self._insert(request, (level, False, self._arrivals))

    def remove(self, request: InferRequest) -> int:
        """Take a request out; the index it had, or -1 when it is not there."""
        place = self._places.get(request)
        if place is None:
            return -1
        index = self._index(place)
        del self.order[index]
        del self._places[request]
        self._sweep()
        return index

    def take(self, count: int) -> list[InferRequest]:
        """Take out the first `count`."""
        taken = [self.order.popleft() for _ in range(count)]
        for request in taken:
            del self._places[request]
        self._sweep()
        return taken

    def expire(self, now_ns: int) -> tuple[list[tuple[InferRequest, TritonError]], int]:
        """Refuse or delay the requests whose time is up.

        Returns:
            Those that leave, each with its error; and the lowest index at which anything has changed, the
            length of the queue when nothing has.
        """
        refused: list[tuple[InferRequest, TritonError]] = []
        lowest = len(self.order)
        while (deadline_ns := self.next_deadline_ns) and deadline_ns <= now_ns:
            _, _, request = heapq.heappop(self._deadlines)
            level, _, arrival = self._places[request]
            lowest = min(lowest, self.remove(request))
            if self._policy_of(level).delays:
                self._insert(request, (level, True, arrival))
            else:
                refused.append((request, Unavailable("Request timeout expired")))
        return refused, lowest

    @property
    def next_deadline_ns(self) -> int:
        """The time at which `expire` has something to do; 0 when there is none."""
        deadlines = self._deadlines
        while deadlines and not self._is_in_time(deadlines[0][2]):
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else 0

    def clear(self) -> None:
        """Take out everything."""
        self.order.clear()
        self._places.clear()
        self._deadlines.clear()

    def _policy_of(self, level: int) -> QueuePolicy:
        return self._own_policies.get(level, self._policy)

    def _insert(self, request: InferRequest, place: _Place) -> int:
        index = self._index(place)
        self.order.insert(index, request)
        self._places[request] = place
        return index

    def _index(self, place: tuple[int, ...]) -> int:
        """The index of a request with this place, present or not; `order` is sorted by unique places."""
        order, places = self.order, self._places
        if not order or places[order[-1]] < place:
            return len(order)
        return bisect_left(order, place, key=places.__getitem__)

    def _size(self, level: int) -> int:
        if self._level_count == 1:
            return len(self.order)
        return self._index((level + 1,)) - self._index((level,))

    def _is_in_time(self, request: InferRequest) -> bool:
        """True if a request waits and has not been delayed."""
        place = self._places.get(request)
        return place is not None and not place[1]

    def _sweep(self) -> None:
        """Forget the deadlines of requests that left, before they outnumber those that wait."""
        if len(self._deadlines) > 2 * len(self.order) + _LEAST_GONE:
            self._deadlines = [entry for entry in self._deadlines if self._is_in_time(entry[2])]
            heapq.heapify(self._deadlines)
