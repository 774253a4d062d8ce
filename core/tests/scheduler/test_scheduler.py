"""The driver of the policies, on a loop, with instances that finish when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Cancelled, InvalidArg, TritonError, Unavailable
from tritonpy.model.execution import Execution
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.direct import DirectPolicy
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy.scheduler.ordering import ResponseOrder
from tritonpy.scheduler.queues import LeveledQueue, QueuePolicy
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor

from ..simulator.virtual_loop import VirtualLoop, run

MS = 1_000_000


class FakeInstance:
    """Takes executions and finishes them on demand."""

    def __init__(self, capacity: int = 1, concurrency: int = 1) -> None:
        self.name = "fake"
        self.depth = 0
        self.capacity = capacity
        self.concurrency = concurrency
        self.is_ready = True
        self.taken: list[Execution] = []

    def submit(self, execution: Execution) -> None:
        self.depth += 1
        self.taken.append(execution)

    def finish(self, scheduler: Scheduler, index: int = 0) -> None:
        execution = self.taken.pop(index)
        self.depth -= 1
        responses = [InferResponse(parameters={"id": request.id}) for request in execution.requests]
        execution.finish((0, 0, 0, 0), responses)
        scheduler.pump()

    async def close(self, error: TritonError | None = None) -> None:
        pass

    @property
    def ids(self) -> list[list[str]]:
        return [[request.id for request in execution.requests] for execution in self.taken]


class Sink:
    """Collects answers in the order they come."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, Any]] = []

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert response is not None
        self.answers.append((request.id, response.error))


def request(id: str, sink: Sink) -> InferRequest:
    tensor = Tensor.from_numpy("I", np.zeros((1, 2), np.float32))
    made = InferRequest("m", {"I": tensor}, id=id)
    made.ticket.sink = sink
    return made


