"""A scheduler behind the cache: who is answered from where, in which order, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.buffers import MemoryType
from tritonpy.cache.key import KeyMaker
from tritonpy.cache.response_cache import ResponseCache
from tritonpy.errors import Cancelled, Internal, TritonError, Unavailable
from tritonpy.handles import Cache
from tritonpy.model.execution import Instance
from tritonpy.plugin import hookimpl
from tritonpy.plugin_manager import bind_object
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.cached import CachedScheduler
from tritonpy.scheduler.ordering import ResponseOrder
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor


class Inner:
    """A scheduler that holds requests until the test answers them."""

    def __init__(self) -> None:
        self.queue: list[InferRequest] = []
        self.refusal: TritonError | None = None
        self.closed: TritonError | None = None
        self.used: Sequence[Instance] = ()

    def enqueue(self, request: InferRequest) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.queue.append(request)

    def use(self, instances: Sequence[Instance]) -> None:
        self.used = instances

    def refuse(self, error: TritonError | None) -> None:
        self.refusal = error

    def close(self, error: TritonError) -> None:
        self.closed = error

    @property
    def ids(self) -> list[str]:
        return [request.id for request in self.queue]

    def answer(self, index: int = 0, response: InferResponse | None = None) -> None:
        request = self.queue.pop(index)
        if response is None:
            response = InferResponse(parameters={"by": request.id}).add("O", np.zeros(1, np.int8))
        request.deliver(response)


class Memory:
    """A cache in a dict."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    @hookimpl
    def cache_lookup(self, key: str) -> bytes | None:
        return self.entries.get(key)

    @hookimpl
    def cache_insert(self, key: str, entry: bytes) -> None:
        self.entries[key] = entry


class Remote(Memory):
    """A cache that answers when the test lets it, in the order it says."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[asyncio.Future[None]] = []

    @hookimpl
    async def cache_lookup(self, key: str) -> bytes | None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked.append(future)
        await future
        return self.entries.get(key)


class Sink:
    """Collects the answers: by whose execution, or the error."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, Any]] = []

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert response is not None
        assert final
        self.answers.append((request.id, response.error or response.parameters.get("by")))
        response.outputs.clear()  # as one who has written them would


class Bench:
    """One cached scheduler with all around it."""

    def __init__(self, cache: ResponseCache, plugin: Memory, order: ResponseOrder | None) -> None:
        self.plugin = plugin
        self.cache = cache
        self.inner = Inner()
        self.stats = ModelStats()
        self.sink = Sink()
        self.scheduler = CachedScheduler(self.inner, cache, KeyMaker("m", "1", b""), self.stats, order=order)

    def ask(self, id: str, data: int = 0) -> InferRequest:
        tensor = Tensor.from_numpy("I", np.full((1, 2), data, np.int8))
        request = InferRequest("m", {"I": tensor}, id=id)
        request.ticket.sink = self.sink
        self.scheduler.enqueue(request)
        return request

    @property
    def counts(self) -> tuple[int, int, int, int]:
        stats = self.stats
        return stats.cache_hit_count, stats.cache_miss_count, stats.success_count, stats.fail_count


Make = Callable[..., Any]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    benches: list[Bench] = []

    async def make(plugin: Memory | None = None, *, order: ResponseOrder | None = None) -> Bench:
        plugin = plugin or Memory()
        cache = ResponseCache("it", {}, lambda name: bind_object("caches", plugin, name), 60)
        await cache.open()
        benches.append(Bench(cache, plugin, order))
        return benches[-1]

    yield make
    for bench in benches:
        if isinstance(bench.plugin, Remote):
            for future in bench.plugin.asked:
                future.cancel()
        await bench.cache.close()


async def turn() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_a_second_equal_request_is_answered_without_an_execution(make: Make) -> None:
    bench = await make()
    bench.ask("a")
    bench.inner.answer()
    bench.ask("b")
    assert bench.sink.answers == [("a", "a")]  # not before `enqueue` has returned

    await turn()

    assert bench.sink.answers == [("a", "a"), ("b", "a")]
    assert bench.inner.queue == []
    assert bench.counts == (1, 1, 1, 0)  # the execution is counted by the instance
    stats = bench.stats
    assert stats.queue_count == 1
    assert stats.cache_hit_ns > 0
    assert 0 < stats.cache_miss_ns < stats.success_ns


