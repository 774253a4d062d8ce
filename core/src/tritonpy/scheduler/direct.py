"""The default scheduler: every request is its own execution, first come first served."""

from __future__ import annotations

from collections import deque

from tritonpy.model.execution import Instance
from tritonpy.request import InferRequest
from tritonpy.scheduler.decision import IDLE, Closed, Decision, Dispatch, Refusal


class DirectPolicy:
    """First in, first out, one at a time; see `BatchingPolicy`."""

    is_lazy = False
    may_expire = False

    def __init__(self) -> None:
        self._queue: deque[InferRequest] = deque()

    @property
    def waiting_count(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    def add(self, request: InferRequest) -> None:
        self._queue.append(request)

    def remove(self, request: InferRequest) -> bool:
        try:
            self._queue.remove(request)
        except ValueError:
            return False
        return True

    def decide(self, now_ns: int, instance: Instance | None = None) -> Decision:
        """See `BatchingPolicy`; any instance will do."""
        if not self._queue:
            return IDLE
        request = self._queue.popleft()
        return Dispatch([request], request.batch_size, Closed.SINGLE)

    def has_batch(self, now_ns: int, instance: Instance) -> bool:
        return bool(self._queue)

    def is_settled(self, now_ns: int) -> bool:
        """See `BatchingPolicy`."""
        return bool(self._queue)

    def expire(self, now_ns: int) -> int:
        """See `BatchingPolicy`; requests wait without limit here."""
        return 0

    def take_refused(self) -> list[Refusal]:
        """See `BatchingPolicy`; nothing is ever refused here."""
        return []

    def take_all(self) -> list[InferRequest]:
        waiting = list(self._queue)
        self._queue.clear()
        return waiting
