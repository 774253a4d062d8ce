"""How a backend says which program its workers run, and in which environment; with real processes."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from tritonpy.errors import InvalidArg, TritonError, Unavailable
from tritonpy.handles import Model, WorkerCommand
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

PLUGIN = """
import ctypes
import os
import numpy as np
from tritonpy.plugin import InferResponse, Tensor, hookimpl

answer = None  # set by the test, in the server's process

@hookimpl
def worker_command(model):
    return answer(model)

@hookimpl
def model_instance_execute(instance, requests):
    [request] = requests
    if request.id == "die":
        os._exit(3)
    if request.id == "print":
        print("said by the plugin")
    if request.id == "crash":
        ctypes.string_at(0)
    value = os.environ.get(request.id, "not set")
    return [InferResponse().add("Y", Tensor.from_numpy("Y", np.array([value.encode()], object)))]
"""

WORKER = [sys.executable, "-m", "tritonpy.workers.child.main"]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    info = tmp_path / "command_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: command-test\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tritonpy.backends]\ncommand_test = command_test_plugin\n")
    (tmp_path / "command_test_plugin.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # for the worker
    monkeypatch.delitem(sys.modules, "command_test_plugin", raising=False)
    importlib.invalidate_caches()
    return importlib.import_module("command_test_plugin")


class Client:
    """Asks an instance for environment variables of its worker, one at a time."""

    def __init__(self, instance: ProcessInstance) -> None:
        self._instance = instance
        self._answers: asyncio.Queue[InferResponse | None] = asyncio.Queue()

    async def variable(self, name: str) -> str:
        request = InferRequest("m", {"X": Tensor.from_numpy("X", np.zeros(1, np.int32))}, id=name)
        request.ticket.sink = self
        self._instance.submit(Execution([request], 1, ModelStats()))
        response = await asyncio.wait_for(self._answers.get(), 60)
        assert response is not None
        if response.error is not None:
            raise response.error
        return response.outputs[0].numpy()[0].decode()

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self._answers.put_nowait(response)


@asynccontextmanager
async def running(
    *, on_restart: Callable[[], None] = lambda: None, start_timeout_s: float = 60
) -> AsyncIterator[Client]:
    backend = BoundBackend("command_test", PluginManager("backends"), {})
    launcher = WorkerLauncher(
        backend,
        Model("m", 1, {"name": "m", "max_batch_size": 0}, Path("/"), backend.handle),
        access=ServerAccess(ModelRegistry(), Services()),
        events=WorkerEvents(lambda error: None, on_restart),
        start_timeout_s=start_timeout_s,
        finalize_timeout_s=30,
    )
    await launcher.open()
    instance = await launcher.start_instance(
        Slot("m_0_0", 0, "KIND_CPU", 0), lambda: None, lambda request: None
    )
    try:
        yield Client(instance)
    finally:
        await instance.close()
        await launcher.close()


async def test_a_worker_gets_the_variables_its_backend_names_and_loses_those_it_takes_away(
    plugin, monkeypatch
):
    monkeypatch.setenv("STAYS", "as it is")
    monkeypatch.setenv("GOES", "away")
    plugin.answer = lambda model: WorkerCommand(WORKER, {"COMES": f"for {model.name}", "GOES": None})

    async with running() as client:
        found = [await client.variable(name) for name in ("STAYS", "GOES", "COMES")]

    assert found == ["as it is", "not set", "for m"]
    assert os.environ["GOES"] == "away"


@pytest.mark.parametrize("answer", [WORKER, tuple(WORKER), None], ids=["list", "tuple", "default"])
async def test_a_plain_sequence_or_nothing_will_do(plugin, monkeypatch, answer):
    monkeypatch.setenv("STAYS", "as it is")
    plugin.answer = lambda model: answer

    async with running() as client:
        assert await client.variable("STAYS") == "as it is"


async def test_a_backend_may_take_its_time_to_answer_and_the_loop_goes_on(plugin):
    loop = asyncio.get_running_loop()
    loop_turned = threading.Event()

    def answer(model: Model) -> list[str]:
        loop.call_soon_threadsafe(loop_turned.set)
        assert loop_turned.wait(60), "asked on the loop"
        return WORKER

    plugin.answer = answer

    async with running() as client:
        assert await client.variable("NONE_OF_THAT_NAME") == "not set"


async def test_the_backend_is_asked_once_per_load_and_not_for_a_restart(plugin):
    asked = []
    restarted = asyncio.Event()
    plugin.answer = lambda model: asked.append(model.name) or WorkerCommand(WORKER, {"COMES": "again"})

    async with running(on_restart=restarted.set) as client:
        with pytest.raises(TritonError, match="exited with code 3"):
            await client.variable("die")
        await asyncio.wait_for(restarted.wait(), 60)
        value = await client.variable("COMES")

    assert value == "again"
    assert asked == ["m"]


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        (InvalidArg("no such environment"), InvalidArg, "no such environment"),
        (Unavailable("try later"), Unavailable, "try later"),
        (
            ValueError("oops"),
            TritonError,
            "backend 'command_test' failed to name its worker: ValueError: oops",
        ),
    ],
)
async def test_an_exception_of_the_backend_fails_the_load_with_its_text(plugin, raised, code, text):
    def answer(model: Model) -> None:
        raise raised

    plugin.answer = answer

    with pytest.raises(code) as refused:
        async with running():
            pass

    assert refused.value.message == text


async def test_a_program_that_is_not_there_is_named(plugin):
    plugin.answer = lambda model: WorkerCommand(["/nonexistent/python"])

    with pytest.raises(TritonError, match=r"cannot start the worker .*'/nonexistent/python'"):
        async with running():
            pass


async def test_what_a_plugin_prints_in_its_process_is_logged_and_so_is_where_it_crashed(plugin, caplog):
    plugin.answer = lambda model: None
    caplog.set_level(logging.INFO, "tritonpy.worker")

    async with running() as client:
        await client.variable("print")
        with pytest.raises(TritonError, match="SIGSEGV"):
            await client.variable("crash")

    lines = [record.getMessage() for record in caplog.records]
    assert lines.index("said by the plugin") < lines.index("Fatal Python error: Segmentation fault")
    assert any("command_test_plugin.py" in line and "in model_instance_execute" in line for line in lines)


async def test_a_program_that_does_not_start_in_time_is_named_with_its_limit(plugin):
    plugin.answer = lambda model: WorkerCommand([sys.executable, "-c", "import time; time.sleep(60)"])

    with pytest.raises(TritonError) as refused:
        async with running(start_timeout_s=0.2):
            pass

    assert refused.value.message == (
        "Stub process 'm' is not healthy. Its program did not start within 0.2 seconds, "
        "the limit that --backend-config=command_test,stub-timeout-seconds sets"
    )
