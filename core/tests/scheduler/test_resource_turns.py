"""Schedulers that share resources, on a loop, with instances that finish when the test says so."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Internal, InvalidArg, Unavailable
from tritonpy.model.execution import Execution
from tritonpy.model.placement import ResourceNeed, Slot
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.direct import DirectPolicy
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy.scheduler.rate_limiter import RateLimiter, ResourceLimit, make_rate_limiter
from tritonpy.scheduler.resource_turns import Contender
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor

MS = 1_000_000


class FakeInstance:
    """Takes executions and finishes them on demand."""

    def __init__(self, name: str, scheduler: Scheduler, concurrency: int = 1) -> None:
        self.name = name
        self.depth = 0
        self.capacity = 8  # with resources, nothing is fed ahead all the same
        self.concurrency = concurrency
        self.is_ready = True
        self.taken: list[Execution] = []
        self._scheduler = scheduler

    def submit(self, execution: Execution) -> None:
        self.depth += 1
        self.taken.append(execution)

    async def finish(self, error: Internal | None = None) -> None:
        execution = self.taken.pop(0)
        self.depth -= 1
        if error is not None:
            execution.fail(error)
        else:
            execution.finish((0, 0, 0, 0), [InferResponse() for _ in execution.requests])
        self._scheduler.pump()
        await turn()

    @property
    def ids(self) -> list[list[str]]:
        return [[request.id for request in execution.requests] for execution in self.taken]


class FakeModel:
    """A scheduler with instances that need some of R each."""

    def __init__(self, limiter: RateLimiter, policy: Any = None) -> None:
        self.stats = ModelStats()
        self.scheduler = Scheduler(policy or DirectPolicy(), self.stats)
        self.contender = self.scheduler.contend(limiter)
        self.instances: list[FakeInstance] = []
        self.errors: dict[str, Any] = {}

    async def add(self, need: int, name: str = "R", concurrency: int = 1) -> FakeInstance:
        async def start(slot: Slot) -> Any:
            return FakeInstance(slot.name, self.scheduler, concurrency)

        slot = Slot("i", 0, "KIND_CPU", 0, resources=(ResourceNeed(name, need, False),))
        instance: Any = await self.contender.limited(start)(slot)
        self.instances.append(instance)
        self.scheduler.use(self.instances)
        return instance  # type: ignore[no-any-return]

    async def ask(self, id: str, *chain: object) -> InferRequest:
        tensor = Tensor.from_numpy("I", np.zeros((1, 2), np.float32))
        request = InferRequest("m", {"I": tensor}, id=id)
        request.ticket.sink = self
        request.ticket.chain = chain
        self.scheduler.enqueue(request)
        await turn()
        return request

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert response is not None
        self.errors[request.id] = response.error


async def turn() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def limiter(*limits: ResourceLimit) -> RateLimiter:
    return RateLimiter(limits, asyncio.get_running_loop().call_soon)


async def test_models_execute_one_after_the_other_while_they_need_the_same() -> None:
    shared = limiter()
    first, second = FakeModel(shared), FakeModel(shared)
    one, other = await first.add(1), await second.add(1)

    await first.ask("a")
    await first.ask("b")
    await second.ask("c")
    assert (one.ids, other.ids) == ([["a"]], [])

    await one.finish()
    assert (one.ids, other.ids) == ([], [["c"]])
    await other.finish()
    assert one.ids == [["b"]]


async def test_what_waits_for_a_resource_stays_in_the_queue_and_is_joined_by_others() -> None:
    shared = limiter()
    first, second = FakeModel(shared), FakeModel(shared, DynamicPolicy(max_batch_size=8))
    one, other = await first.add(1), await second.add(1)
    await first.ask("a")

    for id in "bcd":
        await second.ask(id)
    assert second.stats.pending_count == 3
    await one.finish()

    assert other.ids == [["b", "c", "d"]]


async def test_a_model_whose_only_request_is_cancelled_holds_nobody_up() -> None:
    shared = limiter()
    first, greedy, third = FakeModel(shared), FakeModel(shared), FakeModel(shared)
    one, _, last = await first.add(1), await greedy.add(2), await third.add(1)
    await first.ask("a")
    unwanted = await greedy.ask("b")
    await third.ask("c")
    assert last.ids == []  # one is free, and reserved

    unwanted.cancel()
    await turn()

    assert (one.ids, last.ids) == ([["a"]], [["c"]])


async def test_a_batch_that_is_not_due_reserves_nothing() -> None:
    shared = limiter()
    first, greedy = (
        FakeModel(shared),
        FakeModel(shared, DynamicPolicy(max_batch_size=8, queue_delay_ns=9**15)),
    )
    one, _ = await first.add(1), await greedy.add(2)
    another = await first.add(1)

    await greedy.ask("b")
    await first.ask("a")
    await first.ask("c")

    assert sorted(one.ids + another.ids) == [["a"], ["c"]]


async def test_a_batch_that_is_due_waits_though_nobody_arrives() -> None:
    shared = limiter()
    first, second = (
        FakeModel(shared),
        FakeModel(shared, DynamicPolicy(max_batch_size=8, queue_delay_ns=20 * MS)),
    )
    one, other = await first.add(1), await second.add(1)
    await first.ask("a")
    await second.ask("b")
    await asyncio.sleep(0.03)
    assert other.ids == []

    await one.finish()

    assert other.ids == [["b"]]


async def test_an_instance_is_not_fed_ahead_and_each_execution_takes_the_resources() -> None:
    model = FakeModel(limiter(ResourceLimit("R", 3)))
    instance = await model.add(1, concurrency=2)

    for id in "abc":
        await model.ask(id)

    assert instance.ids == [["a"], ["b"]]
    another = await model.add(1)
    assert another.ids == [["c"]]
    await model.ask("d")
    await another.finish()
    assert another.ids == [["d"]]


async def test_a_failed_execution_gives_its_resources_back_once() -> None:
    shared = limiter(ResourceLimit("R", 1))
    first, second = FakeModel(shared), FakeModel(shared)
    one, other = await first.add(1), await second.add(1)
    await first.ask("a")
    execution = one.taken[0]
    await one.finish(Internal("died"))
    execution.finish((0, 0, 0, 0), [InferResponse()])  # as one that is closed by force

    await first.ask("b")
    await second.ask("c")

    assert (one.ids, other.ids) == ([["b"]], [])


async def test_a_batch_without_a_request_that_can_be_executed_gives_its_resources_back() -> None:
    shared = limiter()
    first, second = FakeModel(shared), FakeModel(shared)
    one, other = await first.add(1), await second.add(1)
    await first.ask("a")
    await second.ask("b")

    one.taken[0].fail_one(0, InvalidArg("its memory has gone"))
    await turn()

    assert other.ids == [["b"]]
    assert isinstance(first.errors["a"], InvalidArg)


async def test_a_closed_model_waits_for_nothing_any_more() -> None:
    shared = limiter()
    first, greedy, third = FakeModel(shared), FakeModel(shared), FakeModel(shared)
    _, most, last = await first.add(1), await greedy.add(2), await third.add(1)
    await first.ask("a")
    await greedy.ask("b")
    await third.ask("c")

    greedy.scheduler.close(Unavailable("unloaded"))
    await turn()
    assert last.ids == [["c"]]

    greedy.contender.leave(most)  # and with it what it brought: there is one again
    await first.ask("d")
    await last.finish()
    assert isinstance(greedy.errors["b"], Unavailable)
    assert last.ids == []


async def test_an_instance_that_is_down_does_not_keep_what_it_had_reserved() -> None:
    shared = limiter()
    first, greedy, third = FakeModel(shared), FakeModel(shared), FakeModel(shared)
    _, most, last = await first.add(1), await greedy.add(2), await third.add(1)
    await first.ask("a")
    await greedy.ask("b")
    await third.ask("c")

    most.is_ready = False
    greedy.scheduler.lose(most, Internal("died"))
    await turn()

    assert last.ids == [["c"]]


async def test_an_instance_that_cannot_be_started_leaves_nothing_behind() -> None:
    shared = limiter()
    model = FakeModel(shared)

    async def fail(slot: Slot) -> Any:
        raise Internal("no")

    with pytest.raises(Internal):
        await model.contender.limited(fail)(
            Slot("i", 0, "KIND_CPU", 0, resources=(ResourceNeed("R", 1, True),))
        )

    await model.add(1)  # would be refused if the other one's were still known to be global


async def test_a_call_that_needs_what_its_caller_holds_is_refused() -> None:
    shared = limiter()
    caller, called = FakeModel(shared), FakeModel(shared)
    one, _ = await caller.add(1), await called.add(1)
    await caller.ask("a")

    with pytest.raises(
        Internal, match=r"model 'm' cannot be called: .* resources that its callers hold \('i'\)"
    ):
        await called.ask("b", one.taken[0])


async def test_callers_that_would_wait_for_what_they_hold_together_are_not_let_in_all() -> None:
    shared = limiter(ResourceLimit("R", 2))
    caller, called = FakeModel(shared), FakeModel(shared)
    one, other, free = await caller.add(1), await caller.add(1), await called.add(1)
    await caller.ask("a")
    await caller.ask("b")

    first = await called.ask("of-a", one.taken[0])
    with pytest.raises(Internal, match=r"resources that callers that wait like its own hold \('i', 'i'\)"):
        await called.ask("of-b", other.taken[0])
    assert not first.ticket.answered
    await other.finish(Internal("its call was refused"))
    assert free.ids == [["of-a"]]
    await caller.ask("c")  # there is nothing left for it
    assert other.ids == []
    await free.finish()
    assert other.ids == [["c"]]


async def test_a_call_that_others_will_make_room_for_is_let_in() -> None:
    shared = limiter(ResourceLimit("R", 2), ResourceLimit("S", 1))
    caller, called, elsewhere = FakeModel(shared), FakeModel(shared), FakeModel(shared)
    one, other, free = await caller.add(1), await caller.add(1), await called.add(1)
    away = await elsewhere.add(1, "S")
    await caller.ask("a")
    await caller.ask("b")

    await elsewhere.ask("of-a", one.taken[0])
    await called.ask("of-b", other.taken[0])
    assert (away.ids, free.ids) == ([["of-a"]], [])
    await away.finish()
    await one.finish()

    assert free.ids == [["of-b"]]


async def test_a_called_model_does_not_wait_behind_whoever_waits_for_its_caller() -> None:
    shared = limiter(ResourceLimit("R", 2))
    caller, called, greedy = FakeModel(shared), FakeModel(shared), FakeModel(shared)
    one, other, _ = await caller.add(1), await called.add(1), await greedy.add(2)
    await caller.ask("a")
    await greedy.ask("b")

    await called.ask("c", one.taken[0])

    assert other.ids == [["c"]]


async def test_without_a_limiter_nobody_contends() -> None:
    assert make_rate_limiter("off", [("R", 1, None)], asyncio.get_running_loop().call_soon) is None
    shared = make_rate_limiter("execution_count", [("r", 2, None)], asyncio.get_running_loop().call_soon)
    assert shared is not None
    model = FakeModel(shared)
    assert isinstance(model.contender, Contender)
    await model.add(2)


class BoundPolicy(DirectPolicy):
    """Each request belongs to the instance that its id names."""

    def __init__(self) -> None:
        super().__init__()
        self.instances: list[Any] = []

    def use(self, instances: Any) -> None:
        self.instances = list(instances)

    def has_batch(self, now_ns: int, instance: Any) -> bool:
        return any(request.id == self._of(instance) for request in self._queue)

    def decide(self, now_ns: int, instance: Any = None) -> Any:
        mine = [request for request in self._queue if request.id == self._of(instance)]
        others = [request for request in self._queue if request not in mine[:1]]
        self._queue.clear()
        self._queue.extend([*mine[:1], *others])
        return super().decide(now_ns) if mine else None

    def _of(self, instance: Any) -> str:
        return str(self.instances.index(instance))


async def test_instances_with_batches_of_their_own_wait_each_for_itself() -> None:
    shared = limiter()
    policy: Any = BoundPolicy()
    first, bound = FakeModel(shared), FakeModel(shared)
    bound.scheduler = Scheduler(policy, bound.stats, sequences=policy)
    bound.contender = bound.scheduler.contend(shared)
    one = await first.add(1)
    two, three = await bound.add(1), await bound.add(1)
    await first.ask("a")
    await bound.ask("1")
    await bound.ask("0")

    await one.finish()
    assert (two.ids, three.ids) == ([], [["1"]])
    await three.finish()
    assert (two.ids, three.ids) == ([["0"]], [])
