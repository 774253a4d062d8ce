"""Batches and requests that a worker has and has not answered, and the report of those open for long."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from itertools import chain
from mmap import mmap

from tritonpy.errors import Internal, TritonError
from tritonpy.ipc.arena import CONTROL_SLOTS
from tritonpy.model.execution import Execution
from tritonpy.request import InferRequest

Report = Callable[[InferRequest, float], None]
"""Takes a request and the seconds since its `execute` returned."""

Flags = mmap | MutableSequence[int]
"""Shared with the worker: byte `slot` set to 1 cancels the request in that slot."""

_SLOTS_AT_ONCE = 64  # few instances ever need all there are: their numbers would weigh half a megabyte
_MOST_ANSWERED = 64  # batches that are remembered although they are over


class InFlight:
    """The batches and requests of one worker, from its start to its end; on the loop only.

    A request may stay open when its batch has been executed: it keeps its slot until its final response.

    Args:
        unanswered: watches requests that are open when `execute` returns.
        flags: cancel requests; none while there is no worker, which is sent nothing then.

    Attributes:
        batches: those that have not been executed, each with the slots of its requests, by number; the oldest
            first.
        requests: those that have no final response, by slot.
        has_called: the model has called other models.
    """

    def __init__(self, unanswered: UnansweredWatch, flags: Flags = bytearray()) -> None:  # noqa: B008 (empty)
        self.batches: dict[int, tuple[Execution, list[int]]] = {}
        self.requests: dict[int, InferRequest] = {}
        self.has_called = False
        self._unanswered = unanswered
        self._flags = flags
        # Coroutines may call other models when `execute` has returned: such batches, without holding them.
        self._left: dict[int, list[weakref.ref[InferRequest]]] = {}
        self._free: list[int] = []
        self._slot_count = 0  # those that are free or taken; the others have not been needed yet
        unanswered.clear()

    @property
    def room(self) -> int:
        """The number of requests that may be opened."""
        return CONTROL_SLOTS - len(self.requests)

    def reserve(self, count: int) -> None:
        """Have `count` slots free, or all that there are."""
        if len(self._free) < count:
            first = self._slot_count
            self._slot_count = min(first + max(count, _SLOTS_AT_ONCE), CONTROL_SLOTS)
            self._free[:0] = range(self._slot_count - 1, first - 1, -1)

    def add(self, request: InferRequest) -> int:
        """Give a request a slot, which must be reserved."""
        request.ticket.slot = slot = self._free.pop()
        self.requests[slot] = request
        if request.ticket.cancelled:
            self._flags[slot] = 1
        return slot

    def release(self, slot: int) -> None:
        """A request has its final response, or was not sent: its slot is free for another one."""
        request = self.requests.pop(slot, None)
        if request is None:
            return
        self._unanswered.remove(slot)
        if request.ticket.cancelled:
            self._flags[slot] = 0
        request.ticket.slot = -1
        self._free.append(slot)

    def release_all(self, execution: Execution, slots: list[int]) -> None:
        """A batch has been answered."""
        for request, slot in zip(execution.requests, slots, strict=True):
            # A request that answered by itself has given its slot back, and another may have it by now.
            if self.requests.get(slot) is request:
                self.release(slot)

    def leave(self, batch: int, execution: Execution, slots: list[int]) -> list[InferRequest]:
        """A batch has been executed, and is answered one by one; returns the requests that are open."""
        self._left[batch] = [weakref.ref(request) for request in execution.requests]
        if len(self._left) > 2 * len(self.requests) + _MOST_ANSWERED:
            for number, left in list(self._left.items()):
                if all(map(_is_over, left)):
                    del self._left[number]
        left_open = []
        for request, slot in zip(execution.requests, slots, strict=True):
            if self.requests.get(slot) is request:
                self._unanswered.add(slot, request)
                left_open.append(request)
        return left_open

    def running(self, batch: int) -> Execution | None:
        """The execution of that number, while `execute` has not returned."""
        sent = self.batches.get(batch)
        return sent[0] if sent is not None else None

    def when_open(self, slot: int, go_on: Callable[[], None]) -> None:
        """Call `go_on` when the request in a slot may have more responses; see `ResponseFlow`."""
        request = self.requests.get(slot)
        if request is None:
            go_on()
        else:
            request.response_flow().when_open(go_on)

    def reschedule(self, slot: int) -> InferRequest | None:
        """The request of a slot, whose execution will count it as one that is executed again."""
        request = self.requests.get(slot)
        if request is not None:
            for execution, slots in self.batches.values():
                if slot in slots and request in execution.requests:
                    execution.rescheduled_count += 1
        return request

    def cancel(self, request: InferRequest) -> int | None:
        """Tell the worker; a model polls `is_cancelled`.

        Returns:
            The request's batch if the model calls others, and no request of the batch is wanted any more.
        """
        self._flags[request.ticket.slot] = 1
        if not self.has_called:
            return None
        for batch, requests in chain(self._executing(), self._executed()):
            if request in requests:
                is_unwanted = all(
                    each is None or each.ticket.cancelled or each.ticket.answered for each in requests
                )
                return batch if is_unwanted else None
        return None

    def _executing(self) -> Iterator[tuple[int, Sequence[InferRequest | None]]]:
        for batch, (execution, _) in self.batches.items():
            yield batch, execution.requests

    def _executed(self) -> Iterator[tuple[int, Sequence[InferRequest | None]]]:
        for batch, requests in self._left.items():
            yield batch, [each() for each in requests]

    def fail(self, error: TritonError) -> None:
        """Answer everything with `error`."""
        batches, self.batches = self.batches, {}
        for execution, _ in batches.values():
            execution.fail(error)
        for request in list(self.requests.values()):
            request.fail(error)
        self.requests.clear()
        self._unanswered.clear()

    def lose(self, error: TritonError, begun_count: int) -> list[Execution]:
        """The worker has died; returns the batches that it had not begun.

        Args:
            error: how it died.
            begun_count: how many batches it executes side by side: it takes them in order, so the others had
                not begun.
        """
        batches = list(self.batches.values())
        for execution, slots in batches:
            for request, slot in zip(execution.requests, slots, strict=True):
                if self.requests.get(slot) is request:
                    del self.requests[slot]
        for execution, _ in batches[:begun_count]:
            execution.fail(Internal(f"{error.message} while it executed this request"))
        spared = [execution for execution, _ in batches[begun_count:]]
        for execution in spared:
            for request in execution.requests:
                request.ticket.slot = -1
        for request in self.requests.values():  # their execution was over, their answers were not
            request.fail(Internal(f"{error.message} before this request had its final response"))
        return spared


class UnansweredWatch:
    """Reports requests of one worker that are open long after `execute` returned; on the loop only.

    A model may answer later, through a response sender, and some need their time. But a sender that is held
    and never used leaves its client waiting, and nothing else would show it.

    One timer for all: requests come in the order of their times, so the first is the next to be due.

    Args:
        after_s: how long a request may be open; 0 for no limit.
        report: called once for a request that is open longer.
    """

    def __init__(self, after_s: float, report: Report) -> None:
        self._after_s = after_s
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, tuple[InferRequest, float]] = {}  # by slot, the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def add(self, slot: int, request: InferRequest) -> None:
        """`execute` has returned without an answer to this request."""
        if self._after_s:
            self._open[slot] = request, self._loop.time()
            if self._timer is None:
                self._timer = self._loop.call_later(self._after_s, self._check)

    def remove(self, slot: int) -> None:
        """The request in `slot` has its final response, if one was open at all."""
        self._open.pop(slot, None)

    def clear(self) -> None:
        """No request is open any more."""
        self._open.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._open:
            slot, (request, since) = next(iter(self._open.items()))
            if now - since < self._after_s:
                self._timer = self._loop.call_later(since + self._after_s - now, self._check)
                return
            del self._open[slot]
            self._report(request, now - since)


def _is_over(reference: weakref.ref[InferRequest]) -> bool:
    request = reference()
    return request is None or request.ticket.answered
