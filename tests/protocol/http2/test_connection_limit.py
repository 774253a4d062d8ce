"""More connections than a port takes: a few beyond the limit may ask for health, once each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tritonclient.grpc
from tritonpy.frontends.reserve import NO_ROOM, PLACES
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from .grpc_cases import infer
from .raw import Answer, Http2Client, call, headers, message, request_headers

LIMIT = 2
INFER = message(infer())
HEALTH = "/grpc.health.v1.Health/"


@pytest.fixture(scope="module")
def port(start: Callable[..., Server]) -> int:
    return start(grpc_max_connection_count=LIMIT).grpc_port


@pytest.fixture
def regulars(port: int, dial: Callable[..., Http2Client]) -> list[Http2Client]:
    """The clients that there is room for."""
    clients: list[Http2Client] = []

    def has_room() -> bool:  # as soon as clients of earlier tests have gone
        client = dial(port)
        client.greet()
        client.send(call(1, INFER, "ModelInfer"))
        if client.answer().status != 0:
            return False
        clients.append(client)
        return len(clients) == LIMIT

    until(has_room)
    return clients


@pytest.fixture
def newcomer(port: int, regulars: list[Http2Client], dial: Callable[..., Http2Client]) -> Http2Client:
    client = dial(port)
    client.greet()
    return client


def whole(client: Http2Client, stream: int = 1) -> Answer:
    """All that comes for a stream until the server closes the connection."""
    answer = Answer()
    for found in client.frames():
        answer.take(found, stream, client.decoder)
    return answer


@pytest.mark.parametrize("method", ["ServerLive", "ServerReady", HEALTH + "Check"])
def test_a_newcomer_is_told_of_health_and_then_closed(newcomer: Http2Client, method: str) -> None:
    path = {"path": method} if method.startswith("/") else {}
    newcomer.send(call(1, method=method, **path))
    answer = whole(newcomer)

    assert answer.status == 0
    assert (answer.goaway, answer.debug.decode()) == ("NO_ERROR", NO_ROOM)


@pytest.mark.parametrize(
    "asked", [call(1, INFER, "ModelInfer"), call(1, method="RepositoryIndex"), call(1, method="NoSuch")]
)
def test_a_newcomer_is_refused_anything_else(
    newcomer: Http2Client, regulars: list[Http2Client], asked: bytes
) -> None:
    newcomer.send(asked)
    answer = whole(newcomer)
    regulars[0].send(call(3, INFER, "ModelInfer"))

    assert (answer.status, answer.text) == (14, NO_ROOM)
    assert (answer.goaway, answer.debug.decode()) == ("NO_ERROR", NO_ROOM)
    assert regulars[0].answer(3).status == 0


def test_a_newcomer_that_sends_no_message_is_not_waited_for_by_probes(
    port: int, regulars: list[Http2Client], dial: Callable[..., Http2Client]
) -> None:
    silent = []
    for _ in range(PLACES):
        client = dial(port)
        client.greet()
        client.send(headers(1, request_headers("ServerLive")))
        client.pong()
        silent.append(client)
    probe = dial(port)
    probe.greet()
    probe.send(call())

    assert probe.answer().status == 0
    list(silent[0].frames())  # the oldest is closed
    silent[1].pong()


def test_who_comes_after_one_has_gone_is_no_newcomer(
    port: int, newcomer: Http2Client, regulars: list[Http2Client], dial: Callable[..., Http2Client]
) -> None:
    """Though one that may only ask for health is still there."""
    regulars.pop().close()

    def is_taken() -> bool:
        client = dial(port)
        client.greet()
        client.send(call(1, INFER, "ModelInfer"))
        return client.answer().status == 0

    until(is_taken)
    newcomer.send(call(1, INFER, "ModelInfer"))
    assert newcomer.answer().status == 14


def test_clients_of_grpc_probe_a_port_that_is_full(port: int, regulars: list[Http2Client]) -> None:
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
        assert [client.is_server_live() for _ in range(3)] == [True] * 3
        with pytest.raises(tritonclient.grpc.InferenceServerException, match=NO_ROOM):
            client.get_model_repository_index()
        assert client.is_server_ready()
