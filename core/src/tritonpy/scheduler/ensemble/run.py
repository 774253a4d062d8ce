"""One request to an ensemble, from its first step to its answer.

A state machine that moves whenever a step has answered: no task, no future. Tensors are handed from step to
step as they are. What a model leaves out is missing for the steps behind it, as if the client had done so.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Protocol

from tritonpy.errors import Cancelled, Internal, TritonError, exception_text
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.ensemble.open_step import Branch, OpenStep, Sequence, StepLimits
from tritonpy.scheduler.ensemble.plan import Stage
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor
from tritonpy.workers.call_cycles import path_to_caller

_log = logging.getLogger("tritonpy.scheduler")

_DEADLOCK = "unexpected deadlock, at least one output is not set while no more ensemble steps can be made"


class RunOwner(Protocol):
    """The ensemble that a run belongs to.

    Attributes:
        name: of the ensemble.
        is_decoupled: it may answer any number of times.
        stats: its counters.
        limits: of its steps, if they have any.
    """

    name: str
    is_decoupled: bool
    stats: ModelStats
    limits: StepLimits | None

    def run_ended(self, run: EnsembleRun) -> None:
        """The request is answered."""


class EnsembleRun:
    """One request on its way through an ensemble; on the loop only; see `StepOwner`.

    Args:
        ensemble: it belongs to.
        request: what the client has sent.

    Attributes:
        request: as given.
        is_over: it is answered, and later answers of its steps are dropped.
    """

    __slots__ = (
        "_ensemble",
        "_held_count",
        "_infer_ns",
        "_input_ns",
        "_is_advancing",
        "_is_counted",
        "_open",
        "_output_ns",
        "_ready",
        "_start_ns",
        "is_over",
        "request",
    )

    def __init__(self, ensemble: RunOwner, request: InferRequest) -> None:
        self._ensemble = ensemble
        self.request = request
        self.is_over = False
        self._open: set[InferRequest] = set()
        self._ready: deque[OpenStep] = deque()
        self._held_count = 0
        self._is_advancing = False
        self._is_counted = False
        self._input_ns = self._infer_ns = self._output_ns = 0
        self._start_ns = 0

    def start(self, course: Stage) -> None:
        """Begin with what needs nothing but the request's own tensors."""
        self._start_ns = time.monotonic_ns()
        self._begin(Branch(course, dict(self.request.inputs)))
        self._advance()

    def request_cancelled(self, request: InferRequest) -> None:
        """See `RequestCanceller`: no step is begun any more, and those that run are cancelled."""
        if not self.is_over:
            self._fail(Cancelled(f"{request.label}request was cancelled"), "CANCELED")

    def abandon(self, error: TritonError) -> None:
        """Answer with an error that did not come from a step."""
        self._fail(error, "OTHER", is_of_step=False)

    def executed(self, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """A model has executed a step: how long the phases took, for the sums of the ensemble."""
        if self._is_counted:  # a decoupled model answers before it returns
            request = self.request
            self._ensemble.stats.add_compute(request.batch_size, (input_ns, infer_ns, output_ns))
            if request.ticket.on_executed is not None:
                request.ticket.on_executed(input_ns, infer_ns, output_ns)
        else:
            self._input_ns += input_ns
            self._infer_ns += infer_ns
            self._output_ns += output_ns

    @property
    def open_requests(self) -> tuple[InferRequest, ...]:
        """The requests to its models that are not answered."""
        return tuple(self._open)

    # What happens to its steps.

    def step_admitted(self, step: OpenStep) -> None:
        self._held_count -= 1
        if step.branch.producer is not None:
            step.branch.producer.hold(-1)
        self._ready.append(step)
        self._advance()

    def step_answered(
        self, step: OpenStep, request: InferRequest, response: InferResponse | None, final: bool
    ) -> None:
        if final:
            self._open.discard(request)
            step.request = None  # break the cycle: this step is its sink
        if not self.is_over:
            try:
                if response is not None and response.error is not None:
                    self._fail(response.error, "OTHER")
                elif step.step.opens is not None:
                    if response is not None:
                        self._open_way(step, step.step.opens, request, response)
                    if final:
                        step.branch.step_left()
                elif not step.is_answered and (final or response is not None):
                    step.is_answered = True
                    self._take(step, request, response)
            except Exception as exc:
                self._fail_unexpectedly(step, exc)
            self._advance()
        limits = self._ensemble.limits
        if final and limits is not None:
            limits.leave(step.step.number)

    def _open_way(self, step: OpenStep, stage: Stage, request: InferRequest, response: InferResponse) -> None:
        """Take a response of a decoupled model: the steps behind it are run for this response."""
        names = step.step.outputs
        tensors = {names[tensor.name]: tensor for tensor in response.outputs if tensor.name in names}
        sequence = _sequence(step.branch, request, response)
        sequences = None if sequence is None else dict.fromkeys(names.values(), sequence)
        self._begin(Branch(stage, tensors, step, sequences))

    def _take(self, step: OpenStep, request: InferRequest, response: InferResponse | None) -> None:
        """Take the response of any other model: the steps that wait for it may run."""
        branch, names = step.branch, step.step.outputs
        if response is not None:
            for tensor in response.outputs:
                name = names.get(tensor.name)
                if name is not None:
                    branch.tensors[name] = tensor
            if response.parameters or branch.sequences is not None:
                sequence = _sequence(branch, request, response)
                if sequence is not None:
                    branch.sequences = {**(branch.sequences or {}), **dict.fromkeys(names.values(), sequence)}
        for follower in branch.stage.followers[step.position]:
            branch.waits_for[follower] -= 1
            if not branch.waits_for[follower]:
                self._queue(branch, follower)
        branch.step_left()
        if step.step.writes_output:
            branch.writers_left -= 1
            if not branch.writers_left:
                self._respond(branch)

    # What is done.

    def _begin(self, branch: Branch) -> None:
        stage = branch.stage
        if branch.producer is not None and branch.left:
            branch.producer.branch_began()
        for position in stage.first:
            self._queue(branch, position)
        if stage.outputs is not None and not stage.writer_count:
            self._respond(branch)

    def _queue(self, branch: Branch, position: int) -> None:
        step = OpenStep(self, branch, position)
        limits = self._ensemble.limits
        if limits is None or limits.enter(step.step.number, step):
            self._ready.append(step)
        else:
            self._held_count += 1
            if branch.producer is not None:
                branch.producer.hold(1)

    def _advance(self) -> None:
        """Send the ready steps; a model that answers at once adds more, without recursion."""
        if self._is_advancing:
            return
        self._is_advancing = True
        limits = self._ensemble.limits
        ready = self._ready
        while ready:
            step = ready.popleft()
            if not self.is_over:
                try:
                    self._send(step)
                except Exception as exc:
                    self._not_sent(step, exc)
            elif limits is not None:
                limits.leave(step.step.number)
        self._is_advancing = False
        if not self.is_over and self._is_idle:
            self._end()

    @property
    def _is_idle(self) -> bool:
        """True if nothing is left to be done or waited for."""
        return not (self._open or self._ready or self._held_count)

    def _send(self, step: OpenStep) -> None:
        branch, plan, parent = step.branch, step.step, self.request
        inputs: dict[str, Tensor] = {}
        readers, tensors = branch.readers, branch.tensors
        for name, source, fit in plan.inputs:
            tensor = tensors.get(source)
            if tensor is not None:
                inputs[name] = tensor.renamed(name) if fit is None else fit.apply(tensor, name)
            if source in readers:
                readers[source] -= 1
                if not readers[source]:
                    tensors.pop(source, None)
        request = InferRequest(
            plan.model.name,
            inputs,
            id=parent.id,
            requested_outputs=plan.wanted,
            parameters=parent.parameters,
            flags=parent.flags,
            correlation_id=parent.correlation_id,
            priority=parent.priority,
            timeout_us=parent.timeout_us,
            arrival_ns=time.monotonic_ns(),
        )
        step.request = request
        request.ticket.on_executed = self.executed
        if parent.ticket.trace is not None:
            request.ticket.trace = parent.ticket.trace.child(plan.model.name, plan.model.version_text)
        if branch.sequences is not None:
            for _, source, _ in plan.inputs:
                if source in branch.sequences:
                    request.correlation_id, request.flags = branch.sequences[source]
        if plan.opens is not None:
            request.response_flow().upstream = parent.response_flow()
        self._open.add(request)
        if parent.ticket.chain:
            self._refuse_cycle(request, step)
        plan.model.infer(request, step)

    def _not_sent(self, step: OpenStep, exc: Exception) -> None:
        request = step.request
        if request is not None:
            request.ticket.sink = step.request = None
            self._open.discard(request)
        if self._ensemble.limits is not None:
            self._ensemble.limits.leave(step.step.number)
        if isinstance(exc, TritonError):
            self._fail(exc, "OTHER")
        else:
            self._fail_unexpectedly(step, exc)

    def _fail_unexpectedly(self, step: OpenStep, exc: Exception) -> None:
        """Answer although a model has given what is no tensor, or one that cannot be read."""
        request, name = self.request, step.step.model.name
        _log.error("%sthe step of model '%s' failed", request.label, name, exc_info=exc, extra=request.about)
        if not self.is_over:
            self._fail(Internal(f"the step of model '{name}' failed: {exception_text(exc)}"), "OTHER")

    def _refuse_cycle(self, request: InferRequest, step: OpenStep) -> None:
        """Refuse a step that would wait for an instance whose model waits for the ensemble."""
        request.ticket.chain = chain = self.request.ticket.chain
        model = step.step.model
        path = path_to_caller(model.instances, chain)
        if path is not None:
            waits = " waits for ".join(f"'{name}'" for name in path)
            raise Internal(
                f"step {step.step.number} cannot be run by model '{model.name}': the call of the ensemble "
                f"would wait for itself for ever ({waits}, which waits for the ensemble). Give "
                f"'{model.name}' more instances (instance_group count) or break the cycle"
            )

    def _respond(self, branch: Branch) -> None:
        """Answer: all outputs of a branch are there."""
        assert branch.stage.outputs is not None  # only such a stage has writers
        request = self.request
        outputs: list[Tensor] = []
        sequence: Sequence = request.correlation_id, request.flags
        for name, fit in branch.stage.outputs:
            tensor = branch.tensors.get(name)
            if tensor is not None:
                outputs.append(tensor.renamed(name) if fit is None else fit.apply(tensor, name))
            else:
                _log.debug("Composing models did not output tensor %s", name, extra=request.about)
            if branch.sequences is not None:
                sequence = branch.sequences.get(name, sequence)
        response = InferResponse(outputs)
        if outputs:
            response.parameters = {
                "sequence_id": sequence[0],
                "sequence_start": bool(sequence[1] & SEQUENCE_START),
                "sequence_end": bool(sequence[1] & SEQUENCE_END),
            }
        if not self._ensemble.is_decoupled or self._is_idle:
            self._succeed(response)
        else:
            request.deliver(response, False)

    def _end(self) -> None:
        if self._ensemble.is_decoupled:
            self._succeed(None)
        else:
            self._fail(Internal(_DEADLOCK), "OTHER")

    def _succeed(self, response: InferResponse | None) -> None:
        request = self.request
        input_ns, infer_ns, output_ns = self._input_ns, self._infer_ns, self._output_ns
        self._ensemble.stats.count_ensemble(
            request.batch_size,
            queue_ns=self._start_ns - request.queue_start_ns,
            duration_ns=time.monotonic_ns() - request.queue_start_ns,
            compute_ns=(input_ns, infer_ns, output_ns),
        )
        self._is_counted = True
        if request.ticket.on_executed is not None:  # it is a step itself
            request.ticket.on_executed(input_ns, infer_ns, output_ns)
        self._finish()
        request.deliver(response)

    def _fail(self, error: TritonError, reason: str, *, is_of_step: bool = True) -> None:
        request, ensemble = self.request, self._ensemble
        ensemble.stats.count_failure(reason, time.monotonic_ns() - request.queue_start_ns)
        self._finish()
        for running in tuple(self._open):
            running.cancel()
        text = f"in ensemble '{ensemble.name}', {error}" if is_of_step else error.message
        request.fail(TritonError(text, error.code))

    def _finish(self) -> None:
        self.is_over = True
        self.request.ticket.on_cancel = None
        self._ensemble.run_ended(self)


def _sequence(branch: Branch, request: InferRequest, response: InferResponse) -> Sequence | None:
    """The sequence that the outputs of a step carry on, if it is not that of the request to the ensemble."""
    parameters = response.parameters
    flags = {"sequence_start": SEQUENCE_START, "sequence_end": SEQUENCE_END}
    if branch.sequences is None and not ("sequence_id" in parameters or flags.keys() & parameters.keys()):
        return None
    correlation_id, combined = request.correlation_id, request.flags
    given = parameters.get("sequence_id", correlation_id)
    if isinstance(given, int | str):
        correlation_id = given
    for name, flag in flags.items():
        if name in parameters:
            combined = combined | flag if parameters[name] else combined & ~flag
    return correlation_id, combined
