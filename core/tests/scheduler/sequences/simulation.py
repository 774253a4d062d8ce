"""A sequence batcher without a loop and without a clock: numbers in, batches out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tritonpy.errors import TritonError, Unavailable
from tritonpy.model.execution import Execution
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.decision import Closed, Dispatch, WaitUntil
from tritonpy.scheduler.selection import make_sequence_batching
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor

US = 1000
MS = 1_000_000
TIMES = (0, 0, 0, 0)


def control(name: str, kind: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}", **values}]}


def config(max_batch_size: int = 4, **batching: Any) -> dict[str, Any]:
    """A normalised configuration of a model with sequences."""
    return {
        "name": "m",
        "max_batch_size": max_batch_size,
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
        "sequence_batching": {
            "max_sequence_idle_microseconds": 1_000_000,
            "control_input": [control("READY", "READY", int32_false_true=[0, 1])],
        }
        | batching,
    }


@dataclass
class Sent:
    """A request, and what became of it."""

    request: InferRequest
    answers: list[TritonError | None] = field(default_factory=list)

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert final
        self.answers.append(response.error if response is not None else None)

    @property
    def error(self) -> TritonError:
        (answer,) = self.answers
        assert answer is not None
        return answer


class FakeInstance:
    """Takes batches and ends them when the test says so."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.depth = 0
        self.capacity = 1
        self.concurrency = 1
        self.is_ready = True
        self.execution: Execution | None = None


class Simulation:
    """Asks a policy as the scheduler does; the time is what the test says."""

    def __init__(self, config: dict[str, Any], instance_count: int = 1) -> None:
        self.policy = make_sequence_batching(config)
        self.now_ns = 1
        self.wakes_ns = 0
        self.instances = [FakeInstance(f"i{index}") for index in range(instance_count)]
        self.batches: list[tuple[str, list[Any]]] = []
        self.closed: list[Closed] = []
        self.policy.use(self.instances)

    def send(
        self,
        sequence: int | str = 0,
        *,
        start: bool = False,
        end: bool = False,
        id: str = "",
        columns: int = 1,
        timeout_us: int = 0,
        rows: int = 1,
    ) -> Sent:
        """Hand over a request; what may run runs."""
        flags = SEQUENCE_START * start | SEQUENCE_END * end
        tensor = Tensor.from_numpy("X", np.zeros((rows, columns), np.float32))
        request = InferRequest(
            "m", {"X": tensor}, id=id, flags=flags, correlation_id=sequence, timeout_us=timeout_us
        )
        sent = Sent(request)
        request.ticket.sink = sent
        request.batch_size = rows
        request.queue_start_ns = self.now_ns
        self.policy.add(request)
        self.pump()
        return sent

    def pump(self) -> None:
        self.wakes_ns = self.policy.expire(self.now_ns)
        self._let_go()
        for instance in self.policy.instances:
            if instance.is_ready and not instance.depth:
                has_batch = self.policy.has_batch(self.now_ns, instance)
                decision = self.policy.decide(self.now_ns, instance)
                assert has_batch == isinstance(decision, Dispatch)
                if isinstance(decision, Dispatch):
                    self._run(instance, decision)
                elif isinstance(decision, WaitUntil):
                    self.wakes_ns = min(self.wakes_ns or decision.deadline_ns, decision.deadline_ns)

    def wait(self, duration_ns: int) -> None:
        """Let time pass."""
        self.now_ns += duration_ns
        self.pump()

    def finish(self, index: int = 0) -> None:
        """The batch of an instance has been executed."""
        instance = self.instances[index]
        execution = self._ended(instance)
        execution.finish(TIMES, [InferResponse() for _ in execution.requests])
        self.pump()

    def finish_all(self) -> None:
        """Let everything run that can."""
        while any(instance.execution is not None for instance in self.instances):
            for index, instance in enumerate(self.instances):
                if instance.execution is not None:
                    self.finish(index)

    def reschedule(self, index: int = 0) -> None:
        """The model wants to execute all requests of its batch again."""
        instance = self.instances[index]
        execution = self._ended(instance)
        for request in execution.requests:
            if not request.is_null:
                self.policy.add_again(request)
                request.queue_start_ns = self.now_ns
                execution.rescheduled_count += 1
        execution.leave(TIMES, [])
        self.pump()

    def die(self, index: int = 0) -> None:
        """The worker of an instance dies."""
        instance = self.instances[index]
        error = Unavailable("the worker died")
        if instance.execution is not None:
            self._ended(instance).fail(error)
        instance.is_ready = False
        self.policy.lose(instance, error)
        self.pump()

    def come_back(self, index: int = 0) -> None:
        """There is another worker."""
        self.instances[index].is_ready = True
        self.pump()

    def cancel(self, sent: Sent) -> None:
        """The client of a request hangs up."""
        sent.request.ticket.cancelled = True
        if self.policy.remove(sent.request):
            sent.request.fail(Unavailable("cancelled"))
        self.pump()

    def _run(self, instance: FakeInstance, batch: Dispatch) -> None:
        assert batch.null_count == sum(request.is_null for request in batch.requests)
        self.closed.append(batch.closed)
        names = [None if each.is_null else each.id or each.correlation_id for each in batch.requests]
        self.batches.append((instance.name, names))
        instance.depth = 1
        instance.execution = Execution(
            batch.requests,
            batch.batch_size,
            ModelStats(),
            null_count=batch.null_count,
            owner=batch.owner,
        )

    def _ended(self, instance: FakeInstance) -> Execution:
        execution, instance.execution = instance.execution, None
        assert execution is not None
        instance.depth = 0
        return execution

    def _let_go(self) -> None:
        for request, error, _ in self.policy.take_refused():
            request.fail(error)
