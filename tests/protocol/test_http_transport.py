"""HTTP/1.1 itself, over raw sockets: pieces, pipelines, chunks, limits, slow and vanishing clients."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Unavailable
from tritonpy.options import ServerOptions
from tritonpy.plugin import InferRequest, InferResponse, ModelInstance, hookimpl
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..on_loop import on_loop
from ..servers import local_options

CONFIG = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
}


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


@pytest.fixture
def gate() -> Iterator[Gate]:
    """The model `gated` answers nobody before the test opens it, or is over."""
    GATE.is_open.clear()
    GATE.is_busy.clear()
    yield GATE
    GATE.is_open.set()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
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


def read_response(stream: socket.SocketIO) -> tuple[int, dict[str, str], bytes]:
    status = int(stream.readline().split()[1])  # type: ignore[attr-defined]
    headers = {}
    while (line := stream.readline()) not in (b"\r\n", b""):  # type: ignore[attr-defined]
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return status, headers, stream.read(int(headers.get("content-length", "0")))  # type: ignore[return-value]


def floats(headers: dict[str, str], body: bytes) -> np.ndarray:
    return np.frombuffer(body[int(headers["inference-header-content-length"]) :], np.float32)


@pytest.mark.parametrize("count", [1, 16, 4000, 5000, 300_000])
@pytest.mark.parametrize("model", ["echo", "isolated"])
def test_binary_tensors_of_every_size_come_back_whole(server: Server, model: str, count: int) -> None:
    array = np.random.default_rng(count).random(count, np.float32)
    with connect(server) as client, client.makefile("rb") as stream:
        for _ in range(3):
            client.sendall(binary_request(model, array))
            status, headers, body = read_response(stream)

            assert status == 200
            np.testing.assert_array_equal(floats(headers, body), array)


def test_a_request_that_arrives_byte_by_byte_is_answered(server: Server) -> None:
    with connect(server) as client, client.makefile("rb") as stream:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in binary_request("echo", np.arange(4, dtype=np.float32)):
            client.sendall(bytes([byte]))

        assert read_response(stream)[0] == 200


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    arrays = [np.full(count, count, np.float32) for count in (1, 20_000, 3, 9000, 2)]
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(b"".join(binary_request("echo", array) for array in arrays))

        for array in arrays:
            status, headers, body = read_response(stream)
            assert status == 200
            np.testing.assert_array_equal(floats(headers, body), array)


def test_a_thousand_small_requests_in_one_write_are_all_answered(server: Server) -> None:
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n\r\n" * 1000)

        assert [read_response(stream)[0] for _ in range(1000)] == [200] * 1000


def test_chunked_bodies_are_accepted(server: Server) -> None:
    array = np.arange(10_000, dtype=np.float32)
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(binary_request("echo", array, chunked=True))
        status, headers, body = read_response(stream)

        assert status == 200
        np.testing.assert_array_equal(floats(headers, body), array)


def test_expect_100_continue_is_honoured(server: Server) -> None:
    request = binary_request("echo", np.arange(4, dtype=np.float32), "Expect: 100-continue")
    head, _, body = request.partition(b"\r\n\r\n")
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(head + b"\r\n\r\n")
        assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert stream.readline() == b"\r\n"
        client.sendall(body)

        assert read_response(stream)[0] == 200


def test_http_1_0_and_connection_close_end_the_connection(server: Server) -> None:
    for request in (
        b"GET /v2/health/live HTTP/1.0\r\n\r\n",
        b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
    ):
        with connect(server) as client, client.makefile("rb") as stream:
            client.sendall(request)

            assert read_response(stream)[0] == 200
            assert stream.read() == b""


@pytest.mark.parametrize(
    "junk", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100]
)
def test_what_is_not_http_ends_its_connection_and_nothing_else(server: Server, junk: bytes) -> None:
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(junk)
        assert stream.readline() in (b"", b"HTTP/1.1 400 Bad Request\r\n")

    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n\r\n")
        assert read_response(stream)[0] == 200


def test_a_client_that_hangs_up_cancels_its_queued_request(server: Server, gate: Gate) -> None:
    stats = server.runtime.registry.find("gated").stats
    executions, cancelled = stats.execution_count, stats.failures["CANCELED"]
    request = binary_request("gated", np.arange(4, dtype=np.float32))
    with connect(server) as running, running.makefile("rb") as stream:
        running.sendall(request)
        assert gate.is_busy.wait(20)
        waiting = connect(server)
        waiting.sendall(request)
        _wait_until(lambda: stats.pending_count == 1)
        waiting.close()
        _wait_until(lambda: stats.pending_count == 0)
        gate.is_open.set()
        assert read_response(stream)[0] == 200

    assert on_loop(server, lambda: stats.failures["CANCELED"]) == cancelled + 1
    assert stats.execution_count == executions + 1


def test_a_slow_reader_gets_every_byte_right_while_blocks_are_recycled(server: Server) -> None:
    """Answers of 8 MB from a worker's shared memory, read slowly, while other requests reuse freed blocks."""
    rng = np.random.default_rng(1)
    slow_arrays = [rng.random(2_000_000, np.float32) for _ in range(3)]
    with connect(server) as slow, slow.makefile("rb") as slow_stream, connect(server) as quick:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        with quick.makefile("rb") as quick_stream:
            for array in slow_arrays:
                slow.sendall(binary_request("isolated", array))
                for turn in range(6):  # the answer to the slow client is on its way meanwhile
                    other = np.full(2_000_000, turn, np.float32)
                    quick.sendall(binary_request("isolated", other))
                    status, headers, body = read_response(quick_stream)
                    assert status == 200
                    np.testing.assert_array_equal(floats(headers, body), other)
                status, headers, body = read_response(slow_stream)

                assert status == 200
                np.testing.assert_array_equal(floats(headers, body), array)


