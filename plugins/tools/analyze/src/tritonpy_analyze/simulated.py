"""A simulated server: the server's own dynamic batcher, and executions that are numbers, in virtual time.

It is what the search is tried on, and what predictions of `corectl explain` are compared with. The same point
gives the same numbers, to the last digit, on every machine.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tritonpy.errors import InvalidArg
from tritonpy.request import InferRequest
from tritonpy.scheduler.decision import Dispatch, WaitUntil
from tritonpy.scheduler.dynamic import DynamicPolicy

from tritonpy_analyze.histogram import Histogram
from tritonpy_analyze.measurement import MIB, Window
from tritonpy_analyze.space import Choice, Value

US = 1000
_WARM_UP = 0.2
"""The part of all requests that comes before what is measured."""


@dataclass(frozen=True, slots=True)
class SimulatedModel:
    """How a model spends its time.

    Attributes:
        name: as dimensions name it.
        base_us, row_us: an execution takes the first, and the second for each row, on one core.
        parallel: the part of it that threads share (Amdahl).
        instance_mib, row_mib: memory of an instance, and for each row that it may have.
    """

    name: str
    base_us: float
    row_us: float
    parallel: float = 0.0
    instance_mib: float = 100.0
    row_mib: float = 0.0

    def execution_us(self, rows: int, threads: int) -> float:
        """The time of an execution that nothing else delays."""
        return (self.base_us + self.row_us * rows) * (1 - self.parallel + self.parallel / threads)


@dataclass(frozen=True, slots=True)
class SimulatedServer:
    """A machine and the models on it, through which each request passes one after the other; a `Launcher`.

    Attributes:
        models: the steps of an ensemble, or one model.
        cores: that all share; executions that begin while more threads run than there are cores take longer
            by that factor.
        requests: of a window, whatever its seconds are.
        most_mib: memory of the machine; configurations that need more cannot be served.
        seed: of arrivals by rate.
    """

    models: tuple[SimulatedModel, ...]
    cores: int = 4
    requests: int = 600
    most_mib: float = float("inf")
    seed: int = 0

    @contextmanager
    def open(self, choice: Choice) -> Iterator[_Ready]:
        """See `Launcher`."""
        steps = [_Step.of(model, choice) for model in self.models]
        needed = sum(step.memory_mib for step in steps)
        if needed > self.most_mib:
            raise InvalidArg(f"the models need {needed:.0f} MiB, and the machine has {self.most_mib:.0f} MiB")
        yield _Ready(self, steps, needed)


@dataclass(frozen=True, slots=True)
class _Ready:
    """Satisfies `Target`."""

    server: SimulatedServer
    steps: list[_Step]
    memory_mib: float

    def measure(self, load: Mapping[str, Value], seconds: float) -> Window:
        run = _Run(self.server, self.steps)
        rate, concurrency = load.get("rate"), load.get("concurrency")
        if isinstance(rate, int | float):
            return run.window(self.memory_mib, rate=float(rate))
        return run.window(self.memory_mib, concurrency=concurrency if isinstance(concurrency, int) else 1)


@dataclass(frozen=True, slots=True)
class _Step:
    model: SimulatedModel
    instances: int
    max_batch_size: int
    queue_delay_ns: int
    preferred: tuple[int, ...]
    threads: int
    memory_mib: float

    @classmethod
    def of(cls, model: SimulatedModel, choice: Choice) -> _Step:
        def number(setting: str, default: int) -> int:
            value = choice.get(f"{model.name}.{setting}")
            return value if isinstance(value, int) else default

        preferred = choice.get(f"{model.name}.preferred_batch_size")
        most, instances = number("max_batch_size", 1), number("instances", 1)
        return cls(
            model,
            instances,
            most,
            number("queue_delay_us", 0) * US,
            preferred if isinstance(preferred, tuple) else (),
            number("threads", 1),
            instances * (model.instance_mib + model.row_mib * most),
        )

    def policy(self) -> DynamicPolicy:
        return DynamicPolicy(
            max_batch_size=self.max_batch_size,
            preferred_batch_sizes=self.preferred,
            queue_delay_ns=self.queue_delay_ns,
        )


class _Run:
    """One stretch of virtual time."""

    def __init__(self, server: SimulatedServer, steps: Sequence[_Step]) -> None:
        self._server = server
        self._steps = steps
        self._policies = [step.policy() for step in steps]
        self._free = [step.instances for step in steps]
        self._asked_ns: list[int | None] = [None] * len(steps)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._now_ns = 0
        self._threads = 0
        self._began_ns: dict[InferRequest, int] = {}
        self._queue_ns: dict[InferRequest, int] = {}
        self._over: deque[tuple[int, int, int]] = deque()  # when each request ended, its time, its queueing
        self._executions: list[tuple[int, int, float]] = []  # when each began, its rows, its core seconds

    def window(self, memory_mib: float, *, concurrency: int = 0, rate: float = 0.0) -> Window:
        """Requests by clients that ask again when answered, or by chance at a rate."""
        wanted = self._server.requests
        again: Callable[[InferRequest], None] = lambda request: None  # noqa: E731
        if concurrency:
            wanted = max(wanted, 12 * concurrency)
            again = self._arrive
            for number in range(concurrency):  # not all at once: real clients do not begin together
                self._at(number * 10 * US, partial(self._arrive, InferRequest("m", {})))
        else:
            chance, at_s = random.Random(self._server.seed), 0.0
            for _ in range(wanted):
                at_s += chance.expovariate(rate)
                self._at(int(at_s * 1e9), partial(self._arrive, InferRequest("m", {})))
        self._again = again
        while self._events and len(self._over) < wanted:
            self._now_ns, _, event = heapq.heappop(self._events)
            event()
        ended = list(self._over)[int(wanted * _WARM_UP) :]
        since_ns = self._over[int(wanted * _WARM_UP) - 1][0]
        seconds = (ended[-1][0] - since_ns) / 1e9
        executions = [each for each in self._executions if each[0] >= since_ns]
        queue_us = sum(queue_ns for _, _, queue_ns in ended) / len(ended) / US
        latency = Histogram.of(took_ns / US for _, took_ns, _ in ended)
        return Window(
            seconds,
            len(ended),
            latency=latency,
            memory_byte_size=memory_mib * MIB,
            cpu_cores=sum(core_s for _, _, core_s in executions) / seconds,
            batch_sizes=dict(sorted(Counter(rows for _, rows, _ in executions).items())),
            queue_us=queue_us,
            compute_us=latency.mean_us - queue_us,
        )

    def _at(self, at_ns: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ns, next(self._numbers), event))

    def _arrive(self, request: InferRequest) -> None:
        self._began_ns[request], self._queue_ns[request] = self._now_ns, 0
        self._enter(0, request)

    def _enter(self, index: int, request: InferRequest) -> None:
        request.queue_start_ns = self._now_ns
        self._policies[index].add(request)
        # As the server does: what arrives at the same time is looked at together.
        if self._asked_ns[index] != self._now_ns:
            self._asked_ns[index] = self._now_ns
            self._at(self._now_ns, lambda: self._pump(index))

    def _pump(self, index: int) -> None:
        self._asked_ns[index] = None
        while self._free[index]:
            decision = self._policies[index].decide(self._now_ns)
            if isinstance(decision, Dispatch):
                self._begin(index, decision)
                continue
            if isinstance(decision, WaitUntil):
                self._at(decision.deadline_ns, lambda: self._pump(index))
            return

    def _begin(self, index: int, batch: Dispatch) -> None:
        step = self._steps[index]
        self._free[index] -= 1
        self._threads += step.threads
        alone_us = step.model.execution_us(batch.batch_size, step.threads)
        took_us = alone_us * max(1.0, self._threads / self._server.cores)
        core_s = alone_us / 1e6 * step.threads
        self._executions.append((self._now_ns, batch.batch_size, core_s))
        for request in batch.requests:
            self._queue_ns[request] += self._now_ns - request.queue_start_ns
        self._at(self._now_ns + int(took_us * US), lambda: self._end(index, batch))

    def _end(self, index: int, batch: Dispatch) -> None:
        self._free[index] += 1
        self._threads -= self._steps[index].threads
        for request in batch.requests:
            if index + 1 < len(self._steps):
                self._enter(index + 1, request)
                continue
            took_ns = self._now_ns - self._began_ns.pop(request)
            self._over.append((self._now_ns, took_ns, self._queue_ns.pop(request)))
            self._again(request)
        self._pump(index)
