"""Executors of plugins on an instance's thread: whatever they do, each request is answered once."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import Internal, InvalidArg, TritonError, Unavailable
from tritonpy.executor import Executed
from tritonpy.handles import Backend, Model, ModelInstance
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.execution import Execution
from tritonpy.model.threads import ThreadInstance
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.stats import ModelStats
from tritonpy_sdk.testing import until_async

Outcome = TritonError | Sequence[InferResponse] | None


class Obedient:
    """An executor in Python, whose thread does with each batch what it is told; it answers all otherwise."""

    def __init__(self, do: Callable[[Sequence[InferRequest]], Outcome] | None = None) -> None:
        self.do = do or (lambda requests: [InferResponse() for _ in requests])
        self.story: list[str] = []
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Sequence[InferRequest]]] = deque()
        self._turns: SimpleQueue[bool] = SimpleQueue()
        self._over: deque[Executed] = deque()

    def run(self) -> None:
        self.story.append("run")
        while self._turns.get():
            self._execute()
        self.story.append("stopped")

    def _execute(self) -> None:
        with self._lock:
            if not self._waiting:  # taken back
                return
            batch, requests = self._waiting.popleft()
        start = time.monotonic_ns()
        outcome = self.do(requests)
        del requests
        end = time.monotonic_ns()
        self._over.append(Executed(batch, (start, start, end, end), outcome))
        os.write(self._writing, b"x")

    def stop(self) -> None:
        self._turns.put(False)

    def fileno(self) -> int:
        return self._reading

    def submit(self, batch: int, requests: Sequence[InferRequest]) -> None:
        with self._lock:
            self._waiting.append((batch, tuple(requests)))
        self._turns.put(True)

    def take(self) -> Sequence[Executed]:
        with suppress(BlockingIOError):
            os.read(self._reading, 4096)
        taken = []
        while self._over:
            taken.append(self._over.popleft())
        return taken

    def withdraw(self, batch: int) -> bool:
        with self._lock:
            for index, (number, _) in enumerate(self._waiting):
                if number == batch:
                    del self._waiting[index]
                    return True
        return False

    def close(self) -> None:
        self.story.append("closed")
        os.close(self._reading)
        os.close(self._writing)


class Client:
    """Takes answers, and stands for the model; a `ResponseSink` and a `RequestOwner`."""

    def __init__(self) -> None:
        self.answers: dict[str, list[str]] = {}
        self.finished_count = 0

    def check_outputs(self, request: InferRequest, response: InferResponse) -> InferResponse:
        return response

    def request_finished(self, request: InferRequest, error: TritonError | None) -> None:
        self.finished_count += 1

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert final
        error = response.error if response is not None else None
        self.answers.setdefault(request.id, []).append("" if error is None else str(error))

    async def has(self, *ids: str) -> None:
        """Wait until these requests are answered."""
        await until_async(lambda: all(id in self.answers for id in ids))


class Served:
    """An instance with an executor, its client and what it was told of its idleness."""

    def __init__(self, executor: Any, *, initialize: Callable[[Any], None] | None = None) -> None:
        def prepare(instance: ModelInstance) -> None:
            instance.executor = executor
            if initialize is not None:
                initialize(instance)

        hooks: Any = SimpleNamespace(
            execute=lambda instance, requests: pytest.fail("the hook is called"),
            instance_initialize=prepare,
            instance_finalize=lambda instance: executor.story.append("finalized"),
            instance_ready=None,
        )
        self.executor = executor
        self.client = Client()
        self.stats = ModelStats()
        self.idle_count = 0
        handle = ModelInstance("m_0", 0, "KIND_CPU", 0, Model("m", 1, {}, Path(), Backend("b")))
        self.instance = ThreadInstance(hooks, handle, LoopBridge(asyncio.get_running_loop()), self._on_idle)

    def _on_idle(self) -> None:
        self.idle_count += 1

    def ask(self, *ids: str) -> Execution:
        """Submit a batch of requests with these ids."""
        requests = [InferRequest("m", {}, id=id) for id in ids]
        for request in requests:
            request.queue_start_ns = time.monotonic_ns()
            request.ticket.sink = request.ticket.owner = self.client
        execution = Execution(requests, len(requests), self.stats)
        self.instance.submit(execution)
        return execution

    async def close(self) -> None:
        """Close it as a server that can wait does."""
        async with asyncio.timeout(30):
            await self.instance.drain()
            await self.instance.close()


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    opened: list[Served] = []

    async def open_one(executor: Any, **more: Any) -> Served:
        served = Served(executor, **more)
        await served.instance.open()
        opened.append(served)
        return served

    yield open_one
    for served in opened:
        if "closed" not in served.executor.story:
            await served.close()


async def test_batches_are_executed_in_their_order_and_it_ends_in_order(serve: Serve) -> None:
    seen: list[str] = []

    def note(requests: Sequence[InferRequest]) -> Outcome:
        seen.extend(request.id for request in requests)
        return [InferResponse() for _ in requests]

    served = await serve(Obedient(note))
    served.ask("a", "b")
    served.ask("c")
    served.ask("d")
    await served.client.has("a", "b", "c", "d")
    await served.close()

    assert seen == ["a", "b", "c", "d"]
    assert served.client.answers == {id: [""] for id in "abcd"}
    assert served.executor.story == ["run", "stopped", "finalized", "closed"]
    assert (served.idle_count, served.client.finished_count) == (3, 4)
    assert (served.stats.success_count, served.instance.depth) == (4, 0)


async def test_a_quick_one_is_fed_ahead_and_one_that_is_slow_is_not(serve: Serve) -> None:
    quick = await serve(Obedient())
    for number in range(100):
        quick.ask(str(number))
        await quick.client.has(str(number))
    assert quick.instance.capacity > 1

    slow = await serve(Obedient())
    for number in range(100):
        execution = slow.ask(str(number))
        await slow.client.has(str(number))
        slow.instance._learn(1_000_000_000)
        del execution
    assert slow.instance.capacity == 1


async def test_quick_executions_go_together_at_the_end_of_a_turn_in_their_order(serve: Serve) -> None:
    seen: list[str] = []

    def note(requests: Sequence[InferRequest]) -> Outcome:
        seen.extend(request.id for request in requests)
        return [InferResponse() for _ in requests]

    served = await serve(Obedient(note))
    served.instance._read_ahead.is_quick = True
    served.ask("a")
    second, third = served.ask("b", "c"), served.ask("d")
    assert not served.executor._waiting
    second.requests[0].cancel()
    third.requests[0].cancel()
    await served.client.has(*"abcd")

    assert seen == ["a", "c"]
    assert [len(answers) for answers in served.client.answers.values()] == [1] * 4
    assert served.instance.depth == 0


async def test_what_has_not_gone_when_it_is_closed_by_force_is_answered(serve: Serve) -> None:
    served = await serve(Obedient())
    served.instance._read_ahead.is_quick = True
    served.ask("a", "b")
    await served.instance.close(Unavailable("Server is stopping"))

    assert served.client.answers == {"a": ["Server is stopping"], "b": ["Server is stopping"]}
    assert (served.executor.story[-1], served.instance.depth) == ("closed", 0)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (InvalidArg("not this"), "not this"),
        (5, "returned int, expected a list of InferResponse"),
        ([], "returned 0 responses for 2 requests"),
        (["x", "y"], "returned a list with str in it"),
    ],
)
async def test_a_wrong_outcome_costs_its_own_batch(serve: Serve, outcome: Any, said: str) -> None:
    served = await serve(
        Obedient(lambda requests: outcome if len(requests) == 2 else [InferResponse() for _ in requests])
    )
    served.ask("a", "b")
    served.ask("c")
    await served.client.has("a", "b", "c")

    assert all(said in answer for answer in served.client.answers["a"] + served.client.answers["b"])
    assert [len(answers) for answers in served.client.answers.values()] == [1, 1, 1]
    assert served.client.answers["c"] == [""]


async def test_requests_that_are_answered_later_are_waited_for(serve: Serve) -> None:
    held: list[InferRequest] = []

    def hold(requests: Sequence[InferRequest]) -> None:
        held.extend(requests)
        requests[0].respond(InferResponse())

    served = await serve(Obedient(hold))
    served.ask("a", "b")
    await served.client.has("a")
    closing = asyncio.ensure_future(served.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    await asyncio.to_thread(held[1].respond, InferResponse())
    await closing

    assert served.client.answers == {"a": [""], "b": [""]}
    assert served.stats.success_count == 1  # the model counts the other one when it is answered


async def test_a_request_that_is_dropped_is_answered(serve: Serve) -> None:
    served = await serve(Obedient(lambda requests: None))
    served.ask("a")
    await served.client.has("a")

    (answer,) = served.client.answers["a"]
    assert "dropped the request without a final response" in answer


@pytest.mark.parametrize("fault", [InvalidArg("not this"), ValueError("no idea")])
async def test_a_batch_that_cannot_be_submitted_fails_alone(serve: Serve, fault: Exception) -> None:
    class Choosy(Obedient):
        def submit(self, batch: int, requests: Sequence[InferRequest]) -> None:
            if len(requests) == 2:
                raise fault
            super().submit(batch, requests)

    served = await serve(Choosy())
    served.ask("a", "b")
    assert served.client.answers == {}  # not within the call: its scheduler is in the midst of its turn
    served.ask("c")
    await served.client.has("a", "b", "c")

    assert str(fault) in served.client.answers["a"][0]
    assert [len(answers) for answers in served.client.answers.values()] == [1, 1, 1]
    assert served.client.answers["c"] == [""]
    assert (served.idle_count, served.instance.depth) == (2, 0)


def exit_at_once(_: Sequence[InferRequest]) -> Outcome:
    raise SystemExit("enough")


class Leaves(Obedient):
    def run(self) -> None:
        self._turns.get()


class Mute(Obedient):
    def take(self) -> Sequence[Executed]:
        raise OSError("lost it")


@pytest.mark.parametrize(
    ("executor", "said"),
    [
        (lambda: Obedient(exit_at_once), "SystemExit: enough"),
        (Leaves, "has ended without executing what it had"),
        (Mute, "lost it"),
    ],
)
async def test_an_executor_that_breaks_fails_all_that_it_has_and_all_that_follows(
    serve: Serve, executor: Callable[[], Obedient], said: str
) -> None:
    served = await serve(executor())
    served.ask("a", "b")
    served.ask("c")
    await served.client.has("a", "b", "c")
    served.ask("d")
    await served.client.has("d")
    await served.close()

    for answers in served.client.answers.values():
        (answer,) = answers
        assert said in answer
    assert served.executor.story[-2:] == ["finalized", "closed"]
    assert served.idle_count == 3


async def test_what_one_has_not_executed_when_it_is_stopped_is_answered(serve: Serve) -> None:
    class Lazy(Obedient):
        def submit(self, batch: int, requests: Sequence[InferRequest]) -> None:
            self.batch = batch

    served = await serve(Lazy())
    served.ask("a")
    await served.instance.close()
    await served.client.has("a")

    (answer,) = served.client.answers["a"]
    assert "has ended without executing what it had" in answer


async def test_a_batch_that_nobody_submitted_harms_no_other(serve: Serve) -> None:
    class Inventive(Obedient):
        def take(self) -> Sequence[Executed]:
            return [Executed(4711, (0, 0, 0, 0), None), *super().take()]

    served = await serve(Inventive())
    served.ask("a")
    await served.client.has("a")

    assert served.client.answers == {"a": [""]}


async def test_a_request_that_is_cancelled_behind_another_is_not_executed(serve: Serve) -> None:
    goes_on, seen = threading.Event(), []

    def note(requests: Sequence[InferRequest]) -> Outcome:
        assert goes_on.wait(30)
        seen.append([request.id for request in requests])
        return [InferResponse() for _ in requests]

    served = await serve(Obedient(note))
    served.ask("a")
    second, third = served.ask("b", "c", "d"), served.ask("e")
    second.requests[1].cancel()
    third.requests[0].cancel()
    assert served.instance.depth == 2
    goes_on.set()
    await served.client.has(*"abcde")
    await served.close()

    assert seen == [["a"], ["b", "d"]]
    answers = served.client.answers
    assert [answers[id] for id in "abd"] == [[""]] * 3
    for id in "ce":
        (answer,) = answers[id]
        assert "request was cancelled while it waited" in answer
    assert served.idle_count == 3


async def test_a_request_that_is_cancelled_in_its_execution_is_answered_by_it(serve: Serve) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def look(requests: Sequence[InferRequest]) -> Outcome:
        begun.set()
        assert goes_on.wait(30)
        return [InferResponse(error=InvalidArg(str(requests[0].is_cancelled())))]

    served = await serve(Obedient(look))
    execution = served.ask("a")
    await asyncio.to_thread(begun.wait, 30)
    execution.requests[0].cancel()
    goes_on.set()
    await served.client.has("a")

    assert served.client.answers == {"a": ["True"]}


async def test_one_that_does_not_give_back_executes_what_was_cancelled(serve: Serve) -> None:
    goes_on = threading.Event()

    class Greedy(Obedient):
        def withdraw(self, batch: int) -> bool:
            raise ValueError("mine")

    def wait(requests: Sequence[InferRequest]) -> Outcome:
        assert goes_on.wait(30)
        return [InferResponse() for _ in requests]

    served = await serve(Greedy(wait))
    served.ask("a")
    served.ask("b").requests[0].cancel()
    goes_on.set()
    await served.client.has("a", "b")

    assert served.client.answers == {"a": [""], "b": [""]}


async def test_a_stop_by_force_answers_all_and_executes_nothing_more(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonpy.model.threads._LEAVE_BEHIND_S", 0.01)
    begun, goes_on, seen = threading.Event(), threading.Event(), []

    def note(requests: Sequence[InferRequest]) -> Outcome:
        begun.set()
        assert goes_on.wait(30)
        seen.extend(request.id for request in requests)
        return [InferResponse() for _ in requests]

    served = await serve(Obedient(note))
    served.ask("a")
    await asyncio.to_thread(begun.wait, 30)
    served.ask("b")
    await served.instance.close(Unavailable("Server is stopping"))
    assert served.instance.is_left_behind
    goes_on.set()
    await until_async(lambda: not served.instance.is_left_behind)

    assert served.client.answers == {"a": ["Server is stopping"], "b": ["Server is stopping"]}
    assert seen == ["a"]
    assert served.executor.story == ["run", "stopped", "finalized", "closed"]
    assert served.instance.depth == 0


async def test_one_whose_instance_is_refused_never_runs_and_is_closed() -> None:
    def refuse(_: Any) -> None:
        raise Internal("no room")

    served = Served(Obedient(), initialize=refuse)
    with pytest.raises(Internal, match="no room"):
        await served.instance.open()
    await until_async(lambda: not served.instance.is_left_behind)

    assert served.executor.story == ["closed"]


async def test_one_that_has_no_descriptor_fails_the_load_and_its_instance_is_finalised() -> None:
    class Poor(Obedient):
        def fileno(self) -> int:
            raise Unavailable("too many open files")

    served = Served(Poor())
    with pytest.raises(Unavailable, match="too many open files"):
        await served.instance.open()
    await until_async(lambda: not served.instance.is_left_behind)

    assert served.executor.story == ["finalized", "closed"]


async def test_a_load_that_is_given_up_while_it_begins_ends_the_executor() -> None:
    goes_on, begun = threading.Event(), threading.Event()

    def wait(_: Any) -> None:
        begun.set()
        assert goes_on.wait(30)

    served = Served(Obedient(), initialize=wait)
    opening = asyncio.ensure_future(served.instance.open())
    await asyncio.to_thread(begun.wait, 30)
    opening.cancel()
    await asyncio.wait([opening])
    goes_on.set()
    await until_async(lambda: not served.instance.is_left_behind)

    assert served.executor.story == ["finalized", "closed"]