async def test_equal_requests_that_arrive_meanwhile_are_executed(make: Make) -> None:
    bench = await make()
    bench.ask("a")
    bench.ask("b")

    assert bench.inner.ids == ["a", "b"]


@pytest.mark.parametrize("error", [Internal("broken"), Cancelled("gone")])
async def test_an_error_is_not_kept(make: Make, error: TritonError) -> None:
    bench = await make()
    bench.ask("a")
    bench.inner.answer(response=InferResponse(error=error))

    bench.ask("b")

    assert bench.inner.ids == ["b"]
    assert bench.plugin.entries == {}


async def test_a_response_that_a_backend_has_got_wrong_is_handed_on_and_not_kept(make: Make) -> None:
    bench = await make()
    handed_on: list[Any] = []
    bench.sink.on_response = lambda request, response, final: handed_on.append(response.parameters)
    bench.ask("a")
    bench.inner.answer(response=InferResponse(parameters=3))  # type: ignore[arg-type]

    assert handed_on == [3]
    assert bench.plugin.entries == {}


async def test_a_response_to_a_request_that_was_given_up_is_not_kept(make: Make) -> None:
    bench = await make()
    request = bench.ask("a")
    request.cancel()
    bench.inner.answer()

    assert bench.plugin.entries == {}


async def test_one_of_several_responses_is_not_kept(make: Make) -> None:
    bench = await make()
    bench.sink.on_response = lambda *_: None
    request = bench.ask("a")
    request.deliver(InferResponse(), final=False)
    request.deliver(InferResponse())

    assert bench.plugin.entries == {}


async def test_a_request_without_a_key_passes_by(make: Make) -> None:
    class Device:
        memory_type = MemoryType.GPU
        device_id = 0
        byte_size = 2

        def host_view(self) -> memoryview:
            raise AssertionError

    bench = await make()
    request = InferRequest("m", {"I": Tensor("I", "INT8", (1, 2), Device())})
    request.ticket.sink = bench.sink
    bench.scheduler.enqueue(request)

    assert bench.inner.queue == [request]
    assert bench.counts == (0, 0, 0, 0)


async def test_a_full_queue_raises_and_leaves_the_request_as_it_was(make: Make) -> None:
    bench = await make(order=ResponseOrder())
    bench.inner.refusal = Unavailable("full")
    request = InferRequest("m", {})
    request.ticket.sink = bench.sink

    with pytest.raises(Unavailable, match="full"):
        bench.scheduler.enqueue(request)

    assert request.ticket.sink is bench.sink
    bench.inner.refusal = None
    bench.ask("next")
    bench.inner.answer()
    assert bench.sink.answers == [("next", "next")]  # nobody waits for the place of the other


async def test_a_hit_waits_for_those_before_it_where_order_is_preserved(make: Make) -> None:
    bench = await make(order=ResponseOrder())
    bench.ask("known", 1)
    bench.inner.answer()
    bench.ask("slow", 2)
    bench.ask("hit", 1)
    await turn()
    assert bench.sink.answers == [("known", "known")]

    bench.inner.answer()

    assert bench.sink.answers[1:] == [("slow", "slow"), ("hit", "known")]


async def test_lookups_that_end_in_another_order_are_answered_in_theirs(make: Make) -> None:
    bench = await make(Remote(), order=ResponseOrder())
    bench.ask("a", 1)
    bench.ask("b", 2)
    await turn()
    bench.plugin.asked[1].set_result(None)
    await turn()
    assert bench.inner.ids == ["b"]
    bench.inner.answer()
    bench.plugin.asked[0].set_result(None)
    await turn()
    assert bench.sink.answers == []
    bench.inner.answer()

    assert bench.sink.answers == [("a", "a"), ("b", "b")]


async def test_a_request_cancelled_during_its_lookup_is_answered_at_once_and_never_queued(make: Make) -> None:
    bench = await make(Remote())
    request = bench.ask("a")
    await turn()
    request.cancel()

    assert isinstance(bench.sink.answers[0][1], Cancelled)
    assert bench.stats.failures["CANCELED"] == 1
    bench.plugin.asked[0].set_result(None)
    await turn()
    assert bench.inner.queue == []
    assert bench.counts == (0, 0, 0, 1)


