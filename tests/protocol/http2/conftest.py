"""A server for tests that write frames, and connections to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tritonpy.plugin import AlreadyExists, InferRequest, InferResponse, ModelInstance, hookimpl
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ...servers import local_options
from .grpc_cases import MOST_HELD
from .raw import Http2Client

CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_UINT8", "dims": [-1]}],
    "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
}

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


class Stage:
    """A backend that gives its input back, but not before it is let, and notes what it was asked.

    A request whose id is `fail` gets an error at once, with its input as the text.

    Attributes:
        is_open: requests are answered.
        executed: id and parameters of each request, in order.
    """

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.executed: list[tuple[str, dict[str, Any]]] = []

    @property
    def ids(self) -> list[str]:
        return [id for id, _ in self.executed]

    @hookimpl
    def model_instance_execute(
        self, instance: ModelInstance, requests: Sequence[InferRequest]
    ) -> list[InferResponse]:
        self.executed += [(request.id, dict(request.parameters)) for request in requests]
        if requests[0].id == "fail":
            text = requests[0].input("INPUT0").numpy().tobytes().decode()
            return [InferResponse(error=AlreadyExists(text))]
        self.is_open.wait(30)
        return [InferResponse().add("OUTPUT0", request.input("INPUT0").numpy()) for request in requests]


STAGE = Stage()


@pytest.fixture
def stage() -> Iterator[Stage]:
    """The model `staged` answers nobody before the test opens it, or is over."""
    STAGE.is_open.clear()
    STAGE.executed.clear()
    yield STAGE
    STAGE.is_open.set()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository: `echo` gives its input back, `staged` is the backend of this file."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    repository.model("echo", CONFIG)
    repository.model("staged", {**CONFIG, "backend": "staged"})
    repository.model("repeat", REPEAT)
    return repository.path


@pytest.fixture(scope="session")
def start(models: Path) -> Iterator[Callable[..., Server]]:
    """Start a server with options of its own; it stops at the end of the run, or earlier by hand."""
    with ExitStack() as stack:

        def started(**more: Any) -> Server:
            options = local_options(
                models,
                **{
                    "allow_http": False,
                    "allow_metrics": False,
                    "grpc_transport": "native",
                    "max_inflight_byte_size": MOST_HELD,
                    "grpc_header_forward_pattern": "x-.*",
                    **more,
                },
            )
            return stack.enter_context(Server(options, plugins={"backends": {"staged": STAGE}}))

        yield started


@pytest.fixture(scope="session")
def server(start: Callable[..., Server]) -> Server:
    """The server of most tests; pings are borne as often as they come."""
    return start(grpc_http2_max_ping_strikes=0, grpc_max_concurrent_streams=100)


@pytest.fixture(scope="session")
def port(server: Server) -> int:
    """Its gRPC port."""
    return server.grpc_port


@pytest.fixture(scope="session")
def interop_port(start: Callable[..., Server]) -> int:
    return start().grpc_port


@pytest.fixture(scope="session")
def compressing_port(start: Callable[..., Server]) -> int:
    return start(grpc_compression_level="high").grpc_port


@pytest.fixture
def dial() -> Iterator[Callable[..., Http2Client]]:
    """Connect an `Http2Client`; it is closed when the test is over."""
    with ExitStack() as stack:

        def connect(*arguments: Any) -> Http2Client:
            client = Http2Client(*arguments)
            stack.callback(client.close)
            return client

        yield connect


@pytest.fixture(autouse=True)
def quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What clients do wrong is no error of the server: nobody's log grows by it."""
    yield
    records = [record for when in ("setup", "call") for record in caplog.get_records(when)]
    errors = [record.getMessage() for record in records if record.levelno >= logging.ERROR]
    assert not errors
