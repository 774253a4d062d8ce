"""Servers and a router in this process, and what clients send them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from tritonpy.options import ServerOptions
from tritonpy.server import Server, new_loop
from tritonpy_router.membership import Membership, StaticMembership
from tritonpy_router.options import RouterOptions
from tritonpy_router.replica import Place
from tritonpy_router.router import Router
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S, until
from tritonpy_sdk.testing.server_process import ServerProcess

T = TypeVar("T")

TENSORS = {
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}
ECHO = {"backend": "identity", "max_batch_size": 8, **TENSORS}
SLOW = {**ECHO, "parameters": {"execute_delay_ms": {"string_value": "60000"}}}
# Requests wait in the queue until so many are there that they make a batch: eight and three.
HELD = {**ECHO, "dynamic_batching": {"max_queue_delay_microseconds": 600_000_000}}
BRIEF = {**HELD, "max_batch_size": 3}
SEQUENCES = {**ECHO, "sequence_batching": {"max_sequence_idle_microseconds": 60_000_000}}
REPEAT = {
    "backend": "repeat",
    "model_transaction_policy": {"decoupled": True},
    "input": [
        {"name": "IN", "data_type": "TYPE_INT32", "dims": [-1]},
        {"name": "DELAY", "data_type": "TYPE_UINT32", "dims": [-1]},
        {"name": "WAIT", "data_type": "TYPE_UINT32", "dims": [1]},
    ],
    "output": [
        {"name": "OUT", "data_type": "TYPE_INT32", "dims": [1]},
        {"name": "IDX", "data_type": "TYPE_UINT32", "dims": [1]},
    ],
}
BODY = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
).encode()


class RouterThread:
    """A router on a thread and loop of its own."""

    def __init__(self, options: RouterOptions, membership: Membership) -> None:
        self._options = options
        self._membership = membership
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.loop: asyncio.AbstractEventLoop = new_loop()
        self.router: Any = None
        self.error: BaseException | None = None
        self._stop: Any = None

    def start(self) -> None:
        self._thread.start()
        self._begun.wait()
        if self.error is not None:
            self._thread.join()
            raise self.error

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def call(self, work: Callable[[], T]) -> T:
        """Do something on the loop."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(DEADLINE_S)

    def wait_until_ready(self, count: int) -> None:
        until(lambda: self.call(lambda: sum(each.is_ready for each in self.router.view)) == count)

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.router.http_port}"

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.router.grpc_port}"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self._stop = asyncio.Event()
        try:
            self.router = Router(self._options, self._membership)
            await self.router.start()
        except BaseException as exc:
            self.error = exc
            return
        finally:
            self._begun.set()
        await self._stop.wait()
        await self.router.stop()


def local_ports(**more: Any) -> dict[str, Any]:
    names = ("http", "grpc", "metrics")
    addresses = {f"{name}_address": "127.0.0.1" for name in names}
    return {**addresses, **{f"{name}_port": 0 for name in names}, **more}


def place_of(name: str, server: Server) -> Place:
    return Place(name, "127.0.0.1", server.http_port, server.grpc_port)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    for name, config in (
        ("echo", ECHO),
        ("slow", SLOW),
        ("held", HELD),
        ("brief", BRIEF),
        ("seq", SEQUENCES),
        ("many", REPEAT),
    ):
        repository.model(name, config)
    return repository.path


@pytest.fixture
def make_server(models: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers in mode explicit, with the models named."""
    with ExitStack() as stack:

        def make(*names: str, **options: Any) -> Server:
            given = {"exit_timeout_s": 0, **options}
            ports = local_ports(model_control_mode="explicit", load_models=names or ("*",), **given)
            return stack.enter_context(Server(ServerOptions((str(models),), **ports)))

        yield make


@pytest.fixture
def corectl() -> Iterator[Callable[..., ServerProcess]]:
    """Starts `corectl serve` in processes of their own."""
    with ExitStack() as stack:

        def start(*arguments: str) -> ServerProcess:
            server = ServerProcess(*arguments)
            stack.callback(server.close)
            return server

        yield start


@pytest.fixture
def make_router() -> Iterator[Callable[..., RouterThread]]:
    """Starts routers before servers, which are called a, b, … and waits until all are ready."""
    with ExitStack() as stack:

        def make(
            *servers: Server,
            ports: dict[str, Any] | None = None,
            membership: Membership | None = None,
            places: Sequence[Place] = (),
            ready: int | None = None,
            **options: Any,
        ) -> RouterThread:
            known = [place_of(name, server) for name, server in zip("abcdef", servers, strict=False)]
            given = {"probe_interval_s": 0.02, "exit_timeout_s": 0.0, **options}
            thread = RouterThread(
                RouterOptions(ports=ServerOptions((), **local_ports(**ports or {})), **given),
                membership or StaticMembership([*known, *places]),
            )
            thread.start()
            stack.callback(thread.stop)
            thread.wait_until_ready(len(servers) + len(places) if ready is None else ready)
            return thread

        yield make


def asked(address: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Any:
    """Status, headers and body of one request."""

    async def ask() -> Any:
        timeout = aiohttp.ClientTimeout(DEADLINE_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            method = "GET" if body is None else "POST"
            async with session.request(
                method, f"http://{address}{path}", data=body, headers=headers
            ) as answer:
                return answer.status, dict(answer.headers), await answer.read()

    return asyncio.run(ask())
