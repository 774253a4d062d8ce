"""Frontends that the test makes: when their hooks are called, and what becomes of those that fail or hang."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tritonpy.admission import Admission
from tritonpy.dataplane import Address, Frontend
from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError, Unavailable, Unsupported
from tritonpy.frontends.frontends import Frontends
from tritonpy.frontends.local import LocalDataplane
from tritonpy.frontends.services import FrontendServices
from tritonpy.hookspecs import hookimpl
from tritonpy.lifecycle.registry import ModelRegistry
from tritonpy.options import ServerOptions
from tritonpy.plugin_manager import PluginManager
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse
from tritonpy.shared_memory.registry import SharedMemoryRegions

from ..simulator import virtual_loop

NONE_OF_OURS: dict[str, Any] = {"allow_http": False, "allow_grpc": False, "allow_metrics": False}


class Recording:
    """A frontend that writes down what it is asked; a hook does what the test says.

    Attributes:
        steps: of all frontends of the test, in their order.
    """

    def __init__(self, steps: list[str], **hooks: Callable[[Frontend], Any]) -> None:
        self.steps = steps
        self._hooks = hooks

    @hookimpl
    def frontend_initialize(self, frontend: Frontend) -> Any:
        return self._noted("initialize", frontend)

    @hookimpl
    def frontend_start(self, frontend: Frontend) -> Any:
        return self._noted("start", frontend)

    @hookimpl
    def frontend_stop(self, frontend: Frontend) -> Any:
        return self._noted("stop", frontend)

    def _noted(self, hook: str, frontend: Frontend) -> Any:
        self.steps.append(f"{frontend.name} {hook}")
        return self._hooks[hook](frontend) if hook in self._hooks else None


def frontends_of(
    given: dict[str, Any], settings: Iterable[tuple[str, str, str]] = (), **options: Any
) -> Frontends:
    manager = PluginManager("frontends", discover=False)
    for name, plugin in given.items():
        manager.register(name, plugin)
    server_options = ServerOptions((), frontend_config=tuple(settings), **{**NONE_OF_OURS, **options})
    services = FrontendServices(Admission(0), SharedMemoryRegions(is_allowed=False))
    control: Any = SimpleNamespace()  # nobody asks for models
    dataplane = LocalDataplane(ModelRegistry(), control, server_id="triton", strict_readiness=True)
    return Frontends(manager, server_options, dataplane, services, given)


async def start(frontends: Frontends) -> None:
    await frontends.initialize()
    await frontends.start()


async def started(given: dict[str, Any], settings: Iterable[tuple[str, str, str]] = ()) -> Frontends:
    frontends = frontends_of(given, settings)
    await start(frontends)
    return frontends


async def test_each_step_is_taken_by_all_before_the_next_begins() -> None:
    steps: list[str] = []
    frontends = frontends_of({"b": Recording(steps), "a": Recording(steps)})

    await frontends.initialize()
    steps.append("models are loaded")
    await frontends.start()
    async with frontends.stopping(1):
        steps.append("models are unloaded")

    assert steps == [
        "a initialize",
        "b initialize",
        "models are loaded",
        "a start",
        "b start",
        "a stop",
        "b stop",
        "models are unloaded",
    ]


async def test_a_frontend_is_given_its_own_settings() -> None:
    config = [("a", "", ""), ("a", "port", "1"), ("b", "port", "2"), ("a", "path", "x")]

    frontends = frontends_of({"a": Recording([]), "b": Recording([])}, config)

    assert frontends.by_name["a"].settings == {"port": "1", "path": "x"}
    assert frontends.by_name["b"].settings == {"port": "2"}


async def test_hooks_that_are_not_there_are_not_needed_but_the_start() -> None:
    seen: list[str] = []
    frontends = await started(
        {"a": SimpleNamespace(frontend_start=hookimpl(lambda frontend: seen.append(frontend.name)))}
    )
    async with frontends.stopping(1):
        pass

    assert seen == ["a"]
    with pytest.raises(Internal, match="frontend 'b' has no hook frontend_start"):
        frontends_of({"b": SimpleNamespace(frontend_stop=hookimpl(lambda frontend: None))})


def test_a_frontend_that_is_not_installed_is_refused_by_its_name() -> None:
    with pytest.raises(NotFound, match="no installed plugin of kind 'frontends' is called 'nope'"):
        frontends_of({}, [("nope", "port", "1")])


def test_built_in_frontends_come_in_tritons_order_and_before_others() -> None:
    frontends = frontends_of({"a": Recording([])}, allow_http=True, allow_grpc=True, allow_metrics=True)

    assert list(frontends.by_name) == ["grpc", "http", "metrics", "a"]


def test_a_built_in_frontend_that_is_disabled_or_not_allowed_is_left_out() -> None:
    disabled = (("frontends", "metrics"), ("backends", "http"))

    frontends = frontends_of({}, allow_http=True, allow_metrics=True, disabled_plugins=disabled)

    assert list(frontends.by_name) == ["http"]


@pytest.mark.parametrize("options", [{}, {"allow_http": True, "disabled_plugins": (("frontends", "http"),)}])
def test_a_built_in_frontend_that_is_asked_for_and_refused_is_an_error(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArg, match="asks for 'http', and --allow-http or --disable-plugin refuses it"):
        frontends_of({}, [("http", "", "")], **options)


@pytest.mark.parametrize("name", ["grpc", "http", "metrics"])
async def test_a_built_in_frontend_takes_no_settings_beside_its_options(name: str) -> None:
    frontends = frontends_of({}, [(name, "port", "1")], **{f"allow_{name}": True})

    with pytest.raises(InvalidArg, match=f"frontend '{name}' has no setting 'port'.*--{name}-port"):
        await frontends.initialize()

    assert frontends.begun.lower() == f"failed to start {name} service"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("grpc", {"grpc_use_ssl": True, "grpc_server_cert": "/no/such/file"}),
        ("http", {"https_certificate": "/no/such/file", "https_key": "/no/such/file"}),
    ],
)
async def test_certificates_are_looked_at_before_anything_starts(name: str, options: dict[str, Any]) -> None:
    frontends = frontends_of({}, **{f"allow_{name}": True, f"{name}_port": 0}, **options)

    with pytest.raises(InvalidArg, match="cannot read the server's certificate from '/no/such/file'"):
        await frontends.initialize()


async def test_an_address_that_is_taken_is_refused_before_anything_starts() -> None:
    steps: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def wants_it(frontend: Frontend) -> None:
            frontend.addresses = [Address("127.0.0.1", 0), Address("127.0.0.1", port)]

        frontends = frontends_of({"a": Recording(steps, initialize=wants_it)})
        with pytest.raises(Unavailable, match=f"Socket '127.0.0.1:{port}' already in use"):
            await frontends.initialize()

    assert (frontends.begun, steps) == ("failed to start frontend 'a'", ["a initialize"])


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (("127.0.0.1", 7), r"frontend.addresses has \('127.0.0.1', 7\); expected Address\(host, port\)"),
        (Address("127.0.0.1", cast("int", "7")), "expected Address"),
        (Address("127.0.0.1", 70_000), "port 70000 does not exist; expected 0 to 65535"),
    ],
)
@pytest.mark.parametrize("hook", ["initialize", "start"])
async def test_an_address_that_is_none_is_named(hook: str, address: Any, reason: str) -> None:
    steps: list[str] = []

    def set_it(frontend: Frontend) -> None:
        frontend.addresses = [address]

    frontends = frontends_of({"a": Recording(steps, **{hook: set_it})})

    with pytest.raises(TritonError, match=reason):
        await start(frontends)
    async with frontends.stopping(1):
        pass

    assert frontends.begun == "failed to start frontend 'a'"
    assert ("a stop" in steps) is (hook == "start")  # which has opened the port


async def cancel_itself(frontend: Frontend) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("hook", ["initialize", "start"])
async def test_a_hook_that_ends_cancelled_has_failed_and_does_not_cancel_the_server(hook: str) -> None:
    frontends = frontends_of({"a": Recording([], **{hook: cancel_itself})})

    with pytest.raises(Internal, match="CancelledError"):
        await start(frontends)


async def test_a_stop_that_ends_cancelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    frontends = await started({"a": Recording([], stop=cancel_itself)})
    async with frontends.stopping(1):
        pass

    assert "frontend 'a' could not be stopped: CancelledError" in caplog.text


async def test_a_start_that_the_server_cancels_is_cancelled() -> None:
    def hang(frontend: Frontend) -> Any:
        return asyncio.Event().wait()

    frontends = frontends_of({"a": Recording([], start=hang)})
    await frontends.initialize()
    starting = asyncio.create_task(frontends.start())
    await asyncio.sleep(0)
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting


def refuse(frontend: Frontend) -> None:
    raise ValueError("no such port")


async def test_a_frontend_whose_start_fails_is_not_stopped_and_those_before_it_are() -> None:
    steps: list[str] = []
    given = {"a": Recording(steps), "b": Recording(steps, start=refuse), "c": Recording(steps)}
    frontends = frontends_of(given)
    await frontends.initialize()

    with pytest.raises(TritonError, match="ValueError: no such port"):
        await frontends.start()
    assert frontends.begun == "failed to start frontend 'b'"
    async with frontends.stopping(1):
        pass

    assert steps[3:] == ["a start", "b start", "a stop"]


def test_a_stop_reads_from_top_to_bottom() -> None:
    steps: list[str] = []

    async def stop(frontend: Frontend) -> None:
        steps.append(f"refuses, {frontend.left_s:g} s left")
        await frontend.drained()
        steps.append(f"closes, {frontend.left_s:g} s left")

    async def live(loop: virtual_loop.VirtualLoop) -> None:
        frontends = await started({"a": Recording([], stop=stop)})
        async with frontends.stopping(30):
            await asyncio.sleep(20)
            steps.append("models are gone")

    virtual_loop.run(live)

    assert steps == ["refuses, 30 s left", "models are gone", "closes, 10 s left"]


def test_a_stop_that_hangs_is_cancelled_when_its_time_is_over(caplog: pytest.LogCaptureFixture) -> None:
    ended: dict[str, float] = {}

    async def hang(frontend: Frontend) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended["hook"] = asyncio.get_running_loop().time()

    async def live(loop: virtual_loop.VirtualLoop) -> None:
        frontends = await started({"a": Recording([], stop=hang), "b": Recording([])})
        began = loop.time()
        async with frontends.stopping(30):
            await asyncio.sleep(1)
        ended["server"] = loop.time()
        assert ended["hook"] - began == pytest.approx(40)

    virtual_loop.run(live)

    assert ended["server"] == pytest.approx(ended["hook"])
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "frontend 'a' does not stop; the server goes on without it"
    ]


def test_a_stop_that_will_not_be_cancelled_is_left_behind() -> None:
    async def stubborn(frontend: Frontend) -> None:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def live(loop: virtual_loop.VirtualLoop) -> float:
        frontends = await started({"a": Recording([], stop=stubborn)})
        began = loop.time()
        async with frontends.stopping(0):
            pass
        return loop.time() - began

    assert virtual_loop.run(live) == pytest.approx(11)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_stop_that_raises_is_logged_with_its_name_and_the_others_go_on(
    is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[str] = []

    async def fail(frontend: Frontend) -> None:
        if is_late:
            await frontend.drained()
        refuse(frontend)

    frontends = await started({"a": Recording([], stop=fail), "b": Recording(steps)})
    async with frontends.stopping(1):
        pass

    assert steps[-1] == "b stop"
    assert "frontend 'a' could not be stopped: ValueError: no such port" in caplog.text


async def test_a_server_that_fails_to_stop_still_has_its_frontends_closed() -> None:
    steps: list[str] = []

    async def stop(frontend: Frontend) -> None:
        await frontend.drained()
        steps.append("closed")

    frontends = await started({"a": Recording([], stop=stop)})
    with pytest.raises(OSError, match="gone"):
        async with frontends.stopping(1):
            raise OSError("gone")

    assert steps == ["closed"]


def test_the_log_says_where_each_listens(caplog: pytest.LogCaptureFixture) -> None:
    def listen(frontend: Frontend) -> None:
        frontend.addresses = [Address("127.0.0.1", 7), Address("::1", 8)]

    with caplog.at_level(logging.INFO):
        asyncio.run(started({"a": Recording([], start=listen), "b": Recording([])}))

    assert [record.getMessage() for record in caplog.records if "Started" in record.getMessage()] == [
        "Started frontend 'a' at 127.0.0.1:7, ::1:8",
        "Started frontend 'b'",
    ]


def test_a_request_is_traced_where_tracing_chooses_it() -> None:
    traces = {"wanted": object()}
    tracer: Any = SimpleNamespace(begin=lambda model, traceparent, tracestate: traces.get(model))
    dataplane: Any = SimpleNamespace()
    frontend = Frontend("a", {}, dataplane, tracer=tracer)
    wanted, other, unasked = (InferRequest(name, {}) for name in ("wanted", "other", "wanted"))

    frontend.trace(wanted, "00-1")
    frontend.trace(other)
    Frontend("b", {}, dataplane).trace(unasked)

    assert [request.trace for request in (wanted, other, unasked)] == [traces["wanted"], None, None]


class Model:
    """A model that answers when the test says so."""

    name = "m"

    def __init__(self, *, is_decoupled: bool = False) -> None:
        self.is_decoupled = is_decoupled
        self.asked: list[tuple[InferRequest, ResponseSink]] = []

    def infer(self, request: InferRequest, sink: ResponseSink) -> None:
        self.asked.append((request, sink))

    def answer(self, response: InferResponse) -> None:
        request, sink = self.asked.pop()
        sink.on_response(request, response, True)


async def asking(model: Any) -> tuple[InferRequest, asyncio.Task[InferResponse]]:
    dataplane: Any = SimpleNamespace()
    request = InferRequest("m", {})
    task = asyncio.create_task(Frontend("a", {}, dataplane).infer(model, request))
    await asyncio.sleep(0)
    return request, task


async def test_the_response_of_a_model_is_returned_and_its_error_raised() -> None:
    model, response, error = Model(), InferResponse(), InvalidArg("no")
    _, good = await asking(model)
    model.answer(response)
    _, bad = await asking(model)
    model.answer(InferResponse(error=error))

    assert await good is response
    with pytest.raises(InvalidArg) as raised:
        await bad
    assert raised.value is error


async def test_a_request_is_cancelled_with_the_task_that_waits_and_may_be_answered_still() -> None:
    model = Model()
    request, task = await asking(model)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert request.is_cancelled()
    model.answer(InferResponse())


async def test_a_decoupled_model_is_not_asked_for_one_response() -> None:
    model = Model(is_decoupled=True)
    _, task = await asking(model)

    with pytest.raises(Unsupported, match="model 'm' is decoupled"):
        await task
    assert not model.asked