async def turn() -> None:
    """Let the loop run what is due."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_requests_run_one_by_one_in_order_of_arrival() -> None:
    sink, instance, stats = Sink(), FakeInstance(), ModelStats()
    scheduler = Scheduler(DirectPolicy(), stats)
    scheduler.use([instance])
    for name in "abc":
        scheduler.enqueue(request(name, sink))
    assert instance.ids == [["a"]]
    assert stats.pending_count == 2

    for _ in range(3):
        instance.finish(scheduler)

    assert [name for name, _ in sink.answers] == ["a", "b", "c"]
    assert stats.pending_count == 0
    assert (stats.success_count, stats.execution_count) == (3, 3)


async def test_an_instance_is_fed_no_further_ahead_than_its_capacity() -> None:
    sink, quick, slow = Sink(), FakeInstance(capacity=3), FakeInstance()
    scheduler = Scheduler(DirectPolicy(), ModelStats())
    scheduler.use([slow, quick])
    for index in range(6):
        scheduler.enqueue(request(str(index), sink))

    assert slow.ids == [["0"]]
    assert quick.ids == [["1"], ["2"], ["3"]]


async def test_a_burst_that_arrives_in_one_turn_is_batched_together() -> None:
    sink, instance = Sink(), FakeInstance()
    scheduler = Scheduler(DynamicPolicy(max_batch_size=8), ModelStats())
    scheduler.use([instance])
    for name in "abc":
        scheduler.enqueue(request(name, sink))
    await turn()

    assert instance.ids == [["a", "b", "c"]]


async def test_a_batch_waits_for_a_busy_instance_and_grows_meanwhile() -> None:
    sink, instance = Sink(), FakeInstance(capacity=16)
    scheduler = Scheduler(DynamicPolicy(max_batch_size=8), ModelStats())
    scheduler.use([instance])
    scheduler.enqueue(request("a", sink))
    await turn()
    for name in "bcd":
        scheduler.enqueue(request(name, sink))
        await turn()
    assert instance.ids == [["a"]]

    instance.finish(scheduler)

    assert instance.ids == [["b", "c", "d"]]


async def test_a_batch_that_cannot_grow_waits_in_front_of_a_busy_instance() -> None:
    sink, instance = Sink(), FakeInstance(capacity=2)
    scheduler = Scheduler(DynamicPolicy(max_batch_size=2), ModelStats())
    scheduler.use([instance])
    for name in "abcdef":
        scheduler.enqueue(request(name, sink))
    await turn()
    assert instance.ids == [["a", "b"], ["c", "d"]]

    instance.finish(scheduler)

    assert instance.ids == [["c", "d"], ["e", "f"]]


async def test_a_batch_that_another_instance_may_take_first_waits_in_the_queue() -> None:
    sink, instances = Sink(), [FakeInstance(capacity=2), FakeInstance(capacity=2)]
    scheduler = Scheduler(DynamicPolicy(max_batch_size=2), ModelStats())
    scheduler.use(instances)
    for name in "abcdef":
        scheduler.enqueue(request(name, sink))
    await turn()

    assert [instance.ids for instance in instances] == [[["a", "b"]], [["c", "d"]]]


async def test_a_batch_that_others_may_overtake_waits_in_the_queue() -> None:
    sink, instance = Sink(), FakeInstance(capacity=2)
    queue = LeveledQueue(QueuePolicy(), 2, 1)
    scheduler = Scheduler(DynamicPolicy(max_batch_size=2, queue=queue), ModelStats())
    scheduler.use([instance])
    for name in "abcd":
        scheduler.enqueue(request(name, sink))
    await turn()

    assert instance.ids == [["a", "b"]]


async def test_a_model_that_works_on_several_batches_is_given_several() -> None:
    sink, instance = Sink(), FakeInstance(capacity=2, concurrency=2)
    scheduler = Scheduler(DynamicPolicy(max_batch_size=8), ModelStats())
    scheduler.use([instance])
    for name in "abc":
        scheduler.enqueue(request(name, sink))
        await turn()

    assert instance.ids == [["a"], ["b"]]


def test_the_queue_delay_ends_without_another_arrival() -> None:
    async def arrive(loop: VirtualLoop) -> list[list[str]]:
        sink, instance = Sink(), FakeInstance()
        policy = DynamicPolicy(max_batch_size=8, queue_delay_ns=20 * MS)
        scheduler = Scheduler(policy, ModelStats(), clock=loop.clock_ns)
        scheduler.use([instance])
        scheduler.enqueue(request("a", sink))
        await asyncio.sleep(0.019)
        assert instance.ids == []
        await asyncio.sleep(0.002)
        return instance.ids

    assert run(arrive) == [["a"]]


@pytest.mark.parametrize("policy", [DirectPolicy(), DynamicPolicy(max_batch_size=8)])
async def test_a_request_cancelled_in_the_queue_is_answered_once_and_never_executed(policy: Any) -> None:
    sink, instance, stats = Sink(), FakeInstance(), ModelStats()
    scheduler = Scheduler(policy, stats)
    scheduler.use([instance])
    scheduler.enqueue(request("a", sink))
    await turn()
    unwanted = request("b", sink)
    scheduler.enqueue(unwanted)
    scheduler.enqueue(request("c", sink))

    unwanted.cancel()
    unwanted.cancel()

    assert [(name, type(error)) for name, error in sink.answers] == [("b", Cancelled)]
    assert stats.failures["CANCELED"] == 1
    instance.finish(scheduler)
    await turn()
    assert instance.ids == [["c"]]


async def test_a_closed_scheduler_answers_what_waits_and_refuses_what_comes() -> None:
    sink, stats = Sink(), ModelStats()
    scheduler = Scheduler(DirectPolicy(), stats)
    scheduler.enqueue(request("a", sink))

    scheduler.close(Unavailable("going"))

    assert [(name, type(error)) for name, error in sink.answers] == [("a", Unavailable)]
    assert stats.pending_count == 0
    with pytest.raises(TritonError, match="going"):
        scheduler.enqueue(request("b", sink))


async def test_preserve_ordering_holds_answers_back_until_it_is_their_turn() -> None:
    sink = Sink()
    first, second = FakeInstance(), FakeInstance()
    policy = DynamicPolicy(max_batch_size=1)
    scheduler = Scheduler(policy, ModelStats(), order=ResponseOrder())
    scheduler.use([first, second])
    for name in "ab":
        scheduler.enqueue(request(name, sink))
        await turn()
    assert (first.ids, second.ids) == ([["a"]], [["b"]])

    second.finish(scheduler)
    assert sink.answers == []
    first.finish(scheduler)

    assert [name for name, _ in sink.answers] == ["a", "b"]


async def test_preserve_ordering_is_not_held_up_by_a_cancelled_request() -> None:
    sink, instance = Sink(), FakeInstance()
    scheduler = Scheduler(DynamicPolicy(max_batch_size=1), ModelStats(), order=ResponseOrder())
    scheduler.use([instance])
    requests = [request(name, sink) for name in "abc"]
    for one in requests:
        scheduler.enqueue(one)
    await turn()
    requests[1].cancel()
    assert sink.answers == []

    instance.finish(scheduler)
    assert [name for name, _ in sink.answers] == ["a", "b"]
    instance.finish(scheduler)

    assert [name for name, _ in sink.answers] == ["a", "b", "c"]


def test_a_request_expires_on_time_though_every_instance_is_busy() -> None:
    stats = ModelStats()

    async def arrive(loop: VirtualLoop) -> Sink:
        sink, instance = Sink(), FakeInstance()
        queue = LeveledQueue(QueuePolicy(timeout_ns=20 * MS))
        scheduler = Scheduler(DynamicPolicy(max_batch_size=1, queue=queue), stats, clock=loop.clock_ns)
        scheduler.use([instance])
        scheduler.enqueue(request("running", sink))
        await turn()
        scheduler.enqueue(request("waiting", sink))
        await asyncio.sleep(0.019)
        assert sink.answers == []
        await asyncio.sleep(0.002)
        return sink

    ((name, error),) = run(arrive).answers
    assert (name, str(error)) == ("waiting", "Request timeout expired")
    assert isinstance(error, Unavailable)
    assert (stats.fail_count, stats.failures["REJECTED"], stats.pending_count) == (1, 1, 0)


async def test_a_full_queue_refuses_what_comes_and_counts_no_failure() -> None:
    sink, instance, stats = Sink(), FakeInstance(), ModelStats()
    order = ResponseOrder()
    queue = LeveledQueue(QueuePolicy(max_size=1))
    scheduler = Scheduler(DynamicPolicy(max_batch_size=1, queue=queue), stats, order=order)
    scheduler.use([instance])
    scheduler.enqueue(request("running", sink))
    await turn()
    scheduler.enqueue(request("waiting", sink))
    await turn()

    with pytest.raises(Unavailable, match="Exceeds maximum queue size"):
        scheduler.enqueue(request("refused", sink))

    for _ in range(2):
        instance.finish(scheduler)
        await turn()
    assert [name for name, _ in sink.answers] == ["running", "waiting"]
    assert (stats.fail_count, stats.pending_count) == (0, 0)


class RefusingStrategy:
    """Fails one request by its id, and takes every other."""

    def admit(self, request: InferRequest) -> None:
        pass

    def begin(self, head: InferRequest) -> None:
        pass

    def refused_alone(self, request: InferRequest) -> None:
        pass

    def accept(self, requests: Sequence[InferRequest]) -> tuple[int, TritonError | None]:
        ids = [request.id for request in requests]
        return (ids.index("bad"), InvalidArg("bad")) if "bad" in ids else (len(ids), None)

    def end(self) -> None:
        pass

    def padded_size(self, rows: int) -> int:
        return rows


class CancellingSink(Sink):
    """Gives up another request when it hears of an answer."""

    def __init__(self, other: InferRequest) -> None:
        super().__init__()
        self._other = other

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        super().on_response(request, response, final)
        self._other.cancel()


async def test_whoever_cancels_on_hearing_of_a_refusal_does_not_overfill_an_instance() -> None:
    sink, instance = Sink(), FakeInstance()
    scheduler = Scheduler(DynamicPolicy(max_batch_size=2, strategy=RefusingStrategy()), ModelStats())
    other = request("c", sink)
    scheduler.use([instance])
    for each in (request("bad", CancellingSink(other)), request("a", sink), request("b", sink), other):
        scheduler.enqueue(each)
    scheduler.enqueue(request("d", sink))
    await turn()

    assert instance.ids == [["a", "b"]]
    instance.finish(scheduler)
    assert instance.ids == [["d"]]
    assert [(id, type(error)) for id, error in sink.answers] == [
        ("c", Cancelled),
        ("a", type(None)),
        ("b", type(None)),
    ]
