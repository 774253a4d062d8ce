"""What waits in front of an instance on a thread, and when it begins."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Unavailable
from tritonpy.handles import Backend, Model
from tritonpy.model import read_ahead
from tritonpy.model.backend import LoadTurn
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.placement import Slot
from tritonpy.model.threads import ThreadInstance, ThreadLauncher
from tritonpy.plugin import InferResponse
from tritonpy.request import InferRequest
from tritonpy.scheduler.direct import DirectPolicy
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor
from tritonpy_sdk.testing import DEADLINE_S, until


class Gate:
    """A model whose executions wait until they may go on."""

    def __init__(self) -> None:
        self.begun: list[list[str]] = []
        self.answers: list[tuple[str, bool]] = []
        self._may_go = threading.Semaphore(0)

    def execute(self, instance: Any, requests: Any) -> list[InferResponse]:
        self.begun.append([request.id for request in requests])
        assert self._may_go.acquire(timeout=DEADLINE_S)
        return [InferResponse() for _ in requests]

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert response is not None
        self.answers.append((request.id, response.error is None))

    def request(self, name: str) -> InferRequest:
        made = InferRequest("m", {"I": Tensor.from_numpy("I", np.zeros(1, np.float32))}, id=name)
        made.ticket.sink = self
        return made

    async def let_go(self, count: int) -> None:
        """Let so many executions end, one after the other, and wait for their answers."""
        for _ in range(count):
            answered = len(self.answers)
            self._may_go.release()
            await asyncio.to_thread(until, lambda answered=answered: len(self.answers) > answered)


@asynccontextmanager
async def gated(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> AsyncIterator[tuple[Gate, Scheduler, list[ThreadInstance]]]:
    """Instances on threads, whose executions take long enough to be fed ahead, however long they take."""
    monkeypatch.setattr(read_ahead, "_THREAD_AHEAD_FROM_NS", 0)
    monkeypatch.setattr(read_ahead, "_THREAD_AHEAD_BELOW_NS", 10**18)
    gate = Gate()
    backend: Any = SimpleNamespace(
        load_turn=LoadTurn(),
        open_turn=LoadTurn(),
        has_life=False,
        execute=gate.execute,
        instance_initialize=None,
        instance_finalize=None,
        model_finalize=None,
    )
    bridge = LoopBridge(asyncio.get_running_loop())
    launcher = ThreadLauncher(backend, Model("m", 1, {}, Path(), Backend("odd", {})), bridge)
    scheduler = Scheduler(DirectPolicy(), ModelStats())
    instances = [
        await launcher.start_instance(
            Slot(f"m_{index}", index, "KIND_CPU", 0), scheduler.pump, lambda _: None
        )
        for index in range(count)
    ]
    scheduler.use(instances)
    try:
        yield gate, scheduler, instances
    finally:
        for instance in instances:
            await instance.close()
        await launcher.close()


async def test_the_only_instance_goes_on_with_its_next_batch_before_the_loop_has_answered_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gated(monkeypatch, 1) as (gate, scheduler, (instance,)):
        scheduler.enqueue(gate.request("a"))
        await gate.let_go(1)
        for name in "bcd":
            scheduler.enqueue(gate.request(name))
        assert instance.depth == 2

        await asyncio.to_thread(until, lambda: len(gate.begun) == 2)
        gate._may_go.release()
        until(lambda: len(gate.begun) == 3)  # while the loop stands still
        assert [name for name, _ in gate.answers] == ["a"]
        await gate.let_go(2)

        assert gate.answers == [(name, True) for name in "abcd"]
        assert instance.depth == 0


async def test_one_of_several_instances_leaves_what_it_cannot_begin_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gated(monkeypatch, 2) as (gate, scheduler, instances):
        for name in "ab":
            scheduler.enqueue(gate.request(name))
        await gate.let_go(2)
        for name in "cdef":
            scheduler.enqueue(gate.request(name))
        assert [instance.depth for instance in instances] == [1, 1]
        await gate.let_go(4)


async def test_a_request_that_is_cancelled_in_front_of_a_busy_instance_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gated(monkeypatch, 1) as (gate, scheduler, (instance,)):
        scheduler.enqueue(gate.request("a"))
        await gate.let_go(1)
        requests = {name: gate.request(name) for name in "bcd"}
        for request in requests.values():
            scheduler.enqueue(request)
        await asyncio.to_thread(until, lambda: len(gate.begun) == 2)

        requests["c"].cancel()
        assert gate.answers[1:] == [("c", False)]
        assert instance.depth == 2  # the next one has taken its place
        requests["b"].cancel()  # which is executed: the model may look, and answers
        await gate.let_go(2)

        assert gate.answers[2:] == [("b", True), ("d", True)]
        assert gate.begun == [["a"], ["b"], ["d"]]


async def test_what_waits_in_front_of_an_instance_that_is_closed_by_force_is_answered_and_not_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tritonpy.model.threads._LEAVE_BEHIND_S", 0.01)
    async with gated(monkeypatch, 1) as (gate, scheduler, (instance,)):
        scheduler.enqueue(gate.request("a"))
        await gate.let_go(1)
        for name in "bc":
            scheduler.enqueue(gate.request(name))
        await asyncio.to_thread(until, lambda: len(gate.begun) == 2)

        await instance.close(Unavailable("the server stops"))
        assert gate.answers[1:] == [("b", False), ("c", False)]
        gate._may_go.release()

    assert gate.begun == [["a"], ["b"]]
