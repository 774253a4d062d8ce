"""The dynamic batcher's decision.

One *attempt* at a batch is a run of requests from the head of the queue. It grows as requests arrive, and is
started over only when one of its requests leaves the queue or is overtaken. How it ends, in the order of the
checks:

1. A preferred size was reached and the delay is not exceeded: exactly that many go, at once.
2. It cannot grow: the next request would exceed max_batch_size, has other shapes, or was refused by the
   strategy; or it has reached the largest preferred size. It goes.
3. No delay is configured, or the oldest request has waited for it: it goes.
4. Otherwise wait for the rest of the delay, or for another request.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter

from tritonpy.errors import TritonError
from tritonpy.model.execution import Instance
from tritonpy.request import InferRequest, NullRequest
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.compatibility import Kind, RequestKinds
from tritonpy.scheduler.decision import IDLE, Closed, Decision, Dispatch, Idle, Refusal, WaitUntil
from tritonpy.scheduler.queues import LeveledQueue
from tritonpy.tensor import Tensor

_log = logging.getLogger("tritonpy.batching")


class DynamicPolicy:
    """Collects requests into batches; see `BatchingPolicy`.

    Args:
        max_batch_size: rows that must not be exceeded; 0 counts as 1.
        preferred_batch_sizes: sizes at which a batch leaves without waiting; empty means `max_batch_size`.
        queue_delay_ns: how long the oldest request may wait for company.
        kinds: tells which requests may go together; None for all.
        strategy: narrows what would go together.
        queue: priorities and limits of those that wait; None for the order of arrival without limits.
        hold_until_count: decide nothing until this many requests have been queued, once (a test hook).
        since_ns: when a request came to this batcher, if it has waited elsewhere before.
    """

    is_lazy = True

    def __init__(
        self,
        *,
        max_batch_size: int,
        preferred_batch_sizes: Collection[int] = (),
        queue_delay_ns: int = 0,
        kinds: RequestKinds | None = None,
        strategy: BoundStrategy | None = None,
        queue: LeveledQueue | None = None,
        hold_until_count: int = 0,
        since_ns: Callable[[InferRequest], int] = attrgetter("queue_start_ns"),
    ) -> None:
        self._max_batch_size = max(1, max_batch_size)
        self._preferred = frozenset(preferred_batch_sizes) or {self._max_batch_size}
        self._max_preferred = max(self._preferred)
        self._queue_delay_ns = queue_delay_ns
        self._kinds = kinds or RequestKinds(0, (), has_optional_inputs=False)
        self._kind_of = self._kinds.of
        self._strategy = strategy
        self._hold_until_count = hold_until_count
        self._since_ns = since_ns
        self.may_expire = queue is not None
        self._levels = queue
        self._queue = queue.order if queue is not None else deque[InferRequest]()
        self._refused: list[Refusal] = []
        self._begin()

    def _begin(self) -> None:
        self._taken = 0  # requests of the attempt, counted from the head of the queue
        self._rows = 0
        self._best = 0  # requests of it that make a preferred size
        self._best_rows = 0
        self._closed: Closed | None = None
        self._kind: Kind = ()
        self._is_open = False  # whether the strategy has been told of this attempt

    @property
    def waiting_count(self) -> int:
        """Requests that wait."""
        return len(self._queue)

    def add(self, request: InferRequest) -> None:
        """See `BatchingPolicy`; an attempt that the request overtakes starts over."""
        if self._levels is None:
            self._queue.append(request)
        else:
            self._queue_changed(self._levels.add(request))
        if self._strategy is not None:
            try:
                self._strategy.admit(request)
            except TritonError:
                self.remove(request)
                raise

    def remove(self, request: InferRequest) -> bool:
        """See `BatchingPolicy`; an attempt that had included the request starts over."""
        if self._levels is not None:
            index = self._levels.remove(request)
            if index < 0:
                return False
        else:
            try:
                index = self._queue.index(request)
            except ValueError:
                return False
            del self._queue[index]
        self._queue_changed(index)
        return True

    def expire(self, now_ns: int) -> int:
        """See `BatchingPolicy`; an attempt that had included an expired request starts over."""
        levels = self._levels
        if levels is None:
            return 0
        expired, lowest = levels.expire(now_ns)
        self._refused += [(request, error, "REJECTED") for request, error in expired]
        self._queue_changed(lowest)
        return levels.next_deadline_ns

    def _queue_changed(self, index: int) -> None:
        """The queue has changed at an index: an attempt that reaches that far starts over."""
        # The one after the attempt may be what closed it.
        if index < self._taken or (index == self._taken and self._closed is not None):
            self._start_over()

    def _start_over(self) -> None:
        """End the attempt while its requests are still in the queue."""
        if self._is_open and self._strategy is not None:
            self._strategy.end()
        self._begin()

    def decide(self, now_ns: int, instance: Instance | None = None) -> Decision:
        """See `BatchingPolicy`; any instance will do."""
        outcome = self._outcome(now_ns)
        return self._dispatch(*outcome) if isinstance(outcome, tuple) else outcome

    def has_batch(self, now_ns: int, instance: Instance | None = None) -> bool:
        """See `BatchingPolicy`; the attempt stays open."""
        return isinstance(self._outcome(now_ns), tuple)

    def is_settled(self, now_ns: int) -> bool:
        """See `BatchingPolicy`; in a queue of levels what waits may be overtaken, or expire."""
        if self._levels is not None or not isinstance(self._outcome(now_ns), tuple):
            return False
        return self._closed is not None or self._rows >= self._max_preferred

    def _outcome(self, now_ns: int) -> tuple[int, int, Closed] | WaitUntil | Idle:
        """The number of requests to send, their rows, and the reason; or the wait until there are some."""
        if self._hold_until_count:
            if len(self._queue) < self._hold_until_count:
                return IDLE
            self._hold_until_count = 0
        self._grow()
        if not self._taken:
            return IDLE
        delay_ns = self._queue_delay_ns
        deadline_ns = self._since_ns(self._queue[0]) + delay_ns if delay_ns else 0
        is_late = delay_ns > 0 and now_ns >= deadline_ns
        if self._best and not is_late:
            return self._best, self._best_rows, Closed.PREFERRED
        if self._closed is not None:
            return self._taken, self._rows, self._closed
        if self._rows >= self._max_preferred:
            return self._taken, self._rows, Closed.FULL
        if is_late:
            return self._taken, self._rows, Closed.DELAY
        if delay_ns == 0:
            return self._taken, self._rows, Closed.QUEUE_EMPTY
        return WaitUntil(deadline_ns)

    def take_refused(self) -> list[Refusal]:
        refused = self._refused
        if refused:
            self._refused = []
        return refused

    def take_all(self) -> list[InferRequest]:
        waiting = list(self._queue)
        if self._levels is not None:
            self._levels.clear()
        else:
            self._queue.clear()
        self._start_over()
        return waiting

    def _grow(self) -> None:
        while self._closed is None and self._taken < len(self._queue):
            run, closed = self._fitting_run()
            if self._strategy is not None and run:
                run, closed = self._ask(self._strategy, run, closed)
            for request in run:
                self._include(request)
            self._closed = closed

    def _fitting_run(self) -> tuple[list[InferRequest], Closed | None]:
        """The requests behind the attempt that pass the batcher's own checks, and what stopped the run."""
        run: list[InferRequest] = []
        rows = self._rows
        queue = self._queue
        for index in range(self._taken, len(queue)):
            request = queue[index]
            if index == 0:
                self._kind = self._kind_of(request)
            elif rows + request.batch_size > self._max_batch_size:
                return run, Closed.FULL
            elif self._kind_of(request) != self._kind:
                return run, Closed.SHAPE
            rows += request.batch_size
            run.append(request)
        return run, None

    def _ask(
        self, strategy: BoundStrategy, run: list[InferRequest], closed: Closed | None
    ) -> tuple[list[InferRequest], Closed | None]:
        if not self._is_open:
            error = strategy.begin(run[0])
            if error is not None:
                self._drop(0, error)
                return [], None
            self._is_open = True
        count, error = strategy.accept(run)
        if error is not None:
            self._drop(self._taken + count, error)
            return run[:count], Closed.STRATEGY if self._taken + count else None
        if count == len(run):
            return run, closed
        if self._taken + count == 0:
            strategy.refused_alone(run[0])
            return run[:1], Closed.STRATEGY
        return run[:count], Closed.STRATEGY

    def _drop(self, index: int, error: TritonError) -> None:
        """Remove a request that the strategy failed on; without one before it the attempt starts over."""
        request = self._queue[index]
        self._refused.append((request, error, "BACKEND"))
        if self._levels is not None:
            self._levels.remove(request)
        else:
            del self._queue[index]
        if index == 0:
            self._start_over()

    def _include(self, request: InferRequest) -> None:
        if self._taken and not self._best and self._rows + request.batch_size > self._max_preferred:
            self._best, self._best_rows = self._taken, self._rows
        self._taken += 1
        self._rows += request.batch_size
        if self._rows in self._preferred:
            self._best, self._best_rows = self._taken, self._rows

    def _dispatch(self, count: int, rows: int, closed: Closed) -> Dispatch:
        if self._levels is not None:
            batch = self._levels.take(count)
        else:
            batch = [self._queue.popleft() for _ in range(count)]
        null_count = 0
        if self._is_open and self._strategy is not None:
            null_count = self._pad(self._strategy, batch, rows)
            self._strategy.end()
            for request in batch:
                request.batching_state = None
        self._begin()
        return Dispatch(batch, rows + null_count, closed, null_count)

    def _pad(self, strategy: BoundStrategy, batch: list[InferRequest], rows: int) -> int:
        """Fill a batch with null requests to the size that the strategy wants; how many they are."""
        missing = min(strategy.padded_size(rows), self._max_batch_size) - rows
        if missing <= 0:
            return 0
        try:
            batch += null_rows(batch, missing, self._kinds.shape_tensors)
        except TritonError as error:  # an input cannot be read: the model will say so
            _log.error("a batch cannot be padded: %s", error, extra=batch[0].about)
            return 0
        return missing


def null_rows(
    requests: Sequence[InferRequest], count: int, shape_tensors: Collection[str] = ()
) -> list[NullRequest]:
    """Make null requests of one row each, which go with a batch.

    They carry a row of one of its requests, not zeros: a model may fail on what no client sends. Nothing
    is copied where a request of the batch has one row only.

    Args:
        requests: the batch.
        count: how many.
        shape_tensors: inputs that have no batch dimension.

    Raises:
        InvalidArg: the bytes of an input are not what its shape says.
    """
    like = next((request for request in requests if request.batch_size == 1), requests[-1])
    inputs = like.inputs
    if like.batch_size != 1:
        inputs = {
            name: tensor if name in shape_tensors else _first_row(tensor) for name, tensor in inputs.items()
        }
    return [NullRequest(like.model_name, dict(inputs)) for _ in range(count)]


def _first_row(tensor: Tensor) -> Tensor:
    return Tensor.from_numpy(tensor.name, tensor.numpy()[:1], tensor.datatype)
