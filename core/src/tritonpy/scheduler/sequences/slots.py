"""The slots of a sequence batcher: its open sequences, the slots they have, and those in the backlog.

A sequence begins with START and gets a slot: the free one with the smallest number of all instances, so that
sequences spread over instances before one of them has two. When there is none it waits in the backlog, and
what is sent for it waits with it. A slot is free again when the sequence has ended, whether its client said
so or it was ended: idle for too long, one of its requests cancelled, its instance dead.

An id may be used again before the sequence that had it is over. The next one then waits for it: a model that
knows sequences by their ids would mix them up.
"""

from __future__ import annotations

import heapq
import logging
from collections import OrderedDict
from collections.abc import Iterable

from tritonpy.errors import Cancelled, InvalidArg, TritonError, Unavailable
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.scheduler.decision import Refusal
from tritonpy.scheduler.sequences.expiry import Backlog, IdleWatch
from tritonpy.scheduler.sequences.sequence import Sequence, Slot, SlotRow

_log = logging.getLogger("tritonpy.batching")

_MOST_REASONS = 1024


class SequenceBook:
    """The sequences of one model version; waits for nothing and reads no clock.

    Args:
        model_name: for messages.
        max_idle_us: how long a sequence may be idle.

    Attributes:
        refused: requests that left with an error and have not been asked for yet.
    """

    def __init__(self, model_name: str, max_idle_us: int) -> None:
        self._model_name = model_name
        self._max_idle_us = max_idle_us
        self._latest: dict[int | str, Sequence] = {}  # of each id, until it is over
        self._sequences: dict[InferRequest, Sequence] = {}  # of all requests that are not finished
        self._rows: list[SlotRow] = []
        self._free: list[tuple[int, int, SlotRow]] = []  # index of a slot and number of its row come first
        self._backlog = Backlog()
        self._idle = IdleWatch(max_idle_us * 1000)
        self._running_count = 0
        self._reasons: OrderedDict[int | str, str] = OrderedDict()  # why sequences ended that did not say so
        self.refused: list[Refusal] = []

    @property
    def waiting_count(self) -> int:
        """Requests that wait for their turn."""
        return len(self._sequences) - self._running_count

    @property
    def open_count(self) -> int:
        """Ids whose sequences are not over."""
        return len(self._latest)

    @property
    def backlog_count(self) -> int:
        """Requests in the backlog."""
        return sum(len(sequence.requests) for sequence in self._backlog)

    def is_open(self, correlation_id: int | str) -> bool:
        """True if a sequence with this id has begun and not ended."""
        latest = self._latest.get(correlation_id)
        return latest is not None and latest.is_open

    def sequence_of(self, request: InferRequest) -> Sequence | None:
        """The sequence of a request that is not finished."""
        return self._sequences.get(request)

    # Requests.

    def add(self, request: InferRequest) -> None:
        """Take a request where its sequence is.

        Raises:
            InvalidArg: the sequence has not begun, and the request does not start it.
        """
        correlation_id = request.correlation_id
        sequence = self._latest.get(correlation_id)
        if sequence is None or not sequence.is_open:
            sequence = self._begin(request, sequence)
        elif request.flags & SEQUENCE_START:
            _log.warning(
                "sequence %s for model '%s' has a conflict. The previous sequence did not end before this "
                "sequence start. Previous sequence will be terminated early.",
                correlation_id,
                self._model_name,
                extra=request.about,
            )
        if request.flags & SEQUENCE_END:
            sequence.is_open = False
        self._queue(sequence, request)

    def add_again(self, request: InferRequest) -> None:
        """Take back a request that is being executed, for the next step of its sequence.

        Raises:
            InvalidArg: its sequence has ended meanwhile.
        """
        sequence = self._sequences.get(request)
        if sequence is None:
            raise self.unstarted(request.correlation_id)
        sequence.requests.appendleft(request)

    def _begin(self, request: InferRequest, before: Sequence | None) -> Sequence:
        correlation_id = request.correlation_id
        if not request.flags & SEQUENCE_START:
            raise self.unstarted(correlation_id)
        self._reasons.pop(correlation_id, None)
        sequence = self._latest[correlation_id] = Sequence(correlation_id)
        if before is not None:
            before.successor, sequence.before = sequence, before
            self._backlog.add(sequence)
        elif not self._seat(sequence):
            self._backlog.add(sequence)
        return sequence

    def _queue(self, sequence: Sequence, request: InferRequest) -> None:
        sequence.requests.append(request)
        self._sequences[request] = sequence
        slot = sequence.slot
        if slot is None:
            if request.timeout_us:
                self._backlog.limit(sequence, request.queue_start_ns, request.timeout_us)
            return
        self._idle.remove(sequence)
        slot.row.look(slot)

    def unstarted(self, correlation_id: int | str) -> TritonError:
        """The error for a request that continues a sequence which has not begun."""
        reason = self._reasons.get(correlation_id, "")
        return InvalidArg(
            f"inference request for sequence {correlation_id} to model '{self._model_name}' must specify the "
            f"START flag on the first request of the sequence{reason and f'; {reason}'}"
        )

    def begin_running(self, sequence: Sequence) -> InferRequest:
        """Take the next request of a sequence, which must be ready."""
        request = sequence.running = sequence.requests.popleft()
        self._running_count += 1
        if sequence.slot is not None:
            sequence.slot.row.look(sequence.slot)
        return request

    def put_back(self, request: InferRequest) -> None:
        """Put back a request that was taken and not executed: it is the next one again."""
        sequence = self._sequences[request]
        sequence.running = None
        self._running_count -= 1
        sequence.requests.appendleft(request)
        if sequence.slot is not None:
            sequence.slot.row.look(sequence.slot)

    def finish_running(self, sequence: Sequence) -> None:
        """The request that a sequence was running is done; or it waits for its next step."""
        request, sequence.running = sequence.running, None
        if request is None:
            return
        self._running_count -= 1
        if not (sequence.requests and sequence.requests[0] is request):
            self._sequences.pop(request, None)
        if sequence.is_over:
            self._close(sequence)
        elif sequence.slot is not None:
            if not sequence.requests:
                self._idle.add(sequence)
            sequence.slot.row.look(sequence.slot)

    # Ends of sequences.

    def end(self, sequence: Sequence, reason: str, error: TritonError | None, counted_as: str = "") -> None:
        """End a sequence that its client has not ended; its slot is free when nothing of it runs.

        Args:
            sequence: the one.
            reason: the text that its client gets when it goes on.
            error: the answer to its requests that wait; None to let them run.
            counted_as: the reason under which they are counted.
        """
        if sequence.is_open:
            self._reasons[sequence.correlation_id] = reason
            if len(self._reasons) > _MOST_REASONS:
                self._reasons.popitem(last=False)
        sequence.is_open = False
        self._idle.remove(sequence)
        self._backlog.remove(sequence)
        if error is not None:
            for request in sequence.requests:
                if request is not sequence.running:
                    self._sequences.pop(request, None)
                self.refused.append((request, error, counted_as))
            sequence.requests.clear()
        if sequence.is_over:
            self._close(sequence)
        elif sequence.slot is not None:
            sequence.slot.row.look(sequence.slot)

    def cancel(self, request: InferRequest) -> bool:
        """Take out a request that waits and end its sequence; False when it does not wait."""
        sequence = self._sequences.get(request)
        if sequence is None or request not in sequence.requests:
            return False
        sequence.requests.remove(request)
        if request is not sequence.running:
            del self._sequences[request]
        error = Cancelled(f"another request of sequence {sequence.correlation_id} was cancelled")
        self.end(
            sequence, "the one before was ended because a request of it was cancelled", error, "CANCELED"
        )
        return True

    def _close(self, sequence: Sequence) -> None:
        """A sequence is over."""
        before, successor = sequence.before, sequence.successor
        sequence.before = sequence.successor = None
        if before is not None:  # it never began: its successor has to wait for that one, too
            before.successor = successor
        if successor is not None:
            successor.before = before
        elif before is not None:
            self._latest[sequence.correlation_id] = before
        elif self._latest.get(sequence.correlation_id) is sequence:
            del self._latest[sequence.correlation_id]
        self.release(sequence)
        self._seat_backlog()

    def release(self, sequence: Sequence) -> None:
        """Free the slot of a sequence, or give it to the first one of the backlog."""
        slot, sequence.slot = sequence.slot, None
        if slot is None or slot.sequence is not sequence:
            return
        slot.sequence = None
        slot.row.look(slot)
        if not slot.row.takes_sequences:
            return
        self._set_free(slot.row, slot.index)
        self._seat_backlog()

    def expire(self, now_ns: int) -> int:
        """End the sequences that have been idle or in the backlog for too long; when the next one will be."""
        for sequence in self._idle.expire(now_ns):
            reason = (
                f"the one before was ended after it had been idle for {self._max_idle_us} microseconds "
                f"('max_sequence_idle_microseconds' of 'sequence_batching')"
            )
            self.end(sequence, reason, None)
        for sequence in self._backlog.expire(now_ns):
            error = Unavailable("timeout of the corresponding sequence has been expired")
            reason = "the one before got no slot within the timeout of one of its requests"
            self.end(sequence, reason, error, "REJECTED")
        idle_ns, backlog_ns = self._idle.next_deadline_ns, self._backlog.next_deadline_ns
        return min(idle_ns, backlog_ns) if idle_ns and backlog_ns else idle_ns or backlog_ns

    # Slots.

    def use(self, rows: Iterable[SlotRow]) -> None:
        """New sequences get the slots of these instances from now on."""
        self._rows = list(rows)
        self._find_free()
        self._seat_backlog()

    def lose(self, row: SlotRow, why: str) -> None:
        """End the sequences of an instance that has lost its state, except those that had not run there."""
        row.is_lost = True
        row.ready.clear()
        unharmed = []
        for slot in row.slots:
            sequence, slot.sequence = slot.sequence, None
            if sequence is None:
                continue
            sequence.slot = None
            if sequence.has_run:
                error = Unavailable(f"sequence {sequence.correlation_id} was ended: {why}")
                self.end(sequence, f"the one before was ended: {why}", error, "BACKEND")
            else:
                self._idle.remove(sequence)
                unharmed.append(sequence)
        self._backlog.put_back(unharmed)
        self._find_free()
        self._seat_backlog()

    def regain(self, row: SlotRow) -> None:
        """An instance that was lost takes sequences again."""
        row.is_lost = False
        self._find_free()
        self._seat_backlog()

    def take_all(self) -> list[InferRequest]:
        """End all sequences; the requests that wait."""
        waiting = [request for request, sequence in self._sequences.items() if _waits(request, sequence)]
        for sequence in self._sequences.values():
            sequence.requests.clear()
            sequence.is_open = False
        self._sequences = {
            sequence.running: sequence
            for sequence in self._sequences.values()
            if sequence.running is not None
        }
        self._latest.clear()
        self._backlog = Backlog()
        self._idle.clear()
        for row in self._rows:
            row.ready.clear()
            for slot in row.slots:
                slot.sequence = None
        self._find_free()
        return waiting

    def _seat(self, sequence: Sequence) -> bool:
        """Give a sequence a free slot, if there is one."""
        if not self._free:
            return False
        index, _, row = heapq.heappop(self._free)
        if index == len(row.slots):
            row.make_slot()
            if index + 1 < row.count:
                self._set_free(row, index + 1)
        self._give(row.slots[index], sequence)
        return True

    def _seat_backlog(self) -> None:
        while self._free and (sequence := self._backlog.pop()) is not None:
            self._seat(sequence)

    def _give(self, slot: Slot, sequence: Sequence) -> None:
        slot.sequence = sequence
        sequence.slot = slot
        slot.row.look(slot)

    def _set_free(self, row: SlotRow, index: int) -> None:
        heapq.heappush(self._free, (index, row.number, row))

    def _find_free(self) -> None:
        self._free = []
        for row in self._rows:
            if row.takes_sequences:
                for index in row.free_indexes:
                    self._set_free(row, index)


def _waits(request: InferRequest, sequence: Sequence) -> bool:
    """True if a request waits; one that has to be executed again may still be running."""
    requests = sequence.requests
    return sequence.running is not request or (bool(requests) and requests[0] is request)
