"""Requests of an isolated backend and their slots at the worker, with a real process.

A slot is given to the next request as soon as its request has had the final response, so an answer that comes
late, or a slot that is given back twice, would hit a stranger.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from tritonpy.handles import Model
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.model.backend import BoundBackend
from tritonpy.model.execution import Execution
from tritonpy.model.placement import Slot
from tritonpy.plugin_manager import PluginManager
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor
from tritonpy.workers.calls import ServerAccess
from tritonpy.workers.instance import ProcessInstance, WorkerEvents
from tritonpy.workers.launcher import WorkerLauncher
from tritonpy.workers.worker_services import Services

RETURNS, RAISES, RESPONDS, RESPONDS_AND_RAISES, LEASES = range(5)

PLUGIN = f"""
import time
from tritonpy.plugin import InferResponse, hookimpl

@hookimpl
def model_instance_execute(instance, requests):
    [request] = requests
    behaviour = request.input("X").numpy()[0]
    response = InferResponse().add("Y", request.input("X"))
    if behaviour == {RETURNS}:
        return [response]
    if behaviour == {RAISES}:
        raise ValueError("refused")
    if behaviour == {LEASES}:
        numbers = instance.lease_output(400_000).view("int32")
        numbers[:] = behaviour
        return [InferResponse().add("Y", numbers)]
    request.respond(response)
    if behaviour == {RESPONDS_AND_RAISES}:
        time.sleep(0.005)  # long enough for the server to reuse the slot
        raise ValueError("too late")
"""


class Client:
    """Sends one request after the other, keeping `open_count` of them at the instance."""

    def __init__(self, behaviours: list[int], open_count: int) -> None:
        self._todo = deque(behaviours)
        self._open_count = open_count
        self._unanswered = len(behaviours)
        self._stats = ModelStats()
        self._loop = asyncio.get_running_loop()
        self.instance: ProcessInstance | None = None
        self.answers: list[tuple[int, str]] = []
        self.done = asyncio.Event()

    def send(self) -> None:
        instance = self.instance
        while (
            instance is not None
            and self._todo
            and instance.is_ready
            and instance.depth < instance.capacity
            and self._unanswered - len(self._todo) < self._open_count
        ):
            array = np.array([self._todo.popleft()], np.int32)
            request = InferRequest("m", {"X": Tensor.from_numpy("X", array)})
            request.ticket.sink = self
            instance.submit(Execution([request], 1, self._stats))

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        assert final
        assert response is not None
        behaviour = int(request.input("X").numpy()[0])
        if response.error is None:
            assert {*response.outputs[0].numpy().tolist()} == {behaviour}
        self.answers.append((behaviour, str(response.error or "")))
        self._unanswered -= 1
        self._loop.call_soon(self.send)
        if not self._unanswered:
            self.done.set()


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BoundBackend:
    info = tmp_path / "slot_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slot-test\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tritonpy.backends]\nslot_test = slot_test_plugin\n")
    (tmp_path / "slot_test_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the worker
    importlib.invalidate_caches()
    return BoundBackend("slot_test", PluginManager("backends"), {})


async def answers_to(backend: BoundBackend, behaviours: list[int], open_count: int) -> list[tuple[int, str]]:
    model = Model("m", 1, {"name": "m", "max_batch_size": 0}, Path("/"), backend.handle)
    launcher = WorkerLauncher(
        backend,
        model,
        access=ServerAccess(ModelRegistry(), Services()),
        events=WorkerEvents(lambda error: None, lambda: None),
        start_timeout_s=60,
        finalize_timeout_s=30,
    )
    client = Client(behaviours, open_count)
    await launcher.open()
    client.instance = await launcher.start_instance(
        Slot("m_0_0", 0, "KIND_CPU", 0), client.send, lambda request: None
    )
    try:
        client.send()
        async with asyncio.timeout(60):
            await client.done.wait()
    finally:
        await client.instance.close()
        await launcher.close()
    return client.answers


@pytest.mark.parametrize("open_count", [1, 2])
async def test_requests_that_follow_a_failed_one_get_their_own_answers(backend, open_count):
    behaviours = [RAISES, RETURNS, RESPONDS, RAISES, RAISES, RESPONDS] * 20

    answers = await answers_to(backend, behaviours, open_count)

    for behaviour, error in answers:
        assert ("ValueError: refused" in error) if behaviour == RAISES else (error == "")
    assert sorted(behaviour for behaviour, _ in answers) == sorted(behaviours)


@pytest.mark.parametrize("open_count", [1, 2])
async def test_an_execution_that_fails_after_it_answered_takes_no_slot_from_another(backend, open_count):
    behaviours = [RESPONDS_AND_RAISES, RESPONDS, RETURNS] * 20

    answers = await answers_to(backend, behaviours, open_count)

    assert sorted(answers) == sorted((behaviour, "") for behaviour in behaviours)


async def test_outputs_in_leased_memory_arrive_beside_others(backend: BoundBackend) -> None:
    behaviours = [LEASES, RETURNS] * 50

    answers = await answers_to(backend, behaviours, open_count=8)

    assert sorted(answers) == sorted((behaviour, "") for behaviour in behaviours)
