"""Tasks that asynchronous hooks leave behind, on threads and in processes."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy.model.async_hooks import AsyncHooks
from tritonpy.options import ServerOptions
from tritonpy.server import Server

from .odd_backends import BODY, CONFIG, raise_exit

LEFT_BEHIND = """
import asyncio
import pathlib

from tritonpy.plugin import InferResponse, hookimpl

TASKS, DONE = set(), []


async def stay(place):
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:  # and not when it is garbage
        pathlib.Path(place).write_text(" ".join(DONE))


@hookimpl
async def model_instance_execute(instance, requests):
    TASKS.add(asyncio.create_task(stay(instance.model.parameter("place"))))
    await asyncio.sleep(0)
    return [InferResponse().add("O", request.input("I")) for request in requests]


@hookimpl
def model_instance_finalize(instance):
    DONE.append("finalized")
"""
LATER = """
import asyncio
import threading

from tritonpy.plugin import InferResponse, hookimpl

TASKS = set()


@hookimpl
async def model_instance_execute(instance, requests):
    thread = threading.current_thread()

    async def answer(request):
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert threading.current_thread() is thread
        request.respond(InferResponse().add("O", request.input("I")))

    for request in requests:
        task = asyncio.create_task(answer(request))
        TASKS.add(task)
        task.add_done_callback(TASKS.discard)
"""


@pytest.fixture(params=["thread", "process"])
def installed(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Server]:
    """Make a server of a model whose backend is this module, installed under a name."""

    def install(name: str, module: str) -> Server:
        site = tmp_path / "site"
        info = site / f"acme_{name}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: acme-{name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[tritonpy.backends]\n{name} = acme_{name}\n")
        (site / f"acme_{name}.py").write_text(module)
        monkeypatch.syspath_prepend(site)
        monkeypatch.setenv("PYTHONPATH", str(site))
        given = {"TRITONPY_ISOLATION": request.param, "place": str(tmp_path / "place")}
        parameters = "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
            for key, value in given.items()
        )
        (tmp_path / "models/m/1").mkdir(parents=True)
        (tmp_path / "models/m/config.pbtxt").write_text(CONFIG.replace("odd", name) + parameters)
        return Server(
            ServerOptions(
                (str(tmp_path / "models"),),
                http_address="127.0.0.1",
                http_port=0,
                allow_grpc=False,
                allow_metrics=False,
            )
        )

    return install


def test_tasks_that_an_async_hook_leaves_behind_are_cancelled_after_its_instance_has_ended(
    installed: Callable[[str, str], Server], tmp_path: Path
) -> None:
    with installed("left_behind", LEFT_BEHIND) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        connection.request("POST", "/v2/models/m/infer", BODY)
        with connection.getresponse() as response:
            assert response.status == 200
        connection.close()
        assert not (tmp_path / "place").exists()

    assert (tmp_path / "place").read_text() == "finalized"


def test_tasks_that_an_async_hook_leaves_behind_answer_their_requests(
    installed: Callable[[str, str], Server],
) -> None:
    with installed("later", LATER) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
        for _ in range(3):
            connection.request("POST", "/v2/models/m/infer", BODY)
            with connection.getresponse() as response:
                assert response.status == 200
                assert json.load(response)["outputs"][0]["data"] == [1.0]
        connection.close()


@pytest.mark.parametrize("is_exit", [True, False])
def test_a_task_that_an_async_hook_leaves_behind_ends_alone(is_exit: bool) -> None:
    hooks, has_run, tasks = AsyncHooks(), threading.Event(), set()

    async def stop() -> None:
        has_run.set()
        if is_exit:
            raise_exit()
        asyncio.get_running_loop().stop()

    async def exits() -> None:
        raise_exit()

    async def hook() -> str:
        tasks.add(asyncio.create_task(stop()))
        return "answers"

    assert hooks.wait(hook()) == "answers"
    assert hooks.next(lambda: [has_run.wait(60), "the next batch"]) == [True, "the next batch"]
    assert hooks.wait(hook()) == "answers"
    with pytest.raises(SystemExit):  # of the hook itself
        hooks.wait(exits())
    hooks.close()
