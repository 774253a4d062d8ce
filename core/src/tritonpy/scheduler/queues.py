"""The requests that wait for a batcher, in the order in which they are to run.

Without queue policies that is the order of arrival. With them a queue has *levels*: level 1 runs before level
2, and inside a level requests run as they came. A level limits how many wait and how long; one whose time is
up leaves with an error or steps back behind the others of its level.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tritonpy.errors import TritonError, Unavailable
from tritonpy.request import InferRequest

_US = 1000
_LEAST_GONE = 64


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """How requests of one level wait.

    Attributes:
        max_size: how many may wait; 0 means no limit.
        timeout_ns: how long each may wait; 0 means for ever.
        allows_override: a request may bring a timeout of its own, if it is shorter.
        delays: a request whose time is up waits on behind the others of its level, instead of failing.
    """

    max_size: int = 0
    timeout_ns: int = 0
    allows_override: bool = False
    delays: bool = False

    def deadline_ns(self, request: InferRequest) -> int:
        """When a request's time is up; 0 for never."""
        timeout_ns = self.timeout_ns
        if self.allows_override and 0 < request.timeout_us * _US < timeout_ns:
            timeout_ns = request.timeout_us * _US
        return request.queue_start_ns + timeout_ns if timeout_ns else 0


class LeveledQueue:
    """A queue with levels; the caller holds `order` and reads it, all changes go through the methods.

    Each level has two segments of `order`: the requests in time, behind them those that were delayed.

    Args:
        policies: one for each level, from level 1 on.
        default_level: of requests that name none, or one that does not exist.

    Attributes:
        order: the requests as they are to run.
    """

    def __init__(self, policies: Sequence[QueuePolicy], default_level: int = 1) -> None:
        self.order: deque[InferRequest] = deque()
        self._policies = tuple(policies)
        self._default_level = default_level
        self._sizes = [0] * (2 * len(self._policies))
        self._segments: dict[InferRequest, int] = {}
        self._deadlines: list[tuple[int, int, InferRequest]] = []
        self._arrivals = 0

    def add(self, request: InferRequest) -> int:
        """Put a request where it belongs; its index.

        Raises:
            Unavailable: its level is full.
        """
        level = request.priority if 1 <= request.priority <= len(self._policies) else self._default_level
        policy = self._policies[level - 1]
        segment = 2 * (level - 1)
        if policy.max_size and self._sizes[segment] + self._sizes[segment + 1] >= policy.max_size:
            raise Unavailable(f"{request.label}Exceeds maximum queue size")
        deadline_ns = policy.deadline_ns(request)
        if deadline_ns:
            self._arrivals += 1  # no two entries are compared by request
            heapq.heappush(self._deadlines, (deadline_ns, self._arrivals, request))
        return self._insert(request, segment)

    def remove(self, request: InferRequest) -> int:
        """Take a request out; the index it had, or -1 when it is not there."""
        segment = self._segments.pop(request, None)
        if segment is None:
            return -1
        index = self.order.index(request)
        del self.order[index]
        self._sizes[segment] -= 1
        self._sweep()
        return index

    def take(self, count: int) -> list[InferRequest]:
        """Take out the first so many."""
        taken = [self.order.popleft() for _ in range(count)]
        for request in taken:
            self._sizes[self._segments.pop(request)] -= 1
        self._sweep()
        return taken

    def expire(self, now_ns: int) -> tuple[list[tuple[InferRequest, TritonError]], int]:
        """Deal with the requests whose time is up.

        Returns:
            Those that leave, each with its error; and the lowest index at which anything has changed, the
            length of the queue when nothing has.
        """
        refused: list[tuple[InferRequest, TritonError]] = []
        lowest = len(self.order)
        while (deadline_ns := self.next_deadline_ns) and deadline_ns <= now_ns:
            _, _, request = heapq.heappop(self._deadlines)
            segment = self._segments[request]
            lowest = min(lowest, self.remove(request))
            if self._policies[segment // 2].delays:
                self._insert(request, segment + 1)
            else:
                refused.append((request, Unavailable("Request timeout expired")))
        return refused, lowest

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` has something to do; 0 when there is no such time."""
        deadlines = self._deadlines
        while deadlines and self._segments.get(deadlines[0][2], 1) % 2:  # gone, or delayed by now
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else 0

    def clear(self) -> None:
        """Take out everything."""
        self.order.clear()
        self._segments.clear()
        self._deadlines.clear()
        self._sizes = [0] * len(self._sizes)

    def _insert(self, request: InferRequest, segment: int) -> int:
        index = sum(self._sizes[: segment + 1])
        self.order.insert(index, request)
        self._sizes[segment] += 1
        self._segments[request] = segment
        return index

    def _sweep(self) -> None:
        """Forget the deadlines of requests that left, before they outnumber those that wait."""
        if len(self._deadlines) > 2 * len(self.order) + _LEAST_GONE:
            self._deadlines = [entry for entry in self._deadlines if self._segments.get(entry[2], 1) % 2 == 0]
            heapq.heapify(self._deadlines)
