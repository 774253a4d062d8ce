"""Backends on threads that break their promises."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import logging
import socket
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Unavailable
from tritonpy.handles import Backend, Model
from tritonpy.model import read_ahead
from tritonpy.model.async_hooks import AsyncHooks
from tritonpy.model.backend import LoadTurn
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.placement import Slot
from tritonpy.model.threads import ThreadInstance, ThreadLauncher
from tritonpy.options import ServerOptions
from tritonpy.plugin import BackendAttributes, InferResponse, InvalidArg, hookimpl
from tritonpy.request import InferRequest
from tritonpy.scheduler.direct import DirectPolicy
from tritonpy.scheduler.scheduler import Scheduler
from tritonpy.server import Server
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor
from tritonpy_sdk.testing import DEADLINE_S, until

CONFIG = """
backend: "odd"
input [ { name: "I" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "O" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
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
BODY = json.dumps({"inputs": [{"name": "I", "datatype": "FP32", "shape": [1], "data": [1]}]})


def test_a_second_response_over_http_is_dropped_and_never_reaches_the_next_request(tmp_path: Path) -> None:
    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> None:
        for request in requests:
            first = InferResponse().add("O", request.input("I"))
            request.respond(first, final=False)
            request.respond(InferResponse().add("O", request.input("I")))

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    options = ServerOptions(
        (str(tmp_path),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    plugin = SimpleNamespace(model_instance_execute=model_instance_execute)
    with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
        # One buffer for the whole connection, so that a stray second response would be read as the next one.
        address = ("127.0.0.1", server.http_port)
        with socket.create_connection(address, timeout=30) as client, client.makefile("rb") as stream:
            for value in range(20):
                body = BODY.replace("[1]}", f"[{value}]}}").encode()
                head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n"
                client.sendall(head.encode() + body)
                length = 0
                while (line := stream.readline()) != b"\r\n":
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                document = json.loads(stream.read(length))

                assert document["outputs"][0]["data"] == [value]


async def inflight_count(server: Server) -> int:
    """To be asked on the loop: a client has its answer before its request is no longer counted."""
    return server.runtime.registry.find("m").inflight_count


def raise_exit() -> Any:
    sys.exit("enough")


@pytest.mark.parametrize(
    ("misbehave", "said"),
    [
        (lambda: 5, "returned int, expected a list of InferResponse"),
        (lambda: ["x"], "returned a list with str in it"),
        (lambda: [], "returned 0 responses for 1 requests"),
        (raise_exit, "SystemExit: enough"),
    ],
)
def test_it_costs_its_own_batch_and_the_instance_serves_on(
    tmp_path: Path, misbehave: Callable[[], Any], said: str
) -> None:
    calls: list[int] = []

    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            return misbehave()
        return [InferResponse().add("O", request.input("I")) for request in requests]

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    options = ServerOptions(
        (str(tmp_path),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    plugin = SimpleNamespace(model_instance_execute=model_instance_execute)
    with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
        answers = []
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
            connection.request("POST", "/v2/models/m/infer", BODY)
            response = connection.getresponse()
            answers.append((response.status, response.read().decode()))
            connection.close()
        inflight = asyncio.run_coroutine_threadsafe(inflight_count(server), server.loop).result(20)

    assert answers[0][0] == 500
    assert said in answers[0][1]
    assert answers[1][0] == 200
    assert inflight == 0


def test_a_batch_that_fails_leaves_no_request_to_the_garbage_collector(tmp_path: Path) -> None:
    requests_seen: list[weakref.ref[Any]] = []

    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> None:
        requests_seen.extend(map(weakref.ref, requests))
        raise InvalidArg("no")

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    options = ServerOptions(
        (str(tmp_path),), http_address="127.0.0.1", http_port=0, allow_grpc=False, allow_metrics=False
    )
    plugin = SimpleNamespace(model_instance_execute=model_instance_execute)
    with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
        gc.disable()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
            connection.request("POST", "/v2/models/m/infer", BODY)
            assert connection.getresponse().status == 400
            connection.close()
            until(lambda: [request() for request in requests_seen] == [None])
        finally:
            gc.enable()


def test_an_instance_that_goes_is_finalised_after_the_last_answer_that_it_owes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`execute` has returned long before; the answers come from a thread of the backend's own."""
    monkeypatch.setattr("tritonpy.model.instance_set._PATIENCE_S", 0.1)  # the patience of the load
    finalized: list[str] = []
    held: list[Any] = []

    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> None:
        held.extend((instance.name, request) for request in requests)

    @hookimpl
    def model_instance_finalize(instance: Any) -> None:
        finalized.append(instance.name)

    def ask(answers: list[int]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        connection.request("POST", "/v2/models/m/infer", BODY)
        answers.append(connection.getresponse().status)
        connection.close()

    def load(kind: str) -> None:
        (tmp_path / "m" / "config.pbtxt").write_text(f"{CONFIG} instance_group {{ kind: {kind} count: 1 }}")
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        connection.request("POST", "/v2/repository/models/m/load", b"{}")
        assert connection.getresponse().status == 200
        connection.close()

    (tmp_path / "m" / "1").mkdir(parents=True)
    options = ServerOptions(
        (str(tmp_path),),
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
        model_control_mode="explicit",
    )
    plugin = SimpleNamespace(
        model_instance_execute=model_instance_execute, model_instance_finalize=model_instance_finalize
    )
    with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
        load("KIND_CPU")
        statuses: list[int] = []
        threads = [threading.Thread(target=ask, args=(statuses,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: len(held) == 2)  # both by the only instance, which is free again
        (name,) = {name for name, _ in held}
        load("KIND_MODEL")  # another instance takes its place, and it still owes two answers
        _, first = held.pop()
        first.respond(InferResponse().add("O", first.input("I")))
        until(lambda: len(statuses) == 1)
        assert finalized == []
        _, last = held.pop()
        last.respond(InferResponse().add("O", last.input("I")))
        until(lambda: finalized == [name])
        for thread in threads:
            thread.join()
        assert statuses == [200, 200]
        del first, last


def test_requests_that_an_instance_owes_answers_are_refused_when_the_server_stops(tmp_path: Path) -> None:
    held: list[Any] = []

    @hookimpl
    def model_instance_execute(instance: Any, requests: Any) -> None:
        held.extend(requests)

    def ask() -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
        connection.request("POST", "/v2/models/m/infer", BODY)
        response = connection.getresponse()
        said = response.read().decode()
        connection.close()
        return response.status, said

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    options = ServerOptions(
        (str(tmp_path),),
        http_address="127.0.0.1",
        http_port=0,
        allow_grpc=False,
        allow_metrics=False,
        exit_timeout_s=0.1,
    )
    plugin = SimpleNamespace(model_instance_execute=model_instance_execute)
    with ThreadPoolExecutor() as clients:
        with Server(options, plugins={"backends": {"odd": plugin}}, discover=False) as server:
            answers = [clients.submit(ask) for _ in range(2)]
            until(lambda: len(held) == 2)
        for answer in answers:
            status, said = answer.result(20)
            assert status == 503
            assert "Server is stopping" in said
    held.pop().respond(InferResponse())  # too late, and harmless


def load(server: Server, model: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request("POST", f"/v2/repository/models/{model}/load", b"{}")
    response = connection.getresponse()
    error = response.read().decode()
    connection.close()
    return response.status, error


@pytest.fixture
def explicit(tmp_path: Path) -> Callable[..., Any]:
    def serve(
        models: Sequence[str], hooks: dict[str, Any], even: Sequence[str] = (), **settings: Any
    ) -> Server:
        for model in (*models, *even):
            config = CONFIG if model in models else CONFIG.replace("odd", "even")
            (tmp_path / model / "1").mkdir(parents=True, exist_ok=True)
            (tmp_path / model / "config.pbtxt").write_text(config)
        options = ServerOptions(
            (str(tmp_path),),
            http_address="127.0.0.1",
            http_port=0,
            allow_grpc=False,
            allow_metrics=False,
            model_control_mode="explicit",
            **settings,
        )
        plugin = SimpleNamespace(**{name: hookimpl(hook) for name, hook in hooks.items()})
        backends = {"odd": plugin, "even": SimpleNamespace(model_instance_execute=hookimpl(execute))}
        return Server(options, plugins={"backends": backends}, discover=False)

    return serve


def execute(instance: Any, requests: Any) -> Any:
    return [InferResponse() for _ in requests]


PARALLEL = {"backend_attributes": lambda: BackendAttributes(parallel_instance_loading=True)}


def _loading_hook(name: str, function: Callable[[Any], None]) -> Callable[..., None]:
    """The function as a hook of this name, whose argument is called as the hook's."""
    if name == "model_instance_initialize":
        return lambda instance: function(instance)
    return lambda model: function(model)


@pytest.mark.parametrize("hook", ["backend_initialize", "model_initialize", "model_instance_initialize"])
def test_one_that_exits_in_its_start_is_not_loaded_and_the_server_serves_on(
    explicit: Callable[..., Any], hook: str
) -> None:
    hooks: dict[str, Any] = {
        "backend_initialize": lambda backend: raise_exit(),
        "model_initialize": lambda model: raise_exit(),
        "model_instance_initialize": lambda instance: raise_exit(),
    }
    hooks = {"model_instance_execute": execute, hook: hooks[hook]}
    with explicit(["m"], hooks) as server:
        for _ in range(2):
            status, error = load(server, "m")
            assert status == 400
            assert "SystemExit: enough" in error


def test_one_that_exits_in_its_end_ends_all_the_same(explicit: Callable[..., Any]) -> None:
    def exits(instance: Any) -> Any:
        raise_exit()

    hooks = {"model_instance_execute": execute, "model_instance_finalize": exits}
    with explicit(["m"], hooks) as server:
        assert load(server, "m") == (200, "")
        (instance,) = server.runtime.registry.find("m").instances
    assert not instance.is_left_behind


def test_as_many_models_load_at_once_as_the_options_say_and_hold_up_nobody_else(
    explicit: Callable[..., Any],
) -> None:
    count = 40  # asyncio has 32 threads at most for everybody
    barrier, done = threading.Barrier(count + 1), threading.Event()

    def model_initialize(model: Any) -> None:
        barrier.wait(60)
        done.wait(60)

    names = [f"m{number}" for number in range(count)]
    hooks = {"model_instance_execute": execute, "model_initialize": model_initialize, **PARALLEL}
    with (
        explicit(names, hooks, model_load_thread_count=count) as server,
        ThreadPoolExecutor(count) as clients,
    ):
        loads = [clients.submit(load, server, name) for name in names]
        barrier.wait(60)
        asked = asyncio.run_coroutine_threadsafe(asyncio.to_thread(lambda: "at once"), server.loop)
        assert asked.result(20) == "at once"
        done.set()
        assert [each.result(20) for each in loads] == [(200, "")] * count


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


def test_hooks_that_load_models_of_one_backend_take_turns_unless_it_says_otherwise(
    explicit: Callable[..., Any],
) -> None:
    names = [f"m{number}" for number in range(4)]
    turn, met = threading.Lock(), []

    def alone(model_or_instance: Any) -> None:
        has_turn = turn.acquire(blocking=False)
        met.append(not has_turn)
        time.sleep(0.01)  # room for another one to come
        if has_turn:
            turn.release()

    hooks = {"model_instance_execute": execute} | {
        hook: _loading_hook(hook, alone)
        for hook in ("model_auto_complete_config", "model_initialize", "model_instance_initialize")
    }
    with (
        explicit(names, hooks, model_load_thread_count=4) as server,
        ThreadPoolExecutor(4) as clients,
    ):
        assert list(clients.map(lambda name: load(server, name), names)) == [(200, "")] * 4
    assert met == [False] * 12


@pytest.mark.parametrize("hook", ["backend_initialize", "model_initialize", "model_instance_initialize"])
def test_a_loading_hook_that_hangs_holds_up_loads_of_its_own_backend_only(
    explicit: Callable[..., Any], hook: str
) -> None:
    hangs, begun = threading.Event(), threading.Event()

    def hang(_: Any) -> None:
        begun.set()
        assert hangs.wait(60)

    hooks: dict[str, Any] = {"model_instance_execute": execute, hook: _loading_hook(hook, hang)}
    if hook == "backend_initialize":
        hooks[hook] = lambda backend: hang(backend)
    names = [f"m{number}" for number in range(4)]
    with (
        explicit(names, hooks, even=["other"], model_load_thread_count=2) as server,
        ThreadPoolExecutor(len(names)) as clients,
    ):
        try:
            loads = [clients.submit(load, server, name) for name in names]
            assert begun.wait(20)
            until(lambda: len(server.runtime.registry.index()) == len(names))
            assert load(server, "other") == (200, "")
        finally:
            hangs.set()
        assert [each.result(60) for each in loads] == [(200, "")] * len(names)


async def test_a_load_that_is_given_up_while_another_has_the_turn_finalises_what_it_began() -> None:
    hooks = ("model_initialize", "model_finalize", "model_instance_execute")
    called: list[str] = []
    turn = LoadTurn()
    backend: Any = SimpleNamespace(
        load_turn=turn,
        open_turn=LoadTurn(),
        instance_initialize=None,
        has_life=True,
        acquire=lambda: called.append("acquire"),
        release=lambda: called.append("release"),
        execute=execute,
        **{hook: lambda _, hook=hook: called.append(hook) for hook in hooks},
    )
    bridge = LoopBridge(asyncio.get_running_loop())
    runner = ThreadLauncher(backend, Model("m", 1, {}, Path(), Backend("odd", {})), bridge)
    await runner.open()
    await runner.initialize_model({})
    async with turn.take(turn.number(), nullcontext):
        starting = asyncio.ensure_future(
            runner.start_instance(Slot("m_0", 0, "KIND_CPU", 0), lambda: None, lambda _: None)
        )
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
    await runner.close()

    assert called == ["acquire", "model_initialize", "model_finalize", "release"]


@pytest.mark.parametrize("hook", ["backend_initialize", "model_initialize"])
async def test_a_load_that_is_given_up_in_a_hook_finalises_what_the_hook_has_made(hook: str) -> None:
    called: list[str] = []
    goes_on, begun = threading.Event(), threading.Event()

    def wait_in(name: str) -> None:
        if name == hook:
            begun.set()
            assert goes_on.wait(30)
        called.append(name)

    backend: Any = SimpleNamespace(
        load_turn=LoadTurn(),
        open_turn=LoadTurn(),
        has_life=True,
        acquire=lambda: wait_in("backend_initialize"),
        release=lambda: called.append("backend_finalize"),
        model_initialize=lambda _: wait_in("model_initialize"),
        model_finalize=lambda _: called.append("model_finalize"),
    )
    bridge = LoopBridge(asyncio.get_running_loop())
    launcher = ThreadLauncher(backend, Model("m", 1, {}, Path(), Backend("odd", {})), bridge)

    async def load() -> None:
        await launcher.open()
        await launcher.initialize_model({})

    loading = asyncio.ensure_future(load())
    await asyncio.to_thread(begun.wait, 30)
    loading.cancel()
    await asyncio.wait([loading])
    asyncio.get_running_loop().call_soon(goes_on.set)
    await launcher.close()

    story = ["backend_initialize", "model_initialize", "model_finalize", "backend_finalize"]
    assert called == (story if hook == "model_initialize" else [story[0], story[-1]])


async def test_nothing_is_finalised_under_a_hook_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonpy.model.threads._LEAVE_BEHIND_S", 0.01)
    called: list[str] = []
    goes_on, begun = threading.Event(), threading.Event()

    def hang(_: Any) -> None:
        begun.set()
        assert goes_on.wait(30)

    backend: Any = SimpleNamespace(
        load_turn=LoadTurn(),
        open_turn=LoadTurn(),
        has_life=True,
        acquire=lambda: None,
        release=lambda: called.append("backend_finalize"),
        model_initialize=hang,
        model_finalize=lambda _: called.append("model_finalize"),
    )
    bridge = LoopBridge(asyncio.get_running_loop())
    launcher = ThreadLauncher(backend, Model("m", 1, {}, Path(), Backend("odd", {})), bridge)
    await launcher.open()
    loading = asyncio.ensure_future(launcher.initialize_model({}))
    await asyncio.to_thread(begun.wait, 30)
    loading.cancel()
    await asyncio.wait([loading])
    await launcher.close()

    assert called == []
    goes_on.set()


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


def test_a_hook_that_raises_at_load_shows_where_in_the_log(
    explicit: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def fails_in_depth(model_or_instance: Any) -> None:
        raise LookupError("no such layer")

    failing = {
        "model_initialize": "failed to initialize model 'm'",
        "model_instance_initialize": "failed to initialize instance 'm_0'",
        "model_auto_complete_config": "autofill failed for model 'm'",
    }
    for hook, words in failing.items():
        hooks = {"model_instance_execute": execute, hook: _loading_hook(hook, fails_in_depth)}
        with explicit(["m"], hooks) as server:
            assert load(server, "m")[0] == 400
        [record] = [each for each in caplog.records if f"{words}: LookupError: no such layer" in each.message]
        assert record.exc_info is not None
        traceback = logging.Formatter().formatException(record.exc_info)
        assert traceback.count("in fails_in_depth") == 1
        caplog.clear()


def test_a_configuration_that_is_refused_shows_no_traceback(
    explicit: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    def model_initialize(model: Any) -> None:
        raise InvalidArg("this model wants another input")

    with explicit(["m"], {"model_instance_execute": execute, "model_initialize": model_initialize}) as server:
        assert load(server, "m")[0] == 400
    [record] = [each for each in caplog.records if "this model wants another input" in each.message]
    assert record.exc_info is None


def test_attributes_that_are_none_name_the_backend_and_what_is_wrong(explicit: Callable[..., Any]) -> None:
    wrong = {
        "ValueError: execution is 'fibre', expected 'thread' or 'process'": lambda: BackendAttributes(
            execution="fibre"  # type: ignore[arg-type]
        ),
        "backend_attributes of backend 'odd' returned str; expected BackendAttributes": lambda: "thread",
    }
    for words, answer in wrong.items():

        @hookimpl
        def backend_attributes(answer: Callable[[], object] = answer) -> object:
            return answer()

        hooks = {"model_instance_execute": execute, "backend_attributes": backend_attributes}
        with explicit(["m"], hooks) as server:
            status, error = load(server, "m")
        assert status == 400
        assert words in error
        assert "odd" in error


def test_a_model_that_does_not_say_whether_it_is_ready_is_asked_once(
    explicit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonpy.model.threads.PROBE_TIMEOUT_S", 0.05)
    gate, has_begun, asked = threading.Event(), threading.Event(), []

    def model_instance_ready(instance: Any) -> bool:
        asked.append(instance.name)
        has_begun.set()
        return gate.wait(20)

    hooks = {"model_instance_execute": execute, "model_instance_ready": model_instance_ready}
    with explicit(["m"], hooks) as server:
        assert load(server, "m") == (200, "")
        (instance,) = server.runtime.registry.find("m").instances

        def probe() -> bool:
            answer: bool = asyncio.run_coroutine_threadsafe(instance.probe(), server.loop).result(20)
            return answer

        assert [probe() for _ in range(3)] == [False] * 3
        assert has_begun.wait(20)  # its thread may come to it later than three answers do
        assert asked == ["m_0"]
        gate.set()
        until(probe)


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
