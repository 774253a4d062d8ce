"""The sequence batcher: the slots of all sequences, and for every instance a batcher by the strategy."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from functools import partial
from typing import Protocol

from tritonpy.errors import InvalidArg, TritonError
from tritonpy.model.execution import Execution, Instance
from tritonpy.request import SEQUENCE_START, InferRequest, NullRequest
from tritonpy.scheduler.decision import IDLE, Decision, Refusal
from tritonpy.scheduler.sequences.controls import ControlInputs
from tritonpy.scheduler.sequences.sequence import Sequence, SlotRow
from tritonpy.scheduler.sequences.slots import SequenceBook
from tritonpy.states import StateSpecs


def _no_waiter() -> None:
    """Do nothing: no driver waits yet."""


class Batcher(Protocol):
    """Forms the batches of one instance from what its slots have.

    Attributes:
        row: the slots.
    """

    row: SlotRow

    @property
    def waiting_count(self) -> int:
        """Requests that were taken and are not executed yet."""
        ...

    def decide(self, now_ns: int) -> Decision:
        """Say what to do while the instance could take a batch."""

    def has_batch(self, now_ns: int) -> bool:
        """True if `decide` would have a batch."""
        ...

    def withdraw(self, request: InferRequest) -> bool:
        """Put a request back that was taken and not executed; False when there is none such."""
        ...

    def withdraw_all(self) -> None:
        """Put all of them back."""


class SequenceBatching:
    """Moves the requests of sequences to the instances that have their states; a `SequencePolicy`.

    As such a `BatchingPolicy` and a `BatchOwner`.

    Args:
        model_name: for messages.
        slot_count: how many sequences an instance has at a time.
        max_idle_us: how long a sequence may be idle.
        controls: the control tensors of each request.
        make_batcher: makes the batcher of an instance.
        states: what the server remembers for the model.
        is_iterative: every request is a sequence, which the model continues by rescheduling it.
    """

    may_expire = True

    def __init__(
        self,
        model_name: str,
        *,
        slot_count: int,
        max_idle_us: int,
        controls: ControlInputs,
        make_batcher: Callable[[SequenceBatching, SlotRow], Batcher],
        states: StateSpecs | None = None,
        is_iterative: bool = False,
    ) -> None:
        self.is_lazy = slot_count > 1
        self.book = SequenceBook(model_name, max_idle_us)
        self._model_name = model_name
        self._slot_count = slot_count
        self._controls = controls
        self._make_batcher = make_batcher
        self._states = states
        self.is_iterative = is_iterative
        self.on_late_end: Callable[[], None] = _no_waiter
        self._last_id = 0
        self._batchers: dict[Instance, Batcher] = {}
        self._row_count = 0
        self._has_unused = False
        self._held_enough = False
        self._end: TritonError | None = None

    @property
    def open_count(self) -> int:
        return self.book.open_count

    @property
    def waiting_count(self) -> int:
        """Requests that wait."""
        return self.book.waiting_count + sum(each.waiting_count for each in self._batchers.values())

    @property
    def instances(self) -> SequenceOf[Instance]:
        return tuple(self._batchers)

    # Requests.

    def add(self, request: InferRequest) -> None:
        """See `BatchingPolicy`.

        Raises:
            TritonError: it belongs to no sequence, cannot be told to the model, or starts a sequence though
                none may start any more; in Triton's words.
        """
        if self._end is not None and (request.flags & SEQUENCE_START or not request.correlation_id):
            raise self._end
        if request.batch_size != 1:
            raise InvalidArg(
                f"inference request to model '{self._model_name}' must specify batch-size 1 due to "
                f"requirements of sequence batcher"
            )
        if not request.correlation_id:
            if not self.is_iterative:
                raise InvalidArg(
                    f"inference request to model '{self._model_name}' must specify a non-zero or non-empty "
                    f"correlation ID"
                )
            request.correlation_id = self._next_id()
            request.flags = SEQUENCE_START
        self._controls.check(request)
        self.book.add(request)
        self._controls.attach(request)
        if self._states is not None:
            self._set_states(request, self._states)

    def add_again(self, request: InferRequest) -> None:
        """See `SequencePolicy`.

        Raises:
            InvalidArg: its sequence has ended meanwhile.
        """
        request.flags = 0
        self.book.add_again(request)
        self._controls.attach(request)

    def remove(self, request: InferRequest) -> bool:
        """See `BatchingPolicy`; the sequence ends, and its other requests that wait are cancelled."""
        sequence = self.book.sequence_of(request)
        taken = sequence.running if sequence is not None else None
        if taken is not None:  # by a batcher, and perhaps not executed yet
            for batcher in self._batchers.values():
                if batcher.withdraw(taken):
                    break
        return self.book.cancel(request)

    def expire(self, now_ns: int) -> int:
        return self.book.expire(now_ns)

    def take_refused(self) -> list[Refusal]:
        refused = self.book.refused
        if refused:
            self.book.refused = []
        return refused

    def take_all(self) -> list[InferRequest]:
        """See `BatchingPolicy`; all sequences end."""
        for batcher in self._batchers.values():
            batcher.withdraw_all()
        waiting = self.book.take_all()
        self._forget_unused()
        return waiting

    # Batches.

    def decide(self, now_ns: int, instance: Instance) -> Decision:
        batcher = self._batcher_of(instance)
        return batcher.decide(now_ns) if batcher is not None else IDLE

    def has_batch(self, now_ns: int, instance: Instance) -> bool:
        batcher = self._batcher_of(instance)
        return batcher is not None and batcher.has_batch(now_ns)

    def is_settled(self, now_ns: int) -> bool:
        """See `BatchingPolicy`; what a sequence executes next may depend on what is being executed."""
        return False

    def _batcher_of(self, instance: Instance) -> Batcher | None:
        """The batcher of an instance that could take a batch; None when it is gone by now."""
        batcher = self._batchers.get(instance)
        if batcher is not None and batcher.row.is_lost:
            self.book.regain(batcher.row)
        return batcher

    def batch_finished(self, execution: Execution) -> None:
        for request in execution.requests:
            if request.ticket.states is None or request.ticket.answered or self.is_iterative:
                self._finish(request)
            else:  # the model answers later: only then is known what the next request has to be given
                request.ticket.states.when_known(partial(self._finish_late, request))
        self._forget_unused()

    def _finish_late(self, request: InferRequest) -> None:
        self._finish(request)
        self._forget_unused()
        self.on_late_end()

    def stand_in(self, request: InferRequest) -> InferRequest | None:
        sequence = self.book.sequence_of(request)
        if sequence is not None:
            if request.flags & SEQUENCE_START:  # the model will never hear that it has begun
                error = InvalidArg(f"sequence {sequence.correlation_id} could not be started")
                self.book.end(sequence, "the one before could not be started", error, "BACKEND")
            self._finish(request)
        return None

    def make_null(self, like: InferRequest) -> NullRequest:
        """A request that only fills a place, with inputs like those of another one."""
        null = self._controls.null(like)
        if like.ticket.states is not None:
            null.ticket.states = like.ticket.states.throw_away()
        return null

    def _finish(self, request: InferRequest) -> None:
        sequence = self.book.sequence_of(request)
        if sequence is None or sequence.running is not request:
            return
        self.book.finish_running(sequence)
        if self.is_iterative and self.book.sequence_of(request) is None:
            self._end_iteration(sequence)

    def _end_iteration(self, sequence: Sequence) -> None:
        """End an iteration that the model has not rescheduled: the next request has to start."""
        waiting = sequence.requests
        if sequence.is_over or (waiting and waiting[0].flags & SEQUENCE_START):
            return
        error = self.book.unstarted(sequence.correlation_id) if waiting else None
        self.book.end(sequence, "the model has ended the one before", error, "OTHER")

    # Instances.

    def use(self, instances: SequenceOf[Instance]) -> None:
        for instance, batcher in self._batchers.items():
            batcher.row.is_used = instance in instances
            self._has_unused |= not batcher.row.is_used
        for instance in instances:
            if instance not in self._batchers:
                row = SlotRow(self._row_count, self._slot_count)
                self._row_count += 1
                self._batchers[instance] = self._make_batcher(self, row)
        self.book.use(batcher.row for batcher in self._batchers.values())
        self._forget_unused()

    def stop_starting(self, error: TritonError) -> None:
        self._end = error

    def lose(self, instance: Instance, error: TritonError) -> None:
        batcher = self._batchers.get(instance)
        if batcher is not None:
            batcher.withdraw_all()
            self.book.lose(batcher.row, error.message)
            self._forget_unused()

    def holds_fewer(self, count: int, backlog_count: int) -> bool:
        """True while fewer requests have waited in the slots or in the backlog; for tests of schedulers.

        What one instance takes then counts on for the others.
        """
        waiting_there = self.book.backlog_count
        waiting_count = self.book.waiting_count - waiting_there
        self._held_enough |= waiting_count >= count and waiting_there >= backlog_count
        return not self._held_enough

    def _forget_unused(self) -> None:
        """Forget instances that are not used any more and have no sequence left."""
        if self._has_unused:
            self._batchers = {
                instance: batcher
                for instance, batcher in self._batchers.items()
                if batcher.row.is_used or not batcher.row.is_empty
            }
            self._has_unused = any(not batcher.row.is_used for batcher in self._batchers.values())
            self.book.use(batcher.row for batcher in self._batchers.values())

    def _next_id(self) -> int:
        self._last_id += 1
        while self.book.is_open(self._last_id):
            self._last_id += 1
        return self._last_id

    def _set_states(self, request: InferRequest, states: StateSpecs) -> None:
        sequence = self.book.sequence_of(request)
        assert sequence is not None  # it was just added
        if sequence.states is None or request.flags & SEQUENCE_START:
            sequence.states = states.fresh()
        request.ticket.states = sequence.states
