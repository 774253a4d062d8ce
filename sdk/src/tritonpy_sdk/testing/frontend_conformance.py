"""The tests that every frontend has to pass."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from tritonpy.dataplane import Address
from tritonpy.errors import InvalidArg, exception_text
from tritonpy.hookspecs import hookimpl
from tritonpy.options import ServerOptions
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.server import Server

from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing.patience import DEADLINE_S
from tritonpy_sdk.testing.refusals import check_refusals
from tritonpy_sdk.testing.rules import rule
from tritonpy_sdk.testing.traces import check_no_growth, nothing_printed, process_as_it_was

_PAGE = "how-to/write-a-frontend.md"
_HOOKS = "reference/hooks.md"
_API = "reference/plugin-api.md"
_NAME = "tested"
_BACKEND = "frontend_kit"
_REFUSAL = "the oven is cold"
_BUILT_IN = ("http", "grpc", "metrics")
_PATIENCE_S = DEADLINE_S / 6
"""What an answer may take, and a stop."""


class FrontendConformance:
    """Subclass this in a test module and every rule of the frontend hooks is tested with yours.

    ```python
    class TestXyz(FrontendConformance, frontend="xyz", settings={"port": "0"}):
        def ask(self, addresses, model, values):  # as a client does
            answer = requests.post(f"http://{addresses[0].host}:{addresses[0].port}/{model}", json=values)
            ...
    ```

    It is served on ports that the system chooses, in servers of this process.

    Class arguments:
        frontend: the name of an installed one, or a module or object with the hooks. A function that returns
            one will do, too.
        settings: as `--frontend-config NAME,key=value` gives them; with ports of 0, on 127.0.0.1.
        wrong_settings: settings that it has to refuse.
    """

    frontend: ClassVar[str | object]
    settings: Mapping[str, str]
    wrong_settings: Sequence[Mapping[str, str]]

    def __init_subclass__(
        cls,
        *,
        frontend: str | object = "",
        settings: Mapping[str, str] | None = None,
        wrong_settings: Sequence[Mapping[str, str]] = (),
        **rest: object,
    ) -> None:
        super().__init_subclass__(**rest)
        if frontend:
            cls.frontend = staticmethod(frontend) if inspect.isfunction(frontend) else frontend
            cls.settings = dict(settings or {})
            cls.wrong_settings = wrong_settings

    def ask(self, addresses: Sequence[Address], model: str, values: Sequence[float]) -> list[float]:
        """Send a request over a connection of its own, and wait for the answer.

        Args:
            addresses: those that the frontend tells.
            model: has the input `INPUT0` and the output `OUTPUT0`, FP32, both of one dimension of any size.
            values: the input.

        Returns:
            The output, which is to be the input.

        Raises:
            Exception: any; for an error of the server with its text.
        """
        raise NotImplementedError(f"{type(self).__name__} must define ask(addresses, model, values)")

    # Start.

    @rule(
        "frontend_start listens, and sets frontend.addresses where the system has chosen a port",
        "listen before you return, and set Address(*socket.getsockname()[:2]) for each port",
        _HOOKS,
    )
    def test_it_tells_where_it_listens(self) -> None:
        with self._serving() as served:
            assert served.addresses, "set no frontend.addresses"
            for address in served.addresses:
                assert isinstance(address, Address), f"set {address!r} among frontend.addresses"
                assert address.port, f"told the port 0 of {address.host}, when it had been started"
                error = _connection_error(address)
                assert error is None, f"does not listen on {address.host}:{address.port}, as it told: {error}"

    @rule(
        "frontend_initialize refuses settings that it does not understand, before models are loaded",
        "raise InvalidArg in frontend_initialize, with the setting, what came and what was expected",
        _PAGE,
    )
    def test_wrong_settings_are_refused_with_words(self) -> None:
        def begin(settings: Mapping[str, str]) -> None:
            with self._serving(settings):
                pass

        counted = _Kitchen.loads
        check_refusals(begin, self.wrong_settings, "wrong_settings")
        assert _Kitchen.loads == counted, "looked at its settings after models had been loaded"

    # Answers.

    @rule(
        "an answer has what the model has made of the request, whatever its size",
        "read the whole body, and write shapes and elements as they are, none and many of them",
        _PAGE,
    )
    def test_it_answers(self) -> None:
        with self._serving() as served:
            for values in ([1.5, -2.0], [], [0.25] * 20_000, [3.0]):
                answer = list(served.ask("echo", values))
                assert answer == values, f"answered {str(answer)[:60]} to {str(values)[:60]}"

    @rule(
        "a client is told in words what is wrong with its request, and the next one is answered",
        "catch TritonError around find and infer, and send its text by what the protocol has for errors",
        _PAGE,
    )
    def test_an_unknown_model_is_told(self) -> None:
        with self._serving() as served:
            error = served.error("nowhere", [1.0])
            assert "nowhere" in error, f"said of a model that is not there: {error}"
            assert list(served.ask("echo", [1.0])) == [1.0], "gives no right answers after an error"

    @rule(
        "what a model raises reaches its client, and nobody else",
        "catch TritonError around infer, and send its text",
        _PAGE,
    )
    def test_an_error_of_a_model_is_told(self) -> None:
        with self._serving() as served:
            error = served.error("broken", [1.0])
            assert _REFUSAL in error, f"said of a model that raised '{_REFUSAL}': {error}"
            assert "Traceback" not in error, "showed a traceback to the client"

    @rule(
        "requests do not wait for each other: models have schedulers for that",
        "await frontend.infer in a task of its own for each request, and hold no lock meanwhile",
        _PAGE,
    )
    def test_requests_do_not_wait_for_each_other(self) -> None:
        with self._serving() as served:
            held = served.ask_held()
            answer = served.in_background("echo", [1.0])
            assert _comes_true(answer.done), "let a request wait for another one that came before it"
            _Kitchen.serve()
            assert _outcome(held) == [7.0]

    @rule(
        "each client gets its own answer",
        "keep what belongs to one request in the variables of its task",
        _PAGE,
    )
    def test_many_clients_get_their_own_answers(self) -> None:
        with self._serving() as served, ThreadPoolExecutor(8) as clients:
            values = [[float(number)] * (number % 5 + 1) for number in range(48)]
            answers = list(clients.map(lambda each: list(served.ask("echo", each)), values))
            mixed = [pair for pair in zip(values, answers, strict=True) if pair[0] != pair[1]]
            assert not mixed, f"answered {mixed[0][1]} to {mixed[0][0]} while others asked"

    @rule(
        "what is no request, or comes from a client that says nothing or leaves, holds up nobody",
        "read each connection in a task of its own, and end that task with the connection",
        _PAGE,
    )
    def test_odd_clients_hold_up_nobody(self) -> None:
        with self._serving() as served, ExitStack() as silent:
            for address in served.addresses:
                silent.enter_context(_connect(address))
                for sent in (b"", b"\0", b"\r\n\r\n", bytes(range(256)) * 8):
                    with _connect(address) as odd:
                        odd.sendall(sent)
            assert list(served.ask("echo", [1.0])) == [1.0], "gives no right answers beside odd clients"
            served.stop_in_time()

    @rule(
        "frontend.admission has no bytes when no request is there",
        "answer in `with frontend.admission.holding(size):`, or release what you hold in a finally",
        _PAGE,
    )
    def test_what_is_held_is_given_back(self) -> None:
        with self._serving() as served:
            served.ask("echo", [1.0])
            for model in ("broken", "nowhere"):
                served.error(model, [1.0])
            admission = served.frontend.admission
            is_empty = _comes_true(lambda: admission.held == 0)
            assert is_empty, f"still holds {admission.held} bytes of requests that were answered"

    # The end.

    @rule(
        "requests under way are answered when the server stops",
        "refuse new requests, await frontend.drained(), and close connections behind it",
        _PAGE,
    )
    def test_requests_under_way_are_answered_at_the_end(self) -> None:
        with self._serving() as served:
            held = served.ask_held()
            stopping = served.begin_stop()
            _comes_true(lambda: served.is_stopping or stopping.done())
            _Kitchen.serve()
            outcome = _outcome(held)
            assert outcome == [7.0], f"gave a request that was under way when the server stopped: {outcome}"
            stopping.result(DEADLINE_S)

    @rule(
        "a stop ends although a request is never answered, and its client is not left waiting",
        "close what is still open when frontend.drained() has returned, and wait for nothing without a limit",
        _HOOKS,
    )
    def test_it_stops_although_a_request_is_not_answered(self) -> None:
        with self._serving(exit_timeout_s=0.2) as served:
            held = served.ask_held()
            served.stop_in_time()
            assert _comes_true(held.done), "let a client wait for an answer when its server had stopped"

    @rule(
        "a stopped frontend accepts no connections",
        "close the sockets that listen in frontend_stop, before the first await",
        _HOOKS,
    )
    def test_nobody_gets_in_after_the_end(self) -> None:
        with self._serving() as served:
            served.stop_in_time()
            for address in served.addresses:
                error = _connection_error(address)
                assert error is not None, f"still listens on {address.host}:{address.port} after the stop"

    @rule(
        "there may be several servers in a process, and each has its own frontend",
        "keep everything in frontend.state, and nothing in globals",
        _HOOKS,
    )
    def test_two_servers_live_in_one_process(self) -> None:
        frontend = self._new()
        with self._serving(frontend=frontend) as one:
            with self._serving(frontend=frontend) as other:
                assert {*one.addresses}.isdisjoint(other.addresses), "told one address of two servers"
                assert list(one.ask("echo", [1.0])) == [1.0], "spoiled one server by starting another"
                assert list(other.ask("echo", [2.0])) == [2.0], "does not answer in a second server"
                other.stop_in_time()
            assert list(one.ask("echo", [3.0])) == [3.0], "spoiled one server by stopping another"

    @rule(
        "a server that stops gets back all that a frontend holds",
        "close sockets and clients, cancel tasks and end threads in frontend_stop",
        _HOOKS,
    )
    def test_nothing_grows_with_the_number_of_servers(self) -> None:
        frontend = self._new()

        def live() -> None:
            with self._serving(frontend=frontend) as served:
                served.ask("echo", [1.0])

        check_no_growth(live, "each life of a server")

    # What it must not do.

    @rule(
        "standard output belongs to the server",
        "use logging.getLogger('tritonpy.…'), which is in the server's log",
        _PAGE,
    )
    def test_nothing_is_printed(self) -> None:
        with nothing_printed(), self._serving() as served:
            served.ask("echo", [1.0])
            served.error("nowhere", [1.0])

    @rule(
        "what all of a process share belongs to the server, signals and logging too",
        "give settings to your library instead of changing those of the process, and handle no signals",
        _HOOKS,
    )
    def test_the_process_stays_as_it_was(self) -> None:
        with self._serving(), process_as_it_was(), self._serving() as served:
            served.ask("echo", [1.0])

    # How.

    def _new(self) -> str | object:
        frontend = type(self).frontend
        return frontend() if inspect.isfunction(frontend) else frontend

    @contextmanager
    def _serving(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        frontend: object = None,
        exit_timeout_s: float = DEADLINE_S,
    ) -> Iterator[_Served]:
        frontend = frontend or self._new()
        name = frontend if isinstance(frontend, str) else _NAME
        plugins: dict[str, dict[str, object]] = {"backends": {_BACKEND: _Kitchen}}
        if not isinstance(frontend, str):
            plugins["frontends"] = {name: frontend}
        given = self.settings if settings is None else settings
        config = tuple((name, key, value) for key, value in given.items()) or ((name, "", ""),)
        built_in: dict[str, Any] = {
            f"allow_{each}": each == name for each in _BUILT_IN
        }  # Any: of the options
        for each in _BUILT_IN:
            built_in |= {f"{each}_address": "127.0.0.1", f"{each}_port": 0}
        with tempfile.TemporaryDirectory() as directory, _failures() as failures:
            _make_models(Path(directory))
            options = ServerOptions(
                (directory,), frontend_config=config, exit_timeout_s=exit_timeout_s, **built_in
            )
            server = Server(options, plugins=plugins, discover=isinstance(frontend, str))
            _Kitchen.begin()
            server.start()
            served = _Served(self, server, name)
            try:
                yield served
            finally:
                _Kitchen.serve()
                served.end()
        assert not failures, f"failed where a server goes on and logs it: {failures[0]}"


class _Served:
    """A server with the frontend, and clients of it.

    Attributes:
        frontend: as its plugin sees it.
        addresses: that it has told.
    """

    def __init__(self, suite: FrontendConformance, server: Server, name: str) -> None:
        self.frontend = server.runtime.frontends.by_name[name]
        self.addresses = list(self.frontend.addresses)
        self._suite = suite
        self._server = server
        self._threads: list[threading.Thread] = []
        self._stop: Future[None] | None = None

    def ask(self, model: str, values: Sequence[float]) -> list[float]:
        """What a client is answered."""
        try:
            return self.in_background(model, values).result(_PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"did not answer a client within {_PATIENCE_S:g} seconds") from None

    def error(self, model: str, values: Sequence[float]) -> str:
        """The text of the error that a client is answered with."""
        try:
            answer = self.ask(model, values)
        except Exception as exc:
            return exception_text(exc)
        raise AssertionError(f"answered {answer!r} where the server has an error")

    def in_background(self, model: str, values: Sequence[float]) -> Future[list[float]]:
        """Ask on a thread that nobody has to wait for."""
        return self._call(lambda: self._suite.ask(self.addresses, model, values))

    def ask_held(self) -> Future[list[float]]:
        """Ask a model that answers when the test says so; returns when it has the request."""
        held = self.in_background("held", [7.0])
        assert _comes_true(lambda: bool(_Kitchen.orders) or held.done()), "handed no request to its model"
        assert not held.done(), f"answered {_outcome(held)} in the place of a model that takes its time"
        return held

    @property
    def is_stopping(self) -> bool:
        """The frontend has been told that the server stops."""

        async def left_s() -> float:
            return self.frontend.left_s  # which is the loop's

        return math.isfinite(asyncio.run_coroutine_threadsafe(left_s(), self._server.loop).result(DEADLINE_S))

    def begin_stop(self) -> Future[None]:
        """Stop the server, once, without waiting for the end."""
        if self._stop is None:
            self._stop = self._call(self._server.stop)
        return self._stop

    def stop_in_time(self) -> None:
        """Stop the server.

        Raises:
            AssertionError: it takes too long.
        """
        stopping = self.begin_stop()
        try:
            stopping.result(_PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"does not stop within {_PATIENCE_S:g} seconds") from None

    def end(self) -> None:
        """Wait for the server's end."""
        self.begin_stop().result(DEADLINE_S)
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def _call(self, act: Any) -> Future[Any]:  # Any: what it gives
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(act())
            except BaseException as exc:
                future.set_exception(exc)

        thread = threading.Thread(target=run, name="client of a frontend", daemon=True)
        self._threads.append(thread)
        thread.start()
        return future