def test_keep_alive_serves_a_thousand_requests_on_one_connection(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    for _ in range(1000):
        connection.request("GET", "/v2/health/ready")
        response = connection.getresponse()
        response.read()
        assert response.status == 200
    connection.close()


def _wait_until(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.002)


JSON_REQUEST = b"POST /v2/models/%b/infer HTTP/1.1\r\nHost: t\r\n%bContent-Length: %d\r\n\r\n%b"


def json_request(model: str, document: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return JSON_REQUEST % (model.encode(), lines, len(document), document)


GOOD = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[1,2]}]}'


@pytest.mark.parametrize("model", ["echo", "isolated"])
@pytest.mark.parametrize(
    "document",
    [GOOD[:-1] + rb',"id":"a\ud800"}', GOOD.replace(b"INPUT0", rb"\ud800"), GOOD[:-1] + rb',"parameters":5}'],
)
def test_text_that_is_no_text_is_refused_and_the_model_serves_on(
    server: Server, model: str, document: bytes
) -> None:
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(json_request(model, document))
        status, _, body = read_response(stream)
        assert status == 500
        assert b"error" in body

        client.sendall(json_request(model, GOOD))
        assert read_response(stream)[0] == 200


def test_an_offered_upgrade_is_ignored_with_and_without_a_body(server: Server) -> None:
    offer = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__")
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(json_request("echo", GOOD, *offer))
        assert read_response(stream)[0] == 200
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n" + b"\r\n".join(offer) + b"\r\n\r\n")
        assert read_response(stream)[0] == 200
        client.sendall(json_request("echo", GOOD))
        assert read_response(stream)[0] == 200


def test_rubbish_behind_a_request_is_refused_after_its_answer(server: Server) -> None:
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(json_request("slow", GOOD) + b"GARBAGE\r\n\r\n")
        assert read_response(stream)[0] == 200
        assert read_response(stream)[0] == 400
        assert stream.read() == b""


def test_bytes_of_pipelined_requests_are_given_back_when_the_client_leaves(
    server: Server, gate: Gate
) -> None:
    admission = server.runtime.admission  # type: ignore[union-attr]
    client = connect(server)
    client.sendall(json_request("gated", GOOD) * 4)
    _wait_until(lambda: admission.held == 4 * len(GOOD))
    client.close()
    gate.is_open.set()

    _wait_until(lambda: admission.held == 0)


def test_a_head_request_is_refused_without_a_body(server: Server) -> None:
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(b"HEAD /v2/health/live HTTP/1.1\r\nHost: t\r\n\r\n")
        assert stream.readline() == b"HTTP/1.1 405 Method Not Allowed\r\n"
        while stream.readline() != b"\r\n":
            pass
        client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n\r\n")

        assert read_response(stream)[0] == 200


