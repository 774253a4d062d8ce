"""Connections as frames: kept alive, grown old, left idle, and ended without losing a call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hyperframe.frame import Frame, GoAwayFrame, PingFrame
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ...servers import GRPC_TRANSPORTS
from .conftest import Stage
from .grpc_cases import infer
from .raw import ACK, PING, Answer, Http2Client, call, error_name, frame, message, ping

LAST_OF_ALL = 2**31 - 1


def goaways(frames: Iterator[Frame]) -> Iterator[GoAwayFrame]:
    return (found for found in frames if isinstance(found, GoAwayFrame))


def answering_pings(client: Http2Client) -> Iterator[Frame]:
    """All frames until the end; pings are answered."""
    for found in client.frames():
        yield found
        if isinstance(found, PingFrame) and "ACK" not in found.flags:
            client.send(frame(PING, ACK, 0, found.opaque_data))


def connected(server: Server, dial: Callable[..., Http2Client]) -> Http2Client:
    client = dial(server.grpc_port)
    client.greet()
    return client


def staged(stream: int, id: str) -> bytes:
    return call(stream, message(infer("staged", id=id)), method="ModelInfer")


def test_a_stopping_server_says_so_twice_and_answers_what_it_has(
    start: Callable[..., Server], dial: Callable[..., Http2Client], stage: Stage
) -> None:
    server = start()
    client = connected(server, dial)
    idle = connected(server, dial)
    client.send(staged(1, "held"))
    until(lambda: "held" in stage.ids)
    stopping = threading.Thread(target=server.stop)
    stopping.start()

    first = next(goaways(client.frames()))
    ends_of_idle = [(end.last_stream_id, end.error_code) for end in goaways(answering_pings(idle))]
    client.send(staged(3, "late"))  # it was on its way
    late = client.answer(3)
    stage.is_open.set()
    answer, ends = Answer(), []
    for found in answering_pings(client):
        answer.take(found, 1, client.decoder)
        ends += [found] if isinstance(found, GoAwayFrame) else []
    stopping.join()

    assert (first.last_stream_id, first.error_code) == (LAST_OF_ALL, 0)
    assert late.status == 14
    assert "has stopped accepting new requests" in late.text
    assert answer.status == 0
    assert [(end.last_stream_id, end.error_code) for end in ends] == [(3, 0)]
    assert ends_of_idle == [(LAST_OF_ALL, 0), (0, 0)]


def test_a_silent_client_is_pinged_and_given_up(
    start: Callable[..., Server], dial: Callable[..., Http2Client]
) -> None:
    server = start(
        grpc_keepalive_time_ms=50, grpc_keepalive_timeout_ms=50, grpc_keepalive_permit_without_calls=True
    )
    silent = connected(server, dial)

    kinds = [type(found) for found in silent.frames()]

    assert PingFrame in kinds


def test_a_client_that_answers_pings_is_kept(
    start: Callable[..., Server], dial: Callable[..., Http2Client], stage: Stage
) -> None:
    server = start(
        grpc_keepalive_time_ms=20,
        grpc_keepalive_timeout_ms=5000,
        grpc_keepalive_permit_without_calls=True,
        grpc_http2_max_pings_without_data=0,
    )
    client = connected(server, dial)
    pings = 0
    for found in client.frames():
        if isinstance(found, PingFrame) and "ACK" not in found.flags:
            client.send(frame(PING, ACK, 0, found.opaque_data))
            pings += 1
        if pings == 5:
            break
    client.send(call())

    assert client.answer().status == 0


def test_pings_without_data_end(start: Callable[..., Server], dial: Callable[..., Http2Client]) -> None:
    server = start(
        grpc_keepalive_time_ms=10,
        grpc_keepalive_timeout_ms=5000,
        grpc_keepalive_permit_without_calls=True,
        grpc_http2_max_pings_without_data=2,
    )
    client = connected(server, dial)
    pings = 0
    for found in client.frames():
        if isinstance(found, PingFrame) and "ACK" not in found.flags:
            client.send(frame(PING, ACK, 0, found.opaque_data))
            pings += 1
        if pings == 2:
            break
    before = client.pong()

    assert not any(isinstance(found, PingFrame) for found in before)


@pytest.mark.parametrize("transport", GRPC_TRANSPORTS)
def test_a_client_that_pings_too_often_is_told_so(
    start: Callable[..., Server], dial: Callable[..., Http2Client], transport: str
) -> None:
    client = connected(start(grpc_transport=transport), dial)
    client.send(ping(b"00000000"), ping(b"11111111"), ping(b"22222222"))
    client.send(ping(b"33333333"), ping(b"44444444"))
    goaway = client.end()

    assert goaway is not None
    assert (error_name(goaway.error_code), goaway.additional_data) == ("ENHANCE_YOUR_CALM", b"too_many_pings")


def test_answers_forgive_pings(start: Callable[..., Server], dial: Callable[..., Http2Client]) -> None:
    client = connected(start(), dial)
    for stream in range(1, 20, 2):
        client.pong()
        client.send(call(stream))
        assert client.answer(stream).status == 0


@pytest.mark.parametrize("transport", GRPC_TRANSPORTS)
@pytest.mark.parametrize(
    "permission",
    [
        {"grpc_http2_max_ping_strikes": 0},
        {
            "grpc_http2_min_recv_ping_interval_without_data_ms": 0,
            "grpc_keepalive_permit_without_calls": True,
        },
    ],
    ids=["any number", "any time"],
)
def test_pings_are_borne_as_often_as_the_operator_says(
    start: Callable[..., Server], dial: Callable[..., Http2Client], transport: str, permission: dict[str, Any]
) -> None:
    client = connected(start(grpc_transport=transport, **permission), dial)
    for _ in range(20):
        client.pong()


def test_an_old_connection_is_ended_in_two_steps(
    start: Callable[..., Server], dial: Callable[..., Http2Client], stage: Stage
) -> None:
    client = connected(start(grpc_max_connection_age_ms=100), dial)
    client.send(staged(1, "old"))
    before: list[Frame] = []
    for found in client.frames():
        before.append(found)
        if isinstance(found, PingFrame):
            break
    (notice,) = goaways(iter(before))  # before the ping, or its answer would say nothing
    assert (notice.last_stream_id, notice.error_code) == (LAST_OF_ALL, 0)
    assert notice.additional_data == b"max_age"

    client.send(staged(3, "later"))  # it was on its way
    assert isinstance(before[-1], PingFrame)
    client.send(frame(PING, ACK, 0, before[-1].opaque_data))
    last = next(goaways(client.frames()))
    assert (last.last_stream_id, last.error_code) == (3, 0)
    stage.is_open.set()
    answers = {1: Answer(), 3: Answer()}
    for found in client.frames():  # until the server closes the connection
        if found.stream_id in answers:
            answers[found.stream_id].take(found, found.stream_id, client.decoder)

    assert {stream: answer.status for stream, answer in answers.items()} == {1: 0, 3: 0}


def test_calls_of_an_old_connection_have_only_so_long(
    start: Callable[..., Server], dial: Callable[..., Http2Client], stage: Stage
) -> None:
    client = connected(start(grpc_max_connection_age_ms=50, grpc_max_connection_age_grace_ms=50), dial)
    client.send(staged(1, "too old"))
    answer = Answer()
    for found in answering_pings(client):
        answer.take(found, 1, client.decoder)

    assert answer.status != 0  # reset, refused, or gone with the connection


@pytest.mark.parametrize("asks", [False, True])
def test_an_idle_connection_is_ended(
    start: Callable[..., Server], dial: Callable[..., Http2Client], asks: bool
) -> None:
    client = connected(start(idle_timeout_s=0.1), dial)
    if asks:
        client.send(call())
        assert client.answer().status == 0

    ends = [(end.last_stream_id, end.error_code) for end in goaways(answering_pings(client))]

    assert ends == [(LAST_OF_ALL, 0), (1 if asks else 0, 0)]
