"""Models whose instances live on threads: hooks that load, hang, exit and fail, and whose turn it is."""

from __future__ import annotations

import asyncio
import http.client
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.handles import Backend, Model
from tritonpy.model.backend import LoadTurn
from tritonpy.model.bridge import LoopBridge
from tritonpy.model.placement import Slot
from tritonpy.model.threads import ThreadLauncher
from tritonpy.options import ServerOptions
from tritonpy.plugin import BackendAttributes, InvalidArg, hookimpl
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from .odd_backends import CONFIG, execute, raise_exit


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
