"""What tests of the HTTP transport share: models that give back what they get, and a client of raw bytes."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options

GENERATE_MODELS = Path(__file__).with_name("generate_models")
CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}


@pytest.fixture(scope="session")
def echo_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository: `echo` gives its input back, `slow` takes 300 ms for it."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    repository.model("echo", CONFIG)
    slow = {"execute_delay_ms": {"string_value": "300"}}
    repository.model("slow", {**CONFIG, "parameters": slow})
    return repository.path


@pytest.fixture(scope="module")
def generate_port() -> Iterator[int]:
    """Our server with the models that generate is asked of."""
    options = local_options(GENERATE_MODELS, allow_grpc=False, allow_metrics=False)
    with Server(options) as server:
        yield server.http_port


@pytest.fixture(scope="module")
def real_generate_port(real_triton: Callable[[Path], dict[str, int]]) -> int:
    """A real server with the same models."""
    return real_triton(GENERATE_MODELS)["http"]


@dataclass
class RawAnswer:
    """An answer as it came."""

    version: str
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        text = json.loads(self.body)["error"]
        assert isinstance(text, str)
        return text


class RawClient:
    """One connection, written to and read from byte by byte.

    Args:
        port: on this machine.
        tls: how to speak TLS; None for plain HTTP.
        host: the address.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), timeout=30)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.stream = self.socket.makefile("rb")

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.socket.sendall(piece)

    def half_close(self) -> None:
        """Send nothing more, but go on reading."""
        self.socket.shutdown(socket.SHUT_WR)

    def answer(self) -> RawAnswer:
        """The next answer, interim ones too."""
        line = self.stream.readline()
        assert line, "the connection was closed without an answer"
        version, status, *_ = line.split()
        headers = {}
        while (line := self.stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if int(status) < 200:
            body = b""
        elif "content-length" in headers:
            body = self.stream.read(int(headers["content-length"]))
        elif version == b"HTTP/1.0":
            body = self.stream.read()
        else:
            body = b""
        return RawAnswer(version.decode(), int(status), headers, body)

    def is_closed(self) -> bool:
        """Whether the server has closed the connection; one that has not must answer a request."""
        try:
            self.send(b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n\r\n")
            line = self.stream.readline()
        except (ConnectionResetError, BrokenPipeError):
            return True
        return not line

    def close(self) -> None:
        self.stream.close()
        self.socket.close()


@pytest.fixture
def dial() -> Iterator[Callable[..., RawClient]]:
    """Connect a `RawClient`; it is closed when the test is over."""
    with ExitStack() as stack:

        def connect(port: int, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> RawClient:
            client = RawClient(port, tls, host)
            stack.callback(client.close)
            return client

        yield connect


@pytest.fixture
def infer_request() -> Callable[..., bytes]:
    """Write an inference of binary FP32 values, with more header lines as given."""

    def write(model: str, values: np.ndarray, *headers: str) -> bytes:
        document = {
            "inputs": [
                {
                    "name": "INPUT0",
                    "datatype": "FP32",
                    "shape": list(values.shape),
                    "parameters": {"binary_data_size": values.nbytes},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
        head = json.dumps(document).encode()
        lines = [
            f"POST /v2/models/{model}/infer HTTP/1.1",
            "Host: t",
            f"Inference-Header-Content-Length: {len(head)}",
            f"Content-Length: {len(head) + values.nbytes}",
            *headers,
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + head + values.tobytes()

    return write
