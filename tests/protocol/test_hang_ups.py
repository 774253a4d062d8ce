"""Clients that hang up, at every stage of a request: nothing of it stays behind, and others are served."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ..on_loop import on_loop
from ..servers import local_options

GENERATE = Path(__file__).with_name("generate_models")
INFER = b"POST /v2/models/%b/infer HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n%b\r\n%b"
FLOOD = json.dumps({"byte_size": 500_000, "count": 30}).encode()
STREAM = b"POST /v2/models/flood/generate_stream HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n%b" % (
    len(FLOOD),
    FLOOD,
)


@pytest.fixture(scope="module")
def server(echo_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    talkers = tmp_path_factory.mktemp("talkers")
    for name in ("flood", "talker"):
        (talkers / name).symlink_to(GENERATE / name)
    options = local_options(
        echo_models,
        talkers,
        allow_grpc=False,
        allow_metrics=False,
        model_control_mode="explicit",
        load_models=("echo", "slow", "flood"),
    )
    with Server(options) as running:
        yield running


def document(count: int, **more: object) -> bytes:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [count], "data": [1.25] * count}
    return json.dumps({"inputs": [tensor], **more}).encode()


def infer(body: bytes, model: bytes = b"echo", headers: bytes = b"") -> bytes:
    return INFER % (model, len(body), headers, body)


def binary(count: int, model: bytes = b"echo", headers: bytes = b"") -> bytes:
    size = {"binary_data_size": 4 * count}
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [count], "parameters": size}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    lines = headers + b"Inference-Header-Content-Length: %d\r\n" % len(head)
    return infer(head + np.ones(count, np.float32).tobytes(), model, lines)


def large_json() -> bytes:
    """So large that JSON is read in another process."""
    return infer(document(300_000))


GZIP = b"Content-Encoding: gzip\r\n"
ACCEPT = b"Accept-Encoding: gzip\r\n"
WRONG = b'{"inputs":'

# What is sent, made when it is, and how much of it before the client hangs up.
REQUESTS: dict[str, tuple[Callable[[], bytes], float]] = {
    "within the headers": (lambda: infer(document(3)), 0.1),
    "within a small body": (lambda: infer(document(300)), 0.7),
    "within a large body": (large_json, 0.7),
    "within a large binary body": (lambda: binary(2_000_000), 0.5),
    "within a chunk": (
        lambda: (
            b"POST /v2/models/echo/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4000\r\n"
            + b"x" * 0x4000
        ),
        0.9,
    ),
    "before being told to go on": (
        lambda: INFER % (b"echo", 500_000, b"Expect: 100-continue\r\n", b""),
        1,
    ),
    "while a body is decompressed": (lambda: infer(gzip.compress(b" " * 20_000_000, 1), headers=GZIP), 1),
    "while JSON is read elsewhere": (large_json, 1),
    "while compressed JSON is read elsewhere": (
        lambda: infer(gzip.compress(document(300_000), 1), headers=GZIP),
        1,
    ),
    "while the model works": (lambda: binary(16, b"slow"), 1),
    "while the model works on compressed data": (
        lambda: infer(gzip.compress(document(16)), b"slow", GZIP + ACCEPT),
        1,
    ),
    "while an answer is sent": (lambda: binary(4_000_000), 1),
    "while an answer is compressed": (lambda: binary(1_000_000, headers=ACCEPT), 1),
    "while JSON is written elsewhere": (lambda: binary(300_000).replace(b"true", b"false"), 1),
    "while events are sent": (lambda: STREAM, 1),
    "with a second request behind": (lambda: binary(16, b"slow") + binary(100_000), 1),
    "with a second request behind a stream": (lambda: STREAM + binary(100_000), 1),
    "behind a wrong one": (lambda: infer(WRONG) + infer(b"x", b"nobody") + binary(16, b"slow"), 1),
    "behind a large wrong one": (lambda: infer(WRONG + b" " * 2_000_000), 1),
    "behind what is no request": (lambda: binary(16, b"slow") + b"no request\r\n\r\n", 1),
    "while a model is loaded": (
        lambda: b"POST /v2/repository/models/talker/load HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n",
        1,
    ),
}
PAUSES_S = (0.0, 0.05)


def hang_up(client: socket.socket, *, reset: bool) -> None:
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("stage", REQUESTS)
def test_a_client_that_hangs_up_leaves_nothing_behind(server: Server, stage: str, reset: bool) -> None:
    make, part = REQUESTS[stage]
    request = make()
    admission = server.runtime.admission
    for pause_s in PAUSES_S:
        clients = [socket.create_connection(("127.0.0.1", server.http_port), timeout=30) for _ in "12"]
        for client in clients:
            client.sendall(request[: int(part * len(request))])
        if pause_s:
            time.sleep(pause_s)  # how far the requests have come by then does not matter
        for client in clients:
            hang_up(client, reset=reset)
    until(lambda: admission.held == 0, lambda: f"{admission.held} bytes are still held")

    with closing(http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)) as other:
        other.request("POST", "/v2/models/echo/infer", document(2))
        answer = json.loads(other.getresponse().read())
    assert answer["outputs"][0]["data"] == [1.25, 1.25]


def test_a_client_that_reads_nothing_of_a_complete_stream_and_hangs_up_leaves_nothing_behind(
    server: Server,
) -> None:
    def finished() -> int:
        with closing(http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)) as other:
            other.request("GET", "/v2/models/flood/stats")
            count = json.loads(other.getresponse().read())["model_stats"][0]["inference_count"]
        assert isinstance(count, int)
        return count

    [instance] = server.runtime.registry.find("flood").instances
    finished()  # who has connected before was seen by then, so that what is held is all there is
    until(lambda: server.runtime.admission.held == 0, lambda: "requests of earlier clients are held")
    until(
        lambda: not on_loop(server, instance.running_executions),
        lambda: "requests of earlier clients are executed",
    )
    before = finished()
    clients = [socket.create_connection(("127.0.0.1", server.http_port), timeout=30) for _ in "12"]
    for client in clients:
        client.sendall(STREAM)  # the model waits for two
    until(lambda: finished() == before + 2, lambda: "the model has not finished")
    assert server.runtime.admission.held == 2 * len(FLOOD)  # most of the events wait for the clients
    for client in clients:
        client.close()

    until(lambda: server.runtime.admission.held == 0, lambda: "the requests are still held")