class _KitchenHooks:
    """A backend whose model `echo` answers, `held` does when a test says so, and `broken` refuses.

    Attributes:
        loads: models loaded since the beginning.
        orders: requests that are held.
    """

    def __init__(self) -> None:
        self.loads = 0
        self.orders: list[InferRequest] = []
        self._is_serving = False
        self._lock = threading.Lock()  # guards the two above: models and tests are on other threads

    def begin(self) -> None:
        """Hold requests from now on."""
        with self._lock:
            self._is_serving = False

    def serve(self) -> None:
        """Answer what is held, and all that comes."""
        with self._lock:
            self._is_serving = True
            orders, self.orders = self.orders, []
        for request in orders:
            request.respond(_echo(request))

    @hookimpl
    def model_initialize(self) -> None:
        self.loads += 1

    @hookimpl
    def model_instance_execute(self, requests: Sequence[InferRequest]) -> None:
        for request in requests:
            if request.model_name == "broken":
                request.respond(InferResponse(error=InvalidArg(_REFUSAL)))
                continue
            with self._lock:
                is_held = request.model_name == "held" and not self._is_serving
                if is_held:
                    self.orders.append(request)
            if not is_held:
                request.respond(_echo(request))


_Kitchen = _KitchenHooks()


def _echo(request: InferRequest) -> InferResponse:
    return InferResponse().add("OUTPUT0", request.input("INPUT0").numpy())