def test_a_client_that_sends_all_before_it_reads_gets_the_refusal_and_no_reset(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request("POST", "/v2/models/echo/infer", b" " * 20_000_000)
    response = connection.getresponse()

    assert response.status == 400
    assert b"--http-max-input-size" in response.read()
    connection.close()


def half_closed_request(model: str) -> bytes:
    return json_request(model, GOOD)


def test_a_client_that_ends_its_side_still_gets_the_answer(
    server: Server, dial: Callable[..., Any], gate: Gate
) -> None:
    """With an interim answer before it, which tells those who wait from those who are gone."""
    client = dial(server.http_port)
    client.send(half_closed_request("gated"))
    client.half_close()
    first = client.answer()
    gate.is_open.set()

    assert [first.status, client.answer().status] == [100, 200]
    assert client.stream.read() == b""


def test_a_client_of_http_1_0_that_ends_its_side_gets_the_answer_alone(
    server: Server, dial: Callable[..., Any]
) -> None:
    client = dial(server.http_port)
    client.send(half_closed_request("slow").replace(b"HTTP/1.1", b"HTTP/1.0"))
    client.half_close()
    answer = client.answer()

    assert (answer.version, answer.status) == ("HTTP/1.0", 200)
    assert client.stream.read() == b""


def test_pipelined_requests_before_the_end_of_a_side_are_all_answered(
    server: Server, dial: Callable[..., Any]
) -> None:
    client = dial(server.http_port)
    client.send(half_closed_request("slow"), b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n\r\n" * 3)
    client.half_close()
    answers = [client.answer() for _ in range(4)]

    assert [answer.status for answer in answers] == [200] * 4
    assert client.stream.read() == b""


def test_half_a_request_before_the_end_of_a_side_is_dropped(server: Server, dial: Callable[..., Any]) -> None:
    client = dial(server.http_port)
    client.send(half_closed_request("slow")[:-5])
    client.half_close()

    assert client.stream.read() == b""


@pytest.mark.parametrize("resets", [False, True], ids=["closes", "resets"])
def test_a_client_that_leaves_cancels_its_request_at_once(server: Server, gate: Gate, resets: bool) -> None:
    stats = server.runtime.registry.find("gated").stats
    cancelled = stats.failures["CANCELED"]
    request = binary_request("gated", np.arange(4, dtype=np.float32))
    with connect(server) as running, running.makefile("rb") as stream:
        running.sendall(request)
        assert gate.is_busy.wait(20)
        waiting = connect(server)
        waiting.sendall(request)
        _wait_until(lambda: stats.pending_count == 1)
        if resets:
            waiting.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        waiting.close()
        _wait_until(lambda: stats.failures["CANCELED"] == cancelled + 1)  # the one before it is still running

        gate.is_open.set()
        assert read_response(stream)[0] == 200


def test_an_expecting_client_behind_a_slow_request_is_told_when_that_is_answered(
    server: Server, dial: Callable[..., Any]
) -> None:
    client = dial(server.http_port)
    head, _, body = json_request("echo", GOOD, b"Expect: 100-continue").partition(b"\r\n\r\n")
    client.send(json_request("slow", GOOD), head + b"\r\n\r\n")
    assert [client.answer().status, client.answer().status] == [200, 100]
    client.send(body)
    assert client.answer().status == 200
    client.send(json_request("slow", GOOD), head + b"\r\n\r\n" + body)  # who does not wait is not told

    assert [client.answer().status, client.answer().status] == [200, 200]


def test_thousands_of_offered_upgrades_in_one_write_are_answered(
    server: Server, dial: Callable[..., Any]
) -> None:
    client = dial(server.http_port)
    offer = b"GET /v2/health/live HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    client.send(offer * 3000)

    assert [client.answer().status for _ in range(3000)] == [200] * 3000


def options_of(server: Server, **changes: Any) -> ServerOptions:
    return replace(server.options, **changes)


def test_a_second_server_on_the_port_is_refused_unless_both_share_it(server: Server) -> None:
    with (
        pytest.raises(Unavailable, match=f"Socket '127.0.0.1:{server.http_port}' already in use"),
        Server(options_of(server, http_port=server.http_port), plugins=PLUGINS),
    ):
        pass
    with (
        Server(options_of(server, http_reuse_port=True, server_id="first"), plugins=PLUGINS) as first,
        Server(
            options_of(server, http_reuse_port=True, http_port=first.http_port, server_id="second"),
            plugins=PLUGINS,
        ) as second,
    ):
        assert second.http_port == first.http_port
        names = set()
        deadline = time.monotonic() + 20
        while len(names) < 2 and time.monotonic() < deadline:  # the system spreads connections
            connection = http.client.HTTPConnection("127.0.0.1", first.http_port, timeout=30)
            connection.request("GET", "/v2")
            names.add(json.loads(connection.getresponse().read())["name"])
            connection.close()

        assert names == {"first", "second"}


def test_a_stopping_server_answers_what_is_under_way_and_closes(
    server: Server, dial: Callable[..., Any], gate: Gate
) -> None:
    with Server(options_of(server), plugins=PLUGINS) as stopping:
        idle, busy, sending = (dial(stopping.http_port) for _ in range(3))
        idle.send(b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n\r\n")
        assert "connection" not in idle.answer().headers
        stats = stopping.runtime.registry.find("gated").stats
        busy.send(json_request("gated", GOOD))
        request = json_request("echo", GOOD)
        sending.send(request[:-5])
        admission = stopping.runtime.admission
        _wait_until(lambda: admission.held == 2 * len(GOOD))
        thread = threading.Thread(target=stopping.stop)
        thread.start()
        assert idle.stream.read() == b""
        sending.send(request[-5:])
        late = sending.answer()
        gate.is_open.set()
        answer = busy.answer()
        thread.join()

    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert busy.stream.read() == b""
    assert late.status in (200, 503)  # its model may be unloaded by then
    assert late.headers["connection"] == "close"
    assert sending.stream.read() == b""
    assert stats.execution_count == 1  # that of `busy`


@pytest.mark.parity
def test_the_real_server_answers_who_ends_its_side(
    real_triton: Callable[..., dict[str, int]], dial: Callable[..., Any], tmp_path: Path
) -> None:
    repository = ModelRepository(tmp_path)
    repository.model("slow", {**CONFIG, "backend": "python"})
    (tmp_path / "slow/1").mkdir(parents=True, exist_ok=True)
    (tmp_path / "slow/1/model.py").write_text(SLOW_PYTHON_MODEL)
    client = dial(real_triton(tmp_path)["http"])
    client.send(half_closed_request("slow"))
    client.half_close()

    assert client.answer().status == 200


SLOW_PYTHON_MODEL = """\
import time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.3)
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy())]
            )
            for request in requests
        ]
"""
