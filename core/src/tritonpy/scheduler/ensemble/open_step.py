"""The unanswered steps of a request to an ensemble, its branches, and the limits on open steps."""

from __future__ import annotations

from collections import deque
from typing import Protocol, TypeAlias

from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.ensemble.plan import Stage, Step
from tritonpy.tensor import Tensor


class StepLimits:
    """Counts the open requests of each step, over all requests of the ensemble; on the loop only.

    Further requests wait, first come first served, and the model that sends them has to wait as well. So
    nothing is dropped, and only as much waits as was already under way. See `max_inflight_requests`.

    Args:
        most: how many requests of a step may be open.
        step_count: of the ensemble.
    """

    def __init__(self, most: int, step_count: int) -> None:
        self._most = most
        self._open = [0] * step_count
        self._waiting: list[deque[OpenStep]] = [deque() for _ in range(step_count)]
        self._left: deque[int] = deque()
        self._is_admitting = False

    def enter(self, number: int, step: OpenStep) -> bool:
        """True if a step may begin at once; otherwise its `admitted` is called later."""
        if self._open[number] < self._most:
            self._open[number] += 1
            return True
        self._waiting[number].append(step)
        return False

    def leave(self, number: int) -> None:
        """A request of a step has its final response: the next one may begin."""
        self._left.append(number)
        if self._is_admitting:  # a step that is refused at once comes back here; thousands may be
            return
        self._is_admitting = True
        try:
            while self._left:
                self._admit_next(self._left.popleft())
        finally:
            self._is_admitting = False

    def _admit_next(self, number: int) -> None:
        waiting = self._waiting[number]
        while waiting:
            step = waiting.popleft()
            if step.is_wanted:
                step.admitted()
                return
        self._open[number] -= 1


MOST_BRANCHES = 1024
"""Branches that one decoupled step may have open; with more, its model waits."""

Sequence: TypeAlias = tuple[int | str, int]
"""Correlation id and flags."""


class Branch:
    """One pass through a stage, begun by the request itself or by one response of a decoupled step.

    Attributes:
        stage: the steps to be run.
        tensors: what is there and still needed, by the ensemble's names.
        left: steps that have not been answered.
        writers_left: those of them that write an output of the ensemble.
        waits_for: for each step how many steps it waits for.
        readers: how often tensors are still to be read.
        producer: the decoupled step that has given the response.
        sequences: correlation ids and flags of tensors, once a model has changed them.
    """

    __slots__ = (
        "left",
        "producer",
        "readers",
        "sequences",
        "stage",
        "tensors",
        "waits_for",
        "writers_left",
    )

    def __init__(
        self,
        stage: Stage,
        tensors: dict[str, Tensor],
        producer: OpenStep | None = None,
        sequences: dict[str, Sequence] | None = None,
    ) -> None:
        self.stage = stage
        self.tensors = tensors
        self.left = len(stage.steps)
        self.writers_left = stage.writer_count
        self.waits_for = list(stage.waits_for)
        self.readers = dict(stage.readers)
        self.producer = producer
        self.sequences = sequences

    def step_left(self) -> None:
        """Count an answered step; the last one ends the branch for the step that began it."""
        self.left -= 1
        if not self.left and self.producer is not None:
            self.producer.branch_ended()


class StepOwner(Protocol):
    """The run that a step belongs to; see `EnsembleRun`."""

    is_over: bool

    def step_admitted(self, step: OpenStep) -> None:
        """A step that waited for its turn may begin."""

    def step_answered(
        self, step: OpenStep, request: InferRequest, response: InferResponse | None, final: bool
    ) -> None:
        """Take a response of a step."""


class OpenStep:
    """One step of one branch: waits for its turn, then takes the responses; satisfies `ResponseSink`.

    Also a `Pausing`.

    Attributes:
        step: what is to be done.
        branch: the branch it is part of.
        position: its place in the stage.
        request: to the step's model, once there is one.
        is_answered: the model has answered, apart from the final flag.
    """

    __slots__ = (
        "_branch_count",
        "_held_count",
        "_is_paused",
        "_run",
        "branch",
        "is_answered",
        "position",
        "request",
        "step",
    )

    def __init__(self, run: StepOwner, branch: Branch, position: int) -> None:
        self._run = run
        self.branch = branch
        self.position = position
        self.step: Step = branch.stage.steps[position]
        self.request: InferRequest | None = None
        self.is_answered = False
        self._branch_count = 0
        self._held_count = 0
        self._is_paused = False

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if final and self._is_paused:
            self.step.model.pauses.remove(self)
        self._run.step_answered(self, request, response, final)

    @property
    def is_wanted(self) -> bool:
        """True if the step still has to begin."""
        return not self._run.is_over

    def admitted(self) -> None:
        """The limit lets the step begin."""
        self._run.step_admitted(self)

    # Backpressure of a decoupled step: its model waits while too many of its responses are unfinished.

    def branch_began(self) -> None:
        """One of its responses has begun a branch."""
        self._branch_count += 1
        if self._branch_count >= MOST_BRANCHES:
            self.pace()

    def branch_ended(self) -> None:
        """All steps of such a branch have been answered."""
        self._branch_count -= 1
        if self._is_paused:
            self.pace()

    def hold(self, count: int) -> None:
        """Add `count`, which may be negative, to the number of steps that wait in its branches."""
        self._held_count += count
        self.pace()

    def pace(self) -> None:
        request = self.request
        if request is None or not self.step.may_wait:
            return
        most = MOST_BRANCHES // 2 if self._is_paused else MOST_BRANCHES
        pauses = self.step.model.pauses
        is_ahead = (self._held_count > 0 or self._branch_count >= most) and pauses.are_allowed
        if is_ahead != self._is_paused:
            self._is_paused = is_ahead
            flow = request.response_flow()
            if is_ahead:
                pauses.add(self)
                flow.pause()
            else:
                pauses.remove(self)
                flow.resume()
