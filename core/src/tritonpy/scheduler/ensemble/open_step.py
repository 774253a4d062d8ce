"""Where a request to an ensemble is: ways through its stages, and steps that are not answered."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.ensemble.plan import Stage, Step
from tritonpy.tensor import Tensor

MOST_WAYS = 1024
"""Responses of one decoupled step that are worked on at once; with more, its model waits."""

Sequence: TypeAlias = tuple[int | str, int]
"""Correlation id and flags."""


class Way:
    """One way through a stage: with the request itself, or with one response of a decoupled step.

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
        """A step has been answered; whoever began this way may go on when it was the last one."""
        self.left -= 1
        if not self.left and self.producer is not None:
            self.producer.way_ended()


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
    """One step of one way: waits for its turn, then takes the responses; satisfies `ResponseSink`.

    Also a `WaitingStep` and a `Pausing`.

    Attributes:
        step: what is to be done.
        way: where.
        position: its place in the stage.
        request: to the step's model, once there is one.
        is_answered: the model has answered, apart from the final flag.
    """

    __slots__ = (
        "_held_count",
        "_is_paused",
        "_run",
        "_way_count",
        "is_answered",
        "position",
        "request",
        "step",
        "way",
    )

    def __init__(self, run: StepOwner, way: Way, position: int) -> None:
        self._run = run
        self.way = way
        self.position = position
        self.step: Step = way.stage.steps[position]
        self.request: InferRequest | None = None
        self.is_answered = False
        self._way_count = 0
        self._held_count = 0
        self._is_paused = False

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if final and self._is_paused:
            self.step.model.pauses.remove(self)
        self._run.step_answered(self, request, response, final)

    @property
    def is_wanted(self) -> bool:
        return not self._run.is_over

    def admitted(self) -> None:
        self._run.step_admitted(self)

    # Of a decoupled step, whose model waits while too much of what it has sent is not worked on.

    def way_began(self) -> None:
        """One of its responses has begun a way."""
        self._way_count += 1
        if self._way_count >= MOST_WAYS:
            self.pace()

    def way_ended(self) -> None:
        """All steps of such a way have been answered."""
        self._way_count -= 1
        if self._is_paused:
            self.pace()

    def hold(self, count: int) -> None:
        """So many more steps of its ways wait for their turn; fewer, if it is negative."""
        self._held_count += count
        self.pace()

    def pace(self) -> None:
        request = self.request
        if request is None or not self.step.may_wait:
            return
        most = MOST_WAYS // 2 if self._is_paused else MOST_WAYS
        pauses = self.step.model.pauses
        is_ahead = (self._held_count > 0 or self._way_count >= most) and pauses.are_allowed
        if is_ahead != self._is_paused:
            self._is_paused = is_ahead
            flow = request.response_flow()
            if is_ahead:
                pauses.add(self)
                flow.pause()
            else:
                pauses.remove(self)
                flow.resume()
