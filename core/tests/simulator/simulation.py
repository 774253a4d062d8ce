"""Schedulers as they are, between requests and instances that are numbers.

A scenario says which models there are, when requests come and are given up, how long executions take and when
instances die. The simulation runs it in virtual time, writes down what happens and looks at every rest (when
all that is due has been done) for what must never be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tritonpy.errors import Internal, TritonError
from tritonpy.model.execution import Execution
from tritonpy.model.placement import ResourceNeed, Slot
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.rate_limiter import RateLimiter, ResourceLimit
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.scheduler.selection import make_scheduler
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor

from .virtual_loop import VirtualLoop, run

US = 1000


@dataclass(frozen=True)
class Arrival:
    """One request.

    Attributes:
        at_us: when it comes.
        model: which of the scenario's models it is for.
        rows: its batch size.
        length: of its input; requests of different lengths do not go together.
        given_up_us: how long after its arrival its client leaves; None for never.
        sequence: its correlation id.
        is_first, is_last: flags of the sequence.
        steps: how often an iterative model executes it.
    """

    at_us: int
    model: int = 0
    rows: int = 1
    length: int = 1
    priority: int = 0
    timeout_us: int = 0
    given_up_us: int | None = None
    sequence: int = 0
    is_first: bool = False
    is_last: bool = False
    steps: int = 1


@dataclass(frozen=True)
class ModelSpec:
    """One model.

    Attributes:
        config: what its scheduler is made from, beside `max_batch_size`.
        durations_us: how long executions take, one after the other, again and again.
        instance_count, concurrency: its instances.
        deaths: when an instance dies, and which.
        needs: of shared resources, by name.
        priority: in the competition for them.
        strategy: narrows its batches.
    """

    config: dict[str, Any] = field(default_factory=dict)
    max_batch_size: int = 1
    durations_us: tuple[int, ...] = (100,)
    instance_count: int = 1
    concurrency: int = 1
    deaths: tuple[tuple[int, int], ...] = ()
    needs: tuple[tuple[str, int], ...] = ()
    priority: int = 1
    strategy: BoundStrategy | None = None


@dataclass
class Told:
    """What became of a request.

    Attributes:
        at_ns: when it came.
        started_ns: when each execution of it began.
        answers: the error of each answer, None for a good one, with its time.
        refused: why it was not taken at all.
    """

    arrival: Arrival
    request: InferRequest
    number: int
    at_ns: int
    started_ns: list[int] = field(default_factory=list)
    answers: list[tuple[int, TritonError | None]] = field(default_factory=list)
    refused: TritonError | None = None

    @property
    def is_waiting(self) -> bool:
        is_over = self.answers or self.refused is not None or self.request.ticket.cancelled
        return not (is_over or self.started_ns)


@dataclass
class Batch:
    """One execution: when it began, where, and what it had; None is a null request."""

    at_ns: int
    instance: FakeInstance
    requests: list[Told | None]
    row_count: int
    end_ns: int = 0


class FakeInstance:
    """Executes for as long as the scenario says, and remembers sequences as a model would."""

    def __init__(self, model: FakeModel, name: str) -> None:
        self.name = name
        self.depth = 0
        self.capacity = model.spec.concurrency
        self.concurrency = model.spec.concurrency
        self.is_ready = True
        self.idle_since_ns = model.loop.now_ns
        self._model = model
        self._running: list[tuple[Execution, Batch, asyncio.TimerHandle]] = []
        self._memory: dict[int, list[int]] = {}

    def submit(self, execution: Execution) -> None:
        model = self._model
        assert self.is_ready, "an instance that is down was given a batch"
        self.depth += 1
        assert self.depth <= self.concurrency, "an instance was given more than it executes"
        batch = model.begin(self, execution)
        timer = model.loop.call_later(model.next_duration_us() / 1e6, self._finish, execution)
        self._running.append((execution, batch, timer))

    def _finish(self, execution: Execution) -> None:
        batch = self._leave(execution)
        responses = [self._execute(request) for request in execution.requests]
        again = [
            request
            for request in execution.requests
            if (told := self._model.told.get(request)) and len(told.started_ns) < told.arrival.steps
        ]
        if again:
            for request, response in zip(execution.requests, responses, strict=True):
                if request in again:
                    execution.rescheduled_count += 1
                    self._model.scheduler.enqueue_again(request)
                else:
                    request.deliver(response)
            execution.leave((batch.at_ns,) * 4, [])
        else:
            execution.finish((batch.at_ns,) * 4, responses)
        self._model.scheduler.pump()

    def _execute(self, request: InferRequest) -> InferResponse:
        told = self._model.told.get(request)
        if told is not None and told.arrival.sequence:
            if request.flags & SEQUENCE_START:
                self._memory[told.arrival.sequence] = []
            seen = self._memory.setdefault(told.arrival.sequence, [-1])  # it has not begun here
            seen.append(told.number)
            self._model.seen.append((told.arrival.sequence, tuple(seen)))
            if request.flags & SEQUENCE_END:
                del self._memory[told.arrival.sequence]
        return InferResponse()

    def _leave(self, execution: Execution) -> Batch:
        (entry,) = [each for each in self._running if each[0] is execution]
        self._running.remove(entry)
        self.depth -= 1
        self.idle_since_ns = entry[1].end_ns = self._model.loop.now_ns
        return entry[1]

    def die(self) -> None:
        """What it executes is lost, and it is started again in a millisecond."""
        self.is_ready = False
        self._memory.clear()
        error = Internal("the worker has died")
        for execution, _, timer in list(self._running):
            timer.cancel()
            self._leave(execution)
            execution.fail(error)
        self._model.scheduler.lose(self, error)  # type: ignore[arg-type]
        self._model.loop.call_later(0.001, self._revive)

    def _revive(self) -> None:
        self.is_ready = True
        self.idle_since_ns = self._model.loop.now_ns
        self._model.scheduler.pump()


class FakeModel:
    """A scheduler made from a configuration, with its instances.

    Attributes:
        told: the requests, and what became of each.
        batches: what was executed, in order.
        seen: the sequence of each executed request, and what its instance had executed of it by then.
    """

    def __init__(self, spec: ModelSpec, loop: VirtualLoop) -> None:
        self.spec = spec
        self.loop = loop
        self.stats = ModelStats()
        config = {
            "name": "m",
            "max_batch_size": spec.max_batch_size,
            "input": [{"name": "I", "data_type": "TYPE_FP32", "dims": [-1]}],
            "output": [],
            **spec.config,
        }
        self.scheduler: Scheduler = make_scheduler(config, self.stats, spec.strategy)
        self.scheduler._clock = loop.clock_ns
        self.told: dict[InferRequest, Told] = {}
        self.batches: list[Batch] = []
        self.seen: list[tuple[int, tuple[int, ...]]] = []
        self.instances: list[FakeInstance] = []
        self._duration_count = 0

    async def start(self, limiter: RateLimiter | None) -> None:
        contender = self.scheduler.contend(limiter) if limiter is not None else None
        resources = tuple(ResourceNeed(name, count, False) for name, count in self.spec.needs)

        async def start(slot: Slot) -> Any:
            return FakeInstance(self, slot.name)

        for index in range(self.spec.instance_count):
            slot = Slot(f"i{index}", index, "KIND_CPU", 0, resources=resources, priority=self.spec.priority)
            self.instances.append(await (contender.limited(start) if contender else start)(slot))
        self.scheduler.use(self.instances)  # type: ignore[arg-type]
        for at_us, index in self.spec.deaths:
            self.loop.call_later(at_us / 1e6, self.instances[index % self.spec.instance_count].die)

    def arrive(self, number: int, arrival: Arrival) -> Told:
        lead = (arrival.rows,) if self.spec.max_batch_size else ()
        tensor = Tensor.from_numpy("I", np.zeros((*lead, arrival.length), np.float32))
        flags = SEQUENCE_START * arrival.is_first | SEQUENCE_END * arrival.is_last
        request = InferRequest(
            "m",
            {"I": tensor},
            id=str(number),
            flags=flags,
            correlation_id=arrival.sequence,
            priority=arrival.priority,
            timeout_us=arrival.timeout_us,
        )
        request.ticket.sink = self
        request.batch_size = arrival.rows
        told = self.told[request] = Told(arrival, request, number, self.loop.now_ns)
        try:
            self.scheduler.enqueue(request)
        except TritonError as error:
            told.refused = error
            return told
        if arrival.given_up_us is not None:
            self.loop.call_later(arrival.given_up_us / 1e6, request.cancel)
        return told

    def begin(self, instance: FakeInstance, execution: Execution) -> Batch:
        now_ns = self.loop.now_ns
        requests = [self.told.get(request) for request in execution.requests]
        for told in requests:
            if told is not None:
                told.started_ns.append(now_ns)
        batch = Batch(now_ns, instance, requests, execution.batch_size)
        self.batches.append(batch)
        return batch

    def next_duration_us(self) -> int:
        durations = self.spec.durations_us
        self._duration_count += 1
        return durations[(self._duration_count - 1) % len(durations)]

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert response is not None
        assert final
        self.told[request].answers.append((self.loop.now_ns, response.error))

    @property
    def waiting(self) -> list[Told]:
        return [told for told in self.told.values() if told.is_waiting]


Look = Callable[["Simulation"], None]


@dataclass
class Simulation:
    """What a scenario has led to.

    Attributes:
        limits: how much there is of each resource.
        models: with what became of their requests.
        now_ns: the time.
    """

    limits: dict[str, int]
    models: list[FakeModel]
    loop: VirtualLoop

    @property
    def now_ns(self) -> int:
        return self.loop.now_ns


def simulate(
    specs: Sequence[ModelSpec],
    arrivals: Sequence[Arrival],
    *,
    limits: dict[str, int] | None = None,
    at_rest: Look = lambda simulation: None,
) -> Simulation:
    """Run a scenario until every request is answered, and check what holds for all schedulers.

    Args:
        specs: the models.
        arrivals: the requests, in any order.
        limits: how much there is of each shared resource; None turns the rate limiter off.
        at_rest: called whenever everything that is due has been done.
    """

    async def main(loop: VirtualLoop) -> Simulation:
        simulation = Simulation(limits or {}, [FakeModel(spec, loop) for spec in specs], loop)
        limiter, start_ns = None, loop.now_ns
        if limits is not None:
            limiter = RateLimiter([ResourceLimit(*limit) for limit in limits.items()], loop.call_soon)
        for model in simulation.models:
            await model.start(limiter)
        ordered = sorted(arrivals, key=lambda arrival: arrival.at_us)

        def look() -> None:
            _check_rest(simulation)
            at_rest(simulation)

        loop.on_rest = look
        for number, arrival in enumerate(ordered):  # one after the other, also those that come together
            ahead_ns = start_ns + arrival.at_us * US - loop.now_ns
            if ahead_ns > 0:
                await asyncio.sleep(ahead_ns / 1e9)
            simulation.models[arrival.model % len(specs)].arrive(number, arrival)
        while any(
            not told.answers and told.refused is None for m in simulation.models for told in m.told.values()
        ):
            await asyncio.sleep(0.01)
            assert loop.now_ns < 10**13, "requests wait for ever"
        await asyncio.sleep(10)  # nothing may be answered twice, later
        loop.on_rest = lambda: None
        _check_end(simulation)
        for model in simulation.models:
            model.scheduler.close(Internal("over"))
        return simulation

    return run(main)


def _check_rest(simulation: Simulation) -> None:
    held = dict.fromkeys(simulation.limits, 0)
    for model in simulation.models:
        assert model.stats.pending_count >= len(model.waiting)  # some wait for their next step
        for instance in model.instances:
            for name, count in model.spec.needs:
                held[name] = held.get(name, 0) + count * instance.depth
    assert all(held[name] <= limit for name, limit in simulation.limits.items()), "a resource was exceeded"


def _check_end(simulation: Simulation) -> None:
    for model in simulation.models:
        most = max(1, model.spec.max_batch_size)
        for told in model.told.values():
            count = len(told.answers) + (told.refused is not None)
            assert count == 1, f"request {told.number} was answered {count} times"
            assert told.refused is None or not told.started_ns
        assert model.stats.pending_count == 0
        assert all(instance.depth == 0 for instance in model.instances)
        for batch in model.batches:
            assert batch.row_count <= most
            assert batch.row_count == sum(told.arrival.rows if told else 1 for told in batch.requests)
