"""The direct strategy: a sequence keeps one place in all batches of its instance.

A batch reaches from the first slot to the last one with a request. Where a slot in between has none, or one
whose inputs have other shapes, a null request keeps the place.
"""

from __future__ import annotations

from collections.abc import Callable

from tritonpy.model.execution import BatchOwner, Execution
from tritonpy.request import SEQUENCE_END, InferRequest, NullRequest
from tritonpy.scheduler.compatibility import Kind
from tritonpy.scheduler.decision import IDLE, Closed, Decision, Dispatch, Idle, WaitUntil
from tritonpy.scheduler.sequences.sequence import Slot, SlotRow
from tritonpy.scheduler.sequences.slots import SequenceBook


class DirectBatcher:
    """Forms the batches of one instance, one at a time; a `Batcher`; see `BatchOwner`.

    Args:
        book: has the sequences.
        row: the instance's slots.
        owner: notified of the end of the batches, too.
        make_null: makes a null request whose inputs are like those of a request.
        kind_of: what has to be equal among the requests of a batch.
        least_share: the share of the slots whose requests make a batch that waits for no more.
        queue_delay_ns: how long the oldest request may wait for that share; 0 for not at all.
        frees_early: the slot of a sequence is free when its last request is in a batch, not when that batch
            has been executed.
        is_held: whether to wait all the same.
    """

    def __init__(
        self,
        book: SequenceBook,
        row: SlotRow,
        owner: BatchOwner,
        *,
        make_null: Callable[[InferRequest], NullRequest],
        kind_of: Callable[[InferRequest], Kind],
        least_share: float = 0.0,
        queue_delay_ns: int = 0,
        frees_early: bool = True,
        is_held: Callable[[], bool] | None = None,
    ) -> None:
        self.row = row
        self._book = book
        self._owner = owner
        self._make_null = make_null
        self._kind_of = kind_of
        self._least_share = least_share if queue_delay_ns else 0.0
        self._queue_delay_ns = queue_delay_ns
        self._frees_early = frees_early
        self._is_held = is_held
        self._is_executing = False

    @property
    def waiting_count(self) -> int:
        """See `Batcher`; what is taken here is executed at once."""
        return 0

    def decide(self, now_ns: int) -> Decision:
        outcome = self._outcome(now_ns)
        return self._batch(outcome) if isinstance(outcome, Closed) else outcome

    def has_batch(self, now_ns: int) -> bool:
        return isinstance(self._outcome(now_ns), Closed)

    def withdraw(self, request: InferRequest) -> bool:
        """See `Batcher`; what is taken here is executed at once."""
        return False

    def withdraw_all(self) -> None:
        """See `Batcher`."""

    def batch_finished(self, execution: Execution) -> None:
        self._is_executing = False
        self._owner.batch_finished(execution)

    def stand_in(self, request: InferRequest) -> InferRequest:
        """See `BatchOwner`: the others keep their places."""
        self._owner.stand_in(request)
        return self._make_null(request)

    def _outcome(self, now_ns: int) -> Closed | WaitUntil | Idle:
        """The reason for a batch, or the decision while there is none."""
        ready, slot_count = self.row.ready, self.row.count
        if not ready or self._is_executing:
            return IDLE
        if self._is_held is not None:
            if self._is_held():
                return IDLE
            self._is_held = None
        if slot_count == 1:
            return Closed.SINGLE
        if len(ready) == slot_count:
            return Closed.FULL
        if not self._least_share:
            return Closed.QUEUE_EMPTY
        if len(ready) / slot_count >= self._least_share:
            return Closed.UTILIZATION
        deadline_ns = min([_head(slot).queue_start_ns for slot in ready]) + self._queue_delay_ns
        return Closed.DELAY if now_ns >= deadline_ns else WaitUntil(deadline_ns)

    def _batch(self, closed: Closed) -> Dispatch:
        ready = self.row.ready
        last = max([slot.index for slot in ready])
        places = self.row.slots[: last + 1]
        like = _head(next(slot for slot in places if slot in ready))
        kind = self._kind_of(like)
        is_taken = [slot in ready and self._kind_of(_head(slot)) == kind for slot in places]
        null_count = is_taken.count(False)
        if len(places) - null_count < len(ready):
            closed = Closed.SHAPE
        requests = [
            self._take(slot) if is_slot_taken else self._make_null(like)
            for slot, is_slot_taken in zip(places, is_taken, strict=True)
        ]
        self._is_executing = True
        return Dispatch(requests, len(requests), closed, null_count, self)

    def _take(self, slot: Slot) -> InferRequest:
        sequence = slot.sequence
        assert sequence is not None  # it is ready
        request = self._book.begin_running(sequence)
        sequence.has_run = True
        if self._frees_early and request.flags & SEQUENCE_END:
            self._book.release(sequence)
        return request


def _head(slot: Slot) -> InferRequest:
    assert slot.sequence is not None  # it is ready
    return slot.sequence.requests[0]
