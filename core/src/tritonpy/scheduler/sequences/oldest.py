"""The oldest strategy: one request of each sequence at a time goes into a dynamic batcher.

A sequence has no place of its own in a batch: the model knows it by its correlation id.
"""

from __future__ import annotations

from collections.abc import Callable

from tritonpy.model.execution import BatchOwner
from tritonpy.request import SEQUENCE_START, InferRequest
from tritonpy.scheduler.decision import Decision, Dispatch
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy.scheduler.ordering import ResponseOrder
from tritonpy.scheduler.sequences.sequence import SlotRow
from tritonpy.scheduler.sequences.slots import SequenceBook

SinceNs = Callable[[InferRequest], int]


class OldestBatcher:
    """Forms the batches of one instance; a `Batcher`.

    Args:
        book: has the sequences.
        row: the instance's slots.
        owner: notified of the end of the batches.
        make_inner: makes the dynamic batcher, given since when a request waits there.
        order: hands responses on in the order in which requests came to the dynamic batcher.
        is_iterative: requests come again, and have their place in the order then.
    """

    def __init__(
        self,
        book: SequenceBook,
        row: SlotRow,
        owner: BatchOwner,
        *,
        make_inner: Callable[[SinceNs], DynamicPolicy],
        order: ResponseOrder | None = None,
        is_iterative: bool = False,
    ) -> None:
        self.row = row
        self._book = book
        self._owner = owner
        self._inner = make_inner(self._batched_ns)
        self._order = order
        self._is_iterative = is_iterative

    @property
    def waiting_count(self) -> int:
        return self._inner.waiting_count

    def decide(self, now_ns: int) -> Decision:
        self._hand_over(now_ns)
        decision = self._inner.decide(now_ns)
        if not isinstance(decision, Dispatch):
            return decision
        for request in decision.requests:
            sequence = self._book.sequence_of(request)
            assert sequence is not None  # its request is running
            sequence.has_run = True
        return Dispatch(decision.requests, decision.batch_size, decision.closed, owner=self._owner)

    def has_batch(self, now_ns: int) -> bool:
        self._hand_over(now_ns)
        return self._inner.has_batch(now_ns)

    def withdraw(self, request: InferRequest) -> bool:
        if not self._inner.remove(request):
            return False
        self._put_back(request)
        return True

    def withdraw_all(self) -> None:
        for request in self._inner.take_all():
            self._put_back(request)

    def _put_back(self, request: InferRequest) -> None:
        if self._order is not None and self._has_place_from_now(request):
            self._order.withdraw(request)
        self._book.put_back(request)

    def _hand_over(self, now_ns: int) -> None:
        while self.row.ready:
            sequence = next(iter(self.row.ready)).sequence
            assert sequence is not None  # it is ready
            request = self._book.begin_running(sequence)
            sequence.batched_ns = now_ns
            if self._order is not None and self._has_place_from_now(request):
                self._order.enroll(request)
            self._inner.add(request)

    def _has_place_from_now(self, request: InferRequest) -> bool:
        return not self._is_iterative or bool(request.flags & SEQUENCE_START)

    def _batched_ns(self, request: InferRequest) -> int:
        sequence = self._book.sequence_of(request)
        return sequence.batched_ns if sequence is not None else request.queue_start_ns
