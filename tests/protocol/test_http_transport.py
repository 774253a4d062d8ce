"""HTTP/1.1 itself, over raw sockets: pieces, pipelines, chunks, limits, slow clients and stopping servers."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Unavailable
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from .http_transport import (
    GOOD,
    PLUGINS,
    Gate,
    binary_request,
    closed_gate,
    connect,
    floats,
    gated_server,
    json_request,
    read_response,
)


@pytest.fixture
def gate() -> Iterator[Gate]:
    yield from closed_gate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from gated_server(tmp_path_factory.mktemp("models"))


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


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    arrays = [np.full(count, count, np.float32) for count in (1, 20_000, 3, 9000, 2)]
    with connect(server) as client, client.makefile("rb") as stream:
        client.sendall(b"".join(binary_request("echo", array) for array in arrays))

        for array in arrays:
            status, headers, body = read_response(stream)
            assert status == 200
            np.testing.assert_array_equal(floats(headers, body), array)


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

        def are_both_met() -> bool:  # the system spreads connections
            connection = http.client.HTTPConnection("127.0.0.1", first.http_port, timeout=30)
            connection.request("GET", "/v2")
            names.add(json.loads(connection.getresponse().read())["name"])
            connection.close()
            return names == {"first", "second"}

        until(are_both_met)


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
        until(lambda: admission.held == 2 * len(GOOD))
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