def _make_models(directory: Path) -> None:
    repository = ModelRepository(directory)
    for name in ("echo", "held", "broken"):
        repository.model(
            name,
            {
                "backend": _BACKEND,
                "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
                "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
            },
        )


def _comes_true(condition: Callable[[], bool]) -> bool:
    """Wait until something is so, as long as it may take; True if it is."""
    give_up = time.monotonic() + _PATIENCE_S
    while not (is_so := condition()) and time.monotonic() < give_up:
        time.sleep(0.002)
    return is_so


def _outcome(answer: Future[list[float]]) -> object:
    """What a client has got: values, or the text of an error."""
    try:
        return list(answer.result(_PATIENCE_S))
    except Exception as exc:
        return exception_text(exc)


def _connect(address: Address) -> socket.socket:
    if address.host.startswith("unix:"):
        client = socket.socket(socket.AF_UNIX)
        client.connect(address.host.removeprefix("unix:").removeprefix("//"))
        return client
    return socket.create_connection((address.host, address.port), timeout=DEADLINE_S)


def _connection_error(address: Address) -> OSError | None:
    try:
        _connect(address).close()
    except OSError as exc:
        return exc
    return None


@contextmanager
def _failures() -> Iterator[list[str]]:
    """Collect what the server's log says of frontends that fail."""

    class _Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            error = record.exc_info[1] if record.exc_info else None
            lines.append(f"{record.getMessage()}{f': {exception_text(error)}' if error else ''}")

    lines: list[str] = []
    collector, logger = _Collector(logging.ERROR), logging.getLogger("tritonpy.server")
    logger.addHandler(collector)
    try:
        yield lines
    finally:
        logger.removeHandler(collector)
