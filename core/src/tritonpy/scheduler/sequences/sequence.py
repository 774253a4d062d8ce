"""A sequence, and the place that an instance keeps for it."""

from __future__ import annotations

from collections import deque

from tritonpy.request import InferRequest
from tritonpy.states import SequenceStates


class Sequence:
    """Requests with one correlation id, from START to END.

    Attributes:
        correlation_id: what they have in common.
        requests: those that wait, in the order of arrival.
        running: the one that is executed now, or waits in a batcher for its batch.
        slot: where its state is; None while it waits in the backlog.
        is_open: more requests may come.
        has_run: an instance may know something of it.
        deadline_ns: when it has waited too long in the backlog; 0 for never.
        batched_ns: since when `running` has been waiting for its batch.
        states: what the server remembers of it, for models with implicit state.
        before: the one with the same correlation id that has to be over first.
        successor: the one that waits for this one.
    """

    __slots__ = (
        "batched_ns",
        "before",
        "correlation_id",
        "deadline_ns",
        "has_run",
        "is_open",
        "requests",
        "running",
        "slot",
        "states",
        "successor",
    )

    def __init__(self, correlation_id: int | str) -> None:
        self.correlation_id = correlation_id
        self.requests: deque[InferRequest] = deque()
        self.running: InferRequest | None = None
        self.slot: Slot | None = None
        self.is_open = True
        self.has_run = False
        self.deadline_ns = 0
        self.batched_ns = 0
        self.states: SequenceStates | None = None
        self.before: Sequence | None = None
        self.successor: Sequence | None = None

    @property
    def is_over(self) -> bool:
        """True if nothing of it is left to do."""
        return not (self.is_open or self.requests or self.running)


class Slot:
    """A place for one sequence in an instance.

    Attributes:
        index: its number in the instance; with the direct strategy the place in every batch.
        row: the slots of the same instance.
        sequence: which has it now.
    """

    __slots__ = ("index", "row", "sequence")

    def __init__(self, index: int, row: SlotRow) -> None:
        self.index = index
        self.row = row
        self.sequence: Sequence | None = None


class SlotRow:
    """The slots of one instance; each is made when a sequence first needs it, because there may be billions.

    Args:
        number: of the instance, for those that are alike.
        count: how many slots it has.

    Attributes:
        slots: those that were needed so far, by index.
        ready: those with a request that could be executed now, in the order in which they got it.
        is_used: new sequences may come here.
        is_lost: what the instance knew is gone, and it has not come back yet.
    """

    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.count = count
        self.slots: list[Slot] = []
        self.ready: dict[Slot, None] = {}
        self.is_used = True
        self.is_lost = False

    @property
    def free_indexes(self) -> list[int]:
        """Of the slots without a sequence, and of the next one that would be made."""
        free = [slot.index for slot in self.slots if slot.sequence is None]
        return [*free, len(self.slots)] if len(self.slots) < self.count else free

    @property
    def takes_sequences(self) -> bool:
        """True if a sequence may begin here."""
        return self.is_used and not self.is_lost

    @property
    def is_empty(self) -> bool:
        """True if it has no sequence."""
        return all(slot.sequence is None for slot in self.slots)

    def make_slot(self) -> Slot:
        """The next slot."""
        slot = Slot(len(self.slots), self)
        self.slots.append(slot)
        return slot

    def look(self, slot: Slot) -> None:
        """Find out if a slot has a request that could be executed now."""
        sequence = slot.sequence
        if sequence is not None and sequence.requests and sequence.running is None:
            self.ready.setdefault(slot)
        else:
            self.ready.pop(slot, None)
