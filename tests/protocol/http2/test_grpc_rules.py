"""gRPC over HTTP/2, as frames: what calls end with, and which frames say so."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

import pytest
from tritonclient.grpc import service_pb2
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from .conftest import Stage
from .grpc_cases import CASES, Case, asked, infer
from .raw import (
    END_STREAM,
    INITIAL_WINDOW_SIZE,
    MAX_HEADER_LIST_SIZE,
    Answer,
    Http2Client,
    call,
    data,
    headers,
    message,
    request_headers,
    reset,
    window_update,
)


def end_of(answer: Answer) -> str:
    """What a call ended with, in the words of `Case.allowed`."""
    http_status = answer.fields.get(":status")
    if http_status not in ("200", None):
        return f"HTTP {http_status}"
    if answer.status is not None:
        return f"status {answer.status}"
    return f"RST_STREAM {answer.reset}"


@pytest.fixture
def client(port: int, dial: Callable[..., Http2Client]) -> Http2Client:
    client = dial(port)
    client.greet()
    return client


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_calls_end_as_grpc_says(server: Server, client: Http2Client, case: Case) -> None:
    client.send(case.sent)

    answer = client.answer()

    assert end_of(answer) in case.allowed, (answer.text, answer.headers)
    client.pong()  # whatever a call was, the connection is not to blame
    client.send(call(3))
    assert client.answer(3).status == 0
    until(lambda: server.runtime.admission.held == 0)


def test_an_answer_is_headers_data_and_trailers(client: Http2Client) -> None:
    client.send(asked(message(infer())))

    answer = client.answer()

    assert answer.frames == ["Headers", "Data", "Headers"]
    assert answer.headers[0][0] == (":status", "200")
    assert ("content-type", "application/grpc") in answer.headers[0]
    assert ("grpc-status", "0") in answer.headers[1]
    assert not any(name.startswith(":") for name, _ in answer.headers[1])
    (body,) = answer.messages
    assert service_pb2.ModelInferResponse.FromString(body).raw_output_contents == [b"abc"]


def test_an_error_at_once_is_nothing_but_trailers(client: Http2Client) -> None:
    client.send(call(method="Nothing"))

    answer = client.answer()

    assert answer.frames == ["Headers"]
    assert answer.status == 12
    assert answer.fields[":status"] == "200"
    assert answer.fields["content-type"].startswith("application/grpc")


def test_what_is_refused_before_the_client_has_ended_is_reset_without_an_error(client: Http2Client) -> None:
    client.send(headers(1, request_headers("Nothing")))
    answer = client.answer()
    assert answer.status == 12
    for found in client.frames():
        answer.take(found, 1, client.decoder)
        if answer.reset:
            break
    assert answer.reset == "NO_ERROR"
    client.send(call(3))
    assert client.answer(3).status == 0


def test_an_unknown_coding_is_told_which_are_known(client: Http2Client) -> None:
    client.send(asked(message(infer(), 1), grpc_encoding="br"))

    known = client.answer().fields["grpc-accept-encoding"].replace(" ", "").split(",")

    assert {"identity", "gzip", "deflate"} <= set(known)


def test_texts_are_percent_encoded(client: Http2Client) -> None:
    model = "modèle 100%\n~\x7f"
    client.send(asked(message(infer(model))))

    text = client.answer().text

    assert "mod%C3%A8le 100%25%0A~%7F" in text
    assert model in unquote(text)


def test_long_texts_are_cut_to_what_clients_take(client: Http2Client) -> None:
    client.send(asked(message(infer("é" * 20_000))))

    text = client.answer().text

    assert 1000 < len(text) < 7000
    assert "more characters" in unquote(text)


def test_the_limit_of_metadata_is_announced(client: Http2Client) -> None:
    assert 8192 <= client.peer_settings[MAX_HEADER_LIST_SIZE] <= 65_536


def test_metadata_keeps_its_order_and_bytes(client: Http2Client, stage: Stage) -> None:
    stage.is_open.set()
    fields = [*request_headers("ModelInfer"), ("x-a", "1"), ("x-b", "ü"), ("other", "2")]
    client.send(headers(1, fields) + data(1, message(infer("staged", id="m")), END_STREAM))

    assert client.answer().status == 0
    (parameters,) = [parameters for id, parameters in stage.executed if id == "m"]
    assert parameters.get("x-a") == "1"
    assert "other" not in parameters


def test_messages_of_a_stream_are_answered_in_order(client: Http2Client) -> None:
    sent = [infer(contents=bytes([number] * 100), id=str(number)) for number in range(20)]
    client.send(asked(*map(message, sent), method="ModelStreamInfer"))

    answers = [
        service_pb2.ModelStreamInferResponse.FromString(body).infer_response
        for body in client.answer().messages
    ]

    assert [(answer.id, answer.raw_output_contents[0]) for answer in answers] == [
        (str(number), bytes([number] * 100)) for number in range(20)
    ]


def test_a_stream_is_accepted_before_it_asks_anything(client: Http2Client) -> None:
    client.send(headers(1, request_headers("ModelStreamInfer")))
    answer = Answer()
    for found in client.frames():
        answer.take(found, 1, client.decoder)
        if answer.headers:
            break

    assert answer.fields[":status"] == "200"
    assert not answer.is_over
    client.send(data(1, b"", END_STREAM))
    assert client.answer().status == 0


def test_a_reset_call_leaves_the_queue(client: Http2Client, stage: Stage) -> None:
    client.send(asked(message(infer("staged", id="running"))))
    until(lambda: "running" in stage.ids)
    for number in range(20):
        stream = 3 + 2 * number
        body = message(infer("staged", id=f"queued {number}"))
        client.send(call(stream, body, method="ModelInfer"))
    client.send(*(reset(3 + 2 * number) for number in range(20)))
    client.pong()
    stage.is_open.set()
    client.send(call(101, message(infer("staged", id="last")), method="ModelInfer"))

    assert client.answer(101).status == 0
    assert stage.ids == ["running", "last"]


def test_calls_of_a_lost_connection_leave_the_queue(
    port: int, client: Http2Client, dial: Callable[..., Http2Client], stage: Stage
) -> None:
    client.send(asked(message(infer("staged", id="running"))))
    until(lambda: "running" in stage.ids)
    lost = dial(port)
    lost.greet()
    for number in range(20):
        lost.send(call(1 + 2 * number, message(infer("staged", id=f"lost {number}")), method="ModelInfer"))
    lost.pong()
    lost.close()
    other = dial(port)
    other.greet()
    other.pong()
    stage.is_open.set()
    other.send(call(1, message(infer("staged", id="last")), method="ModelInfer"))

    assert other.answer().status == 0
    assert stage.ids == ["running", "last"]


def test_a_deadline_ends_a_call_that_waits(client: Http2Client, stage: Stage) -> None:
    client.send(asked(message(infer("staged")), grpc_timeout="50m"))

    assert end_of(client.answer()) in ("status 4", "RST_STREAM CANCEL")
    client.pong()


def test_a_deadline_counts_from_the_headers_on(client: Http2Client) -> None:
    client.send(headers(1, request_headers("ModelInfer", grpc_timeout="50m")))

    assert end_of(client.answer()) in ("status 4", "RST_STREAM CANCEL")


def test_answers_wait_for_the_clients_window(port: int, dial: Callable[..., Http2Client]) -> None:
    client = dial(port)
    client.greet((INITIAL_WINDOW_SIZE, 10))
    contents = bytes(range(200))
    client.send(asked(message(infer(contents=contents))))
    answer = Answer()
    for found in client.frames():
        answer.take(found, 1, client.decoder)
        if len(answer.body) == 10:
            break
    client.pong()
    client.send(window_update(1, 7))
    for found in client.frames():
        answer.take(found, 1, client.decoder)
        if len(answer.body) == 17:
            break
    client.send(window_update(1, 100_000))
    for found in client.frames():
        answer.take(found, 1, client.decoder)
        if answer.is_over:
            break

    assert answer.status == 0
    (body,) = answer.messages
    assert service_pb2.ModelInferResponse.FromString(body).raw_output_contents == [contents]


def test_a_call_does_not_wait_for_one_whose_client_does_not_read(
    port: int, dial: Callable[..., Http2Client]
) -> None:
    client = dial(port)
    client.greet((INITIAL_WINDOW_SIZE, 0))
    client.send(call(1), call(3), window_update(3, 1000))

    assert client.answer(3).status == 0
    client.send(window_update(1, 1000))
    assert client.answer(1).status == 0


def test_room_is_given_back_for_what_was_read(client: Http2Client) -> None:
    """More goes over one connection, and one stream, than windows let in at once."""
    contents = bytes(100_000)
    granted = {0: 65_535, 1: client.peer_settings.get(INITIAL_WINDOW_SIZE, 65_535)}
    client.send(headers(1, request_headers("ModelStreamInfer")))
    answer = Answer()
    body = message(infer(contents=contents))
    total = 60

    def take(found: object) -> None:
        stream, more = getattr(found, "stream_id", 0), getattr(found, "window_increment", 0)
        if more and stream in granted:
            granted[stream] += more
        answer.take(found, 1, client.decoder)  # type: ignore[arg-type]
        if not answer.is_over and type(found).__name__ == "DataFrame":
            length = found.flow_controlled_length  # type: ignore[attr-defined]
            if length:
                client.send(window_update(0, length), window_update(1, length))

    for _ in range(total):
        at = 0
        while at < len(body):
            room = min(granted[0], granted[1], 16_384, len(body) - at)
            if room <= 0:
                take(client.frame())
                continue
            client.send(data(1, body[at : at + room]))
            granted[0] -= room
            granted[1] -= room
            at += room
    client.send(data(1, b"", END_STREAM))
    for found in client.frames():
        take(found)
        if answer.is_over:
            break

    assert answer.status == 0
    assert len(answer.messages) == total


@pytest.mark.parametrize(
    "refused",
    [message(bytes(16_000), flag=2), message(bytes(16_000), length=2**32 - 1), bytes(1) + bytes(16_000)],
    ids=["an unknown flag", "a length above the limit", "more than one message"],
)
def test_room_is_given_back_for_what_was_refused(client: Http2Client, refused: bytes) -> None:
    """Calls that are refused use up nothing of the connection's window, of which they come to the double."""
    room = 65_535
    announced = 16 * 1024 * 1024
    for stream in range(1, 2 * (2 * announced // len(refused)), 2):
        room -= len(refused)
        client.send(headers(stream, request_headers("ModelInfer")), data(stream, refused))
        answer = Answer()
        while room < len(refused) or not answer.is_over:
            found = client.frame()
            answer.take(found, stream, client.decoder)
            room += getattr(found, "window_increment", 0) if found.stream_id == 0 else 0
        assert answer.status in (8, 12, 13)


def test_many_calls_of_one_write_are_all_answered(client: Http2Client) -> None:
    client.send(b"".join(call(1 + 2 * number) for number in range(60)))
    ended = set()
    for found in client.frames():
        if found.stream_id and "END_STREAM" in found.flags:
            ended.add(found.stream_id)
        if len(ended) == 60:
            break

    assert ended == {1 + 2 * number for number in range(60)}