async def test_a_cancellation_reaches_the_queue_after_the_lookup(make: Make) -> None:
    bench = await make(Remote())
    request = bench.ask("a")
    await turn()
    bench.plugin.asked[0].set_result(None)
    await turn()

    assert bench.inner.queue == [request]
    assert request.ticket.on_cancel is None  # the queue would set its own


async def test_a_queue_that_is_full_after_the_lookup_answers_with_its_error(make: Make) -> None:
    bench = await make(Remote())
    bench.ask("a")
    await turn()
    bench.inner.refusal = Unavailable("full")
    bench.plugin.asked[0].set_result(None)
    await turn()

    assert bench.sink.answers == [("a", bench.inner.refusal)]


@pytest.mark.parametrize("is_end", [False, True])
async def test_refusing_answers_whom_the_cache_keeps_waiting(make: Make, is_end: bool) -> None:
    bench = await make(Remote())
    bench.ask("a")
    await turn()
    error = Unavailable("no instance")
    (bench.scheduler.close if is_end else bench.scheduler.refuse)(error)

    assert bench.sink.answers == [("a", error)]
    assert bench.stats.failures["OTHER"] == 1
    with pytest.raises(Unavailable):
        bench.ask("b")
    bench.plugin.asked[0].set_result(None)
    await turn()
    assert bench.inner.queue == []
    assert len(bench.sink.answers) == 1


async def test_after_a_refusal_hits_are_answered_again(make: Make) -> None:
    bench = await make()
    bench.ask("a")
    bench.inner.answer()
    bench.scheduler.refuse(Unavailable("no instance"))
    bench.scheduler.refuse(None)
    bench.ask("b")
    await turn()

    assert bench.sink.answers[-1] == ("b", "a")


async def test_instances_go_to_the_scheduler_behind(make: Make) -> None:
    bench = await make()
    instances: list[Any] = [object()]
    bench.scheduler.use(instances)

    assert bench.inner.used is instances


STEPS = st.one_of(st.integers(0, 2), st.sampled_from(["answer", "fail", "cancel", "turn"]))
"""A request with this content, or what happens next."""


@given(
    st.lists(STEPS, max_size=40),
    st.booleans(),
    st.booleans(),
)
async def test_every_request_is_answered_once_and_rightly(
    steps: list[int | str], is_remote: bool, is_ordered: bool
) -> None:
    plugin = Remote() if is_remote else Memory()
    cache = ResponseCache("it", {}, lambda name: bind_object("caches", plugin, name), 60)
    await cache.open()
    bench = Bench(cache, plugin, ResponseOrder() if is_ordered else None)
    data: dict[str, int] = {}
    requests: list[InferRequest] = []
    cancelled: set[str] = set()

    async def run_lookups() -> None:
        await turn()
        if isinstance(plugin, Remote):
            for future in plugin.asked:
                if not future.done():
                    future.set_result(None)
        await turn()

    for step in steps:
        if isinstance(step, int):
            id = str(len(requests))
            data[id] = step
            requests.append(bench.ask(id, step))
        elif step == "cancel" and requests:
            if requests[-1] in bench.scheduler._looking:
                cancelled.add(requests[-1].id)
            requests[-1].cancel()
        elif step == "turn":
            await run_lookups()
        elif bench.inner.queue and step in ("answer", "fail"):
            bench.inner.answer(-1, InferResponse(error=Internal("no")) if step == "fail" else None)
    await run_lookups()
    while bench.inner.queue:
        bench.inner.answer(-1)
    await turn()
    await cache.close()

    ids = [id for id, _ in bench.sink.answers]
    assert sorted(ids) == sorted(data)
    if is_ordered:
        assert ids == sorted(data, key=int)
    for id, by in bench.sink.answers:
        if isinstance(by, Cancelled):
            assert id in cancelled
        elif not isinstance(by, Internal):
            assert data[by] == data[id]


def test_a_handle_is_not_shared_unless_its_plugin_says_so() -> None:
    assert not Cache({}).is_shared
