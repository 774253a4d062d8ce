"""What one client may send, and what all may hold together, before HTTP says no."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.frontends.http.connection.stalled_clients import STALLED_SWEEPS
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ..on_loop import on_loop
from ..servers import http_of, local_options

GET = b"GET /v2/health/live HTTP/1.1\r\nHost: t\r\n"
POST = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: t\r\n"
BINARY = POST + b"Inference-Header-Content-Length: 10\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
JSON = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[2],"data":[1,2]}]}'


@pytest.fixture(scope="module")
def server(echo_models: Path) -> Iterator[Server]:
    options = local_options(
        echo_models,
        allow_grpc=False,
        allow_metrics=False,
        http_max_input_byte_size=1_000_000,
        max_inflight_byte_size=8_000_000,
    )
    with Server(options) as running:
        running.runtime.admission.patience_s = 60  # who waits for room is let in, however busy the machine is
        yield running


@pytest.fixture
def client(server: Server, dial: Callable[..., Any]) -> Any:
    return dial(server.http_port)


def test_headers_over_64_kib_are_refused_and_end_the_connection(client: Any) -> None:
    client.send(GET + b"\r\n" + GET + b"X: " + b"x" * 70_000 + b"\r\n\r\n")
    assert client.answer().status == 200
    answer = client.answer()

    assert answer.status == 431
    assert answer.error == "the request's headers exceed 65536 bytes"
    assert answer.headers["connection"] == "close"
    assert client.stream.read() == b""


def test_a_body_over_the_input_limit_is_refused_before_it_is_read(client: Any) -> None:
    client.send(POST + b"Content-Length: 1000001\r\n\r\n")
    answer = client.answer()

    assert answer.status == 400
    assert "exceeds the maximum allowed value of 1000000 bytes" in answer.error
    assert "Use --http-max-input-size to increase the limit." in answer.error


def test_a_body_over_the_input_limit_is_told_first_that_its_path_does_not_exist(client: Any) -> None:
    client.send(b"POST /v2/nothing HTTP/1.1\r\nHost: t\r\nContent-Length: 1000001\r\n\r\n")
    answer = client.answer()

    assert (answer.status, answer.headers["connection"]) == (404, "close")


def test_what_was_announced_and_never_comes_costs_the_others_nothing(
    server: Server, dial: Callable[..., Any], infer_request: Callable[..., bytes]
) -> None:
    admission = server.runtime.admission
    liars = [dial(server.http_port) for _ in range(4)]
    for liar in liars:
        liar.send(BINARY + b"Content-Length: 1000000000\r\n\r\nx")
    until(lambda: admission.held == 4 * 16_384)
    honest = dial(server.http_port)
    honest.send(infer_request("echo", np.zeros(1_500_000, np.float32)))

    assert honest.answer().status == 200
    for liar in liars:
        liar.close()
    until(lambda: admission.held == 0)


def test_a_full_server_stops_reading_until_there_is_room(
    server: Server, dial: Callable[..., Any], infer_request: Callable[..., bytes]
) -> None:
    admission = server.runtime.admission
    values = np.arange(1_200_000, dtype=np.float32)
    first, second, third = (dial(server.http_port) for _ in range(3))
    first.send(BINARY + b"Content-Length: 7000000\r\n\r\n" + bytes(6_000_000))
    until(lambda: admission.held == 6_000_000)
    request = infer_request("echo", values)
    second.send(request[:2_100_000])  # above the limit now
    until(lambda: admission.held > 8_000_000)
    third.send(GET + b"Content-Length: 5\r\n\r\nhello")
    third.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        third.answer()
    first.close()
    third.socket.settimeout(30)
    third.stream = third.socket.makefile("rb")
    assert third.answer().status == 200
    second.send(request[2_100_000:])
    answer = second.answer()

    assert answer.status == 200
    head = int(answer.headers["inference-header-content-length"])
    np.testing.assert_array_equal(np.frombuffer(answer.body[head:], np.float32), values)
    until(lambda: admission.held == 0)


@pytest.mark.parametrize(
    ("path", "status"), [("/v2/models/echo/infers", 404), ("/v2/health/live", 405)], ids=["404", "405"]
)
def test_a_client_that_asks_first_is_spared_a_body_that_nobody_reads(
    client: Any, path: str, status: int
) -> None:
    client.send(b"POST %b HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n" % path.encode())

    assert client.answer().status == status
    assert client.stream.read() == b""


def sweep(server: Server, times: int) -> None:
    http = http_of(server)
    loop = server.loop

    async def look() -> None:
        http.sweeper.sweep()

    for _ in range(times):
        asyncio.run_coroutine_threadsafe(look(), loop).result(60)


def connections(server: Server) -> list[Any]:
    return list(http_of(server).connections)


def connection_of(server: Server, client: Any) -> Any:
    """The server's end of a client, as soon as there is one."""
    name = client.socket.getsockname()

    def ends() -> list[Any]:
        known = ((each, each._transport) for each in connections(server))
        return [each for each, end in known if end is not None and end.get_extra_info("peername") == name]

    until(lambda: len(ends()) == 1)
    return ends()[0]


def test_a_client_that_never_reads_its_answer_is_dropped(
    server: Server, dial: Callable[..., Any], infer_request: Callable[..., bytes]
) -> None:
    client = dial(server.http_port)
    client.send(infer_request("echo", np.zeros(5_000_000, np.float32)))

    def unread() -> list[Any]:
        return [connection for connection in connections(server) if connection._is_write_paused]

    until(lambda: bool(unread()))
    (connection,) = unread()

    def is_dropped() -> bool:
        sweep(server, STALLED_SWEEPS + 1)  # the system may have taken more of it between two of them
        return connection not in connections(server)

    until(is_dropped)


def test_announcing_ten_gigabytes_costs_under_ten_megabytes(
    corectl: Callable[..., Any], dial: Callable[..., Any], echo_models: Path
) -> None:
    server = corectl(f"--model-repository={echo_models}")
    status = Path(f"/proc/{server.process.pid}/status")

    def resident_bytes() -> int:
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    port = server.ports["HTTPService"]
    warm = dial(port)
    warm.send(GET + b"\r\n")
    warm.answer()
    before = resident_bytes()
    for size in (10_000_000_000, 2_000_000_000):
        client = dial(port)
        client.send(BINARY + b"Content-Length: %d\r\n\r\n" % size + bytes(1_000_000))
        client.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError):  # it waits for the rest
            assert "there is no memory for it" in client.answer().error  # a small machine says so

    assert resident_bytes() - before < 10_000_000


def test_what_a_compressed_body_becomes_counts_and_may_be_too_much_for_now(
    server: Server, client: Any
) -> None:
    body = gzip.compress(JSON + b" " * 900_000)
    admission = server.runtime.admission
    until(lambda: admission.held == 0)

    def pretend(byte_size: int) -> None:
        admission.held += byte_size

    on_loop(server, lambda: pretend(7_500_000))  # as if others held so much
    head = POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    client.send(head + body)
    answer = client.answer()
    on_loop(server, lambda: pretend(-7_500_000))

    assert answer.status == 503
    assert answer.headers["retry-after"] == "1"
    assert "--max-inflight-bytes is 8000000" in answer.error
    client.send(head + body)
    assert client.answer().status == 200
    until(lambda: admission.held == 0)
