"""Workers that end at a bad moment, and a system that cannot start another; with real processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Internal, TritonError
from tritonpy.handles import Model
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.model.backend import BoundBackend
from tritonpy.model.execution import Execution, WarmUp
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

CONFIG: dict[str, Any] = {
    "name": "m",
    "max_batch_size": 0,
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [1]}],
}


class Answer:
    """One request to an instance, and what comes of it."""

    def __init__(self, instance: Any) -> None:
        self._came: asyncio.Future[InferResponse | None] = asyncio.get_running_loop().create_future()
        x = Tensor.from_numpy("INPUT0", np.zeros(1, np.int32))
        request = InferRequest("m", {"INPUT0": x})
        request.ticket.sink = self
        instance.submit(Execution([request], 1, ModelStats()))

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self._came.set_result(response)

    async def error(self) -> str:
        """Why it failed; "" if it did not."""
        response = await asyncio.wait_for(self._came, 60)
        assert response is not None
        return str(response.error or "")


@asynccontextmanager
async def launcher(events: WorkerEvents | None = None) -> AsyncIterator[WorkerLauncher]:
    backend = BoundBackend("identity", PluginManager("backends"), {})
    made = WorkerLauncher(
        backend,
        Model("m", 1, CONFIG, Path("/"), backend.handle),
        access=ServerAccess(ModelRegistry(), Services()),
        events=events or WorkerEvents(lambda error: None, lambda: None),
        start_timeout_s=60,
        finalize_timeout_s=30,
    )
    await made.open()
    await made.initialize_model(CONFIG)
    try:
        yield made
    finally:
        await made.close()


def start(made: WorkerLauncher, warm_up: WarmUp | None = None) -> Awaitable[ProcessInstance]:
    slot = Slot("m_0_0", 0, "KIND_CPU", 0)
    return asyncio.wait_for(made.start_instance(slot, lambda: None, lambda request: None, warm_up), 60)


async def killed(instance: Any) -> None:
    """The worker is gone, and the instance has not been told so yet."""
    os.kill(instance.pid, signal.SIGKILL)
    while instance._worker.is_connected:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_worker_that_ends_between_two_warmups_holds_up_no_load() -> None:
    async def warm_up(instance: Any) -> None:
        assert await Answer(instance).error() == ""
        await killed(instance)
        raise Internal(await Answer(instance).error())

    async with launcher() as made:
        with pytest.raises(TritonError, match="its worker has ended while it was warmed up"):
            await start(made, warm_up)


async def test_batches_that_end_their_workers_one_after_the_other_hold_up_no_restart() -> None:
    restarted = asyncio.Event()
    down: list[TritonError] = []

    async with launcher(WorkerEvents(down.append, restarted.set)) as made:
        instance = await start(made)
        assert await Answer(instance).error() == ""
        for _ in range(3):
            restarted.clear()
            os.kill(instance.pid, signal.SIGSTOP)  # so that the batch is never completed
            poison = Answer(instance)
            os.kill(instance.pid, signal.SIGKILL)
            assert await poison.error() == (
                "Stub process 'm_0_0' is not healthy. It was killed by signal 9 (SIGKILL) "
                "while it executed this request"
            )
            await asyncio.wait_for(restarted.wait(), 60)
        assert down == []
        assert await Answer(instance).error() == ""
        await instance.close()


async def test_a_restart_whose_worker_ends_in_its_warmup_is_tried_again() -> None:
    restarted = asyncio.Event()
    ends_at = [2]  # the second worker ends, the first and the third do not

    async def warm_up(instance: Any) -> None:
        ends_at[0] -= 1
        if ends_at[0] == 0:
            await killed(instance)
        error = await Answer(instance).error()
        if error:
            raise Internal(error)

    async with launcher(WorkerEvents(lambda error: None, restarted.set)) as made:
        instance = await start(made, warm_up)
        await killed(instance)
        early = Answer(instance)  # it waits for the next worker, which there is none of
        assert "has ended while it was warmed up" in await early.error()
        await asyncio.wait_for(restarted.wait(), 60)
        assert await Answer(instance).error() == ""
        assert instance.depth == 0
        await instance.close()


async def test_an_instance_comes_back_whatever_kept_the_system_from_starting_its_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restarted = asyncio.Event()
    down: list[TritonError] = []
    starts: list[Callable[..., Any]] = []

    async with launcher(WorkerEvents(down.append, restarted.set)) as made:
        instance = await start(made)
        original = made._start_worker

        async def start_worker(*args: Any) -> Any:
            starts.append(start_worker)
            if len(starts) == 1:
                raise RuntimeError("can't start new thread")
            return await original(*args)

        monkeypatch.setattr(made, "_start_worker", start_worker)
        await killed(instance)
        assert "can't start new thread" in await Answer(instance).error()
        assert [str(error) for error in down] == ["RuntimeError: can't start new thread"]
        await asyncio.wait_for(restarted.wait(), 60)
        assert await Answer(instance).error() == ""
        await instance.close()
