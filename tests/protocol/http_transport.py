"""What tests of HTTP/1.1 over raw sockets share: requests, answers, and a model that waits behind a gate."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tritonpy.plugin import InferRequest, InferResponse, ModelInstance, hookimpl
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..servers import local_options

CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}

JSON_REQUEST = b"POST /v2/models/%b/infer HTTP/1.1\r\nHost: t\r\n%bContent-Length: %d\r\n\r\n%b"
GOOD = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[1,2]}]}'


class Gate:
    """A backend that gives its input back, but not before it is let."""

    def __init__(self) -> None:
        self.is_busy = threading.Event()
        self.is_open = threading.Event()

    @hookimpl
    def model_instance_execute(
        self, instance: ModelInstance, requests: Sequence[InferRequest]
    ) -> list[InferResponse]:
        self.is_busy.set()
        self.is_open.wait(30)
        return [InferResponse().add("OUTPUT0", request.input("INPUT0").numpy()) for request in requests]


GATE = Gate()
PLUGINS: dict[str, Any] = {"backends": {"gated": GATE}}


def closed_gate() -> Iterator[Gate]:
    """For a fixture: the model `gated` answers nobody before the test opens it, or is over."""
    GATE.is_open.clear()
    GATE.is_busy.clear()
    yield GATE
    GATE.is_open.set()


def gated_server(root: Path) -> Iterator[Server]:
    """For a fixture: our server with the models that tests of the transport ask, in `root`."""
    repository = ModelRepository(root)
    repository.model("echo", CONFIG)
    slow = {"execute_delay_ms": {"string_value": "300"}}
    repository.model("slow", {**CONFIG, "parameters": slow})
    repository.model("gated", {**CONFIG, "backend": "gated"})
    isolated = {"TRITONPY_ISOLATION": {"string_value": "process"}}
    repository.model("isolated", {**CONFIG, "parameters": isolated})
    options = local_options(
        repository.path,
        allow_grpc=False,
        allow_metrics=False,
        http_max_input_byte_size=1_000_000,
        max_inflight_byte_size=64_000_000,
    )
    with Server(options, plugins=PLUGINS) as running:
        yield running


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.http_port), timeout=30)


def binary_request(model: str, array: np.ndarray, *headers: str, chunked: bool = False) -> bytes:
    document = {
        "inputs": [
            {
                "name": "INPUT0",
                "datatype": "FP32",
                "shape": list(array.shape),
                "parameters": {"binary_data_size": array.nbytes},
            }
        ],
        "parameters": {"binary_data_output": True},
    }
    head = json.dumps(document).encode()
    body = head + array.tobytes()
    lines = [
        f"POST /v2/models/{model}/infer HTTP/1.1",
        "Host: test",
        f"Inference-Header-Content-Length: {len(head)}",
        *headers,
    ]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
        pieces = [body[at : at + 1000] for at in range(0, len(body), 1000)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def json_request(model: str, document: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return JSON_REQUEST % (model.encode(), lines, len(document), document)


def read_response(stream: socket.SocketIO) -> tuple[int, dict[str, str], bytes]:
    status = int(stream.readline().split()[1])  # type: ignore[attr-defined]
    headers = {}
    while (line := stream.readline()) not in (b"\r\n", b""):  # type: ignore[attr-defined]
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return status, headers, stream.read(int(headers.get("content-length", "0")))  # type: ignore[return-value]


def floats(headers: dict[str, str], body: bytes) -> np.ndarray:
    return np.frombuffer(body[int(headers["inference-header-content-length"]) :], np.float32)
