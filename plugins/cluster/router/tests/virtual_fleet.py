"""Servers, routers and their clients in a time that is counted: no sockets, no loop, no waiting."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tritonpy.errors import TritonError
from tritonpy_router.dispatcher import Dispatcher, QueueLimits
from tritonpy_router.model_facts import ModelFacts
from tritonpy_router.picking import POLICIES, Policy
from tritonpy_router.replica import Place, Replica
from tritonpy_router.scan import Asked
from tritonpy_router.view import View

SERVICE_S = 0.02
REPORT_EVERY_S = 0.25
Draw = Callable[[Random], float]


def alike(chance: Random) -> float:
    """Executions that all take the same."""
    return 1.0


def at_random(chance: Random) -> float:
    """Executions of which many are short, and a few several times as long."""
    return chance.expovariate(1.0)


@dataclass
class Hosted:
    """A model on a server.

    Attributes:
        instances: that execute it.
        service_s: what one execution takes, on average.
        batch: requests that are executed together.
    """

    instances: int = 1
    service_s: float = SERVICE_S
    batch: int = 1
    busy: int = 0
    queue: deque[Request] = field(default_factory=deque)


@dataclass
class Member:
    """A server.

    Attributes:
        models: by name.
        answers_errors: every request is refused at once.
        under_way: requests, by model.
    """

    models: dict[str, Hosted]
    answers_errors: bool = False
    under_way: dict[str, int] = field(default_factory=dict)


class Request:
    """One request; satisfies `dispatcher.Routed`."""

    def __init__(self, fleet: VirtualFleet, dispatcher: Dispatcher, model: str) -> None:
        self.fleet = fleet
        self.dispatcher = dispatcher
        self.model = model
        self.begun_s = fleet.now_s
        self.replica: Replica | None = None

    def go(self, replica: Replica) -> None:
        self.replica = replica
        self.fleet.arrive(self, replica.name)

    def no_replica(self, error: TritonError) -> None:
        raise AssertionError(error)

    def over(self, is_timed: bool) -> None:
        assert self.replica is not None  # it went somewhere
        self.dispatcher.release(self.replica, self, is_timed)


class VirtualFleet:
    """Runs servers behind routers.

    Args:
        members: the servers, by name.
        policy: of the routers.
        routers: how many, which get requests in turns.
        tells: servers tell routers how they are.
        knows_instances: routers have read the configurations.
        draw: times of executions, with a mean of 1.
        seed: of all chance.

    Attributes:
        latencies_s: of all answers, by model, in the order of their coming.
        counts: of requests, by server.
    """

    def __init__(
        self,
        members: dict[str, Member],
        policy: Policy = POLICIES["two-choices"],
        routers: int = 1,
        tells: bool = False,
        knows_instances: bool = True,
        draw: Draw = alike,
        seed: int = 1,
    ) -> None:
        self.now_s = 0.0
        self.members = members
        self.latencies_s: dict[str, list[float]] = {}
        self.counts = dict.fromkeys(members, 0)
        self._chance = Random(seed)
        self._draw = draw
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._knows_instances = knows_instances
        self.views = [View(lambda: self.now_s, policy, Random(seed + n)) for n in range(routers)]
        self._dispatchers = [Dispatcher(view, QueueLimits()) for view in self.views]
        for view in self.views:
            view.set_members([Place(name, name, 1, 2) for name in members])
            for name in members:
                self.make_ready(view.replicas[name])
        if tells:
            self._after(REPORT_EVERY_S, self._report)

    def make_ready(self, replica: Replica) -> None:
        models = self.members[replica.name].models
        replica.is_ready = True
        facts = {name: ModelFacts(instance_count=each.instances) for name, each in models.items()}
        replica.have(dict.fromkeys(models, frozenset("1")), facts if self._knows_instances else {})

    def ask(self, rates: dict[str, float], count: int) -> None:
        """Have clients send so many requests at random times, and wait for their answers."""
        left = count
        total = sum(rates.values())
        dispatchers = itertools.cycle(self._dispatchers)

        def send() -> None:
            nonlocal left
            left -= 1
            (model,) = self._chance.choices(list(rates), list(rates.values()))
            dispatcher = next(dispatchers)
            dispatcher.take(Asked(model), Request(self, dispatcher, model))
            if left:
                self._after(self._chance.expovariate(total), send)

        send()
        while left or any(any(each.under_way.values()) for each in self.members.values()):
            self.now_s, _, act = heapq.heappop(self._events)
            act()

    def arrive(self, request: Request, name: str) -> None:
        """A request reaches a server."""
        member = self.members[name]
        self.counts[name] += 1
        member.under_way[request.model] = member.under_way.get(request.model, 0) + 1
        if member.answers_errors:
            self._after(1e-4, lambda: self._answer(member, [request], is_timed=False))
            return
        hosted = member.models[request.model]
        hosted.queue.append(request)
        self._execute(member, hosted)

    def _execute(self, member: Member, hosted: Hosted) -> None:
        while hosted.queue and hosted.busy < hosted.instances:
            batch = [hosted.queue.popleft() for _ in range(min(hosted.batch, len(hosted.queue)))]
            hosted.busy += 1
            self._after(hosted.service_s * self._draw(self._chance), self._executed, member, hosted, batch)

    def _executed(self, member: Member, hosted: Hosted, batch: Sequence[Request]) -> None:
        hosted.busy -= 1
        self._answer(member, batch, is_timed=True)
        self._execute(member, hosted)

    def _answer(self, member: Member, batch: Sequence[Request], is_timed: bool) -> None:
        for request in batch:
            member.under_way[request.model] -= 1
            self.latencies_s.setdefault(request.model, []).append(self.now_s - request.begun_s)
            request.over(is_timed)

    def _report(self) -> None:
        for view in self.views:
            for replica in view:
                counts = self.members[replica.name].under_way
                replica.heard(
                    self.now_s,
                    3 * REPORT_EVERY_S,
                    inflight_count=sum(counts.values()),
                    pending_count=0,
                    queue_ms=0.0,
                    inflight_counts=counts,
                    is_draining=False,
                )
        self._after(REPORT_EVERY_S, self._report)

    def _after(self, seconds: float, act: Callable[..., None], *given: Any) -> None:
        heapq.heappush(self._events, (self.now_s + seconds, next(self._order), lambda: act(*given)))


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
