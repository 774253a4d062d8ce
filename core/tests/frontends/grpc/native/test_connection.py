"""One connection from its first byte to its end, on the engine of ngh2, driven by hand."""

from __future__ import annotations

from asyncio import sleep
from itertools import pairwise

import pytest
from hyperframe import frame as frames
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

from ....simulator.virtual_loop import in_virtual_time, run, turns
from ...data_plane import infer_request

pytest.importorskip("ngh2")

from .hand_driven import INFER, LIVE, MUCH_WINDOW, STREAM_INFER, Client, message

ECHO = infer_request().SerializeToString()
MANUAL = infer_request("manual", id="mine").SerializeToString()
MEBIBYTE = 1 << 20


def kinds(came: list[frames.Frame]) -> list[str]:
    return [type(each).__name__.removesuffix("Frame") for each in came]


@in_virtual_time
async def test_a_call_that_is_answered_at_once_leaves_in_one_write() -> None:
    client = Client.greeted()
    client.take()

    client.call(INFER, ECHO)

    assert len(client.transport.written) == 1
    answer = client.answer()
    assert answer.is_complete
    assert answer.headers[0][":status"] == "200"
    assert answer.status == (0, "")
    assert answer.data[5:].startswith(b"\n\x04echo")


@in_virtual_time
async def test_answers_of_one_turn_leave_in_one_write() -> None:
    client = Client.greeted()
    for _ in range(8):
        client.call(INFER, MANUAL)
    client.take()

    for request in client.dataplane.requests:
        request.deliver(InferResponse())
    assert client.transport.written == []
    await turns()

    assert len(client.transport.written) == 1
    assert sorted(kinds(client.take())) == ["Data"] * 8 + ["Headers"] * 16


@in_virtual_time
async def test_a_large_answer_leaves_in_few_writes_and_stops_when_the_client_does() -> None:
    client = Client.greeted()
    client.send(*MUCH_WINDOW)
    client.take()
    body = infer_request(data=bytes(MEBIBYTE)).SerializeToString()
    whole = message(body)

    pieces = [whole[at : at + 100_000] for at in range(0, len(whole), 100_000)]
    client.send(client.headers())
    client.transport.most_waiting = 1000
    for piece in pieces:
        client.send(client.data(piece, is_last=piece is pieces[-1]))
    first = client.transport.get_write_buffer_size()
    writes = 0
    while client.transport.written:
        writes += 1
        client.take()

    assert MEBIBYTE // 4 < first < MEBIBYTE
    assert writes == 3
    assert len(client.answer().data) > MEBIBYTE


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=8))
def test_bytes_may_come_in_any_pieces(cuts: list[int]) -> None:
    async def asked(_: object) -> tuple[int, bytes]:
        client = Client.greeted()
        sent = b"".join(
            each.serialize() for each in (client.headers(), client.data(message(ECHO[:-4] + bytes(4))))
        )
        places = sorted({min(cut, len(sent)) for cut in cuts} | {0, len(sent)})
        for begin, end in pairwise(places):
            client.feed(sent[begin:end])
        return client.answer().status[0], client.answer().data

    status, data = run(asked)

    assert status == 0
    assert data[5:].startswith(b"\n\x04echo")


@in_virtual_time
async def test_a_message_may_straddle_frames_and_is_counted_when_it_is_announced() -> None:
    client = Client.greeted(max_inflight_byte_size=10 * MEBIBYTE)
    body = infer_request(data=bytes(MEBIBYTE)).SerializeToString()
    whole = message(body)

    client.send(client.headers(), client.data(whole[:3], is_last=False))
    before = client.admission.held
    client.send(client.data(whole[3:1000], is_last=False))
    announced = client.admission.held
    for begin in range(1000, len(whole), 100_000):
        part = whole[begin : begin + 100_000]
        client.send(client.data(part, is_last=begin + 100_000 >= len(whole)))

    assert (before, announced) == (0, len(body))
    assert client.admission.held == 0
    client.send(frames.WindowUpdateFrame(1, window_increment=2 * MEBIBYTE))
    client.send(frames.WindowUpdateFrame(0, window_increment=2 * MEBIBYTE))
    assert client.answer().status == (0, "")


@in_virtual_time
async def test_what_exceeds_the_limit_is_refused_before_it_comes() -> None:
    client = Client.greeted(max_inflight_byte_size=1000)

    client.send(client.headers(), client.data(message(bytes(5000))[:5], is_last=False))

    answer = client.answer()
    assert answer.status == (8, "Received message larger than max (5000 vs. 1000)")
    assert answer.reset == 0  # behind the answer, so that the client stops sending
    assert client.admission.held == 0


@in_virtual_time
async def test_half_a_message_is_no_message() -> None:
    client = Client.greeted()

    client.send(client.headers(), client.data(message(ECHO)[:-1]))

    assert client.answer().status[0] == 13


@pytest.mark.parametrize(("body", "status"), [(b"", 12), (message(ECHO) * 2, 12), (b"\x02\0\0\0\0", 13)])
@in_virtual_time
async def test_a_unary_call_has_one_message(body: bytes, status: int) -> None:
    client = Client.greeted()

    client.send(client.headers(), client.data(body))

    assert client.answer().status[0] == status


@in_virtual_time
async def test_a_compressed_message_needs_a_coding() -> None:
    client = Client.greeted()

    client.send(client.headers(), client.data(message(ECHO, 1)))

    assert client.answer().status[0] == 13


@pytest.mark.parametrize("how", ["reset", "lost", "deadline"])
@in_virtual_time
async def test_a_call_that_is_given_up_is_cancelled_and_held_until_its_model_is_done(how: str) -> None:
    client = Client.greeted(max_inflight_byte_size=1000)
    client.call(INFER, MANUAL, grpc_timeout="500m")
    assert client.admission.held == len(MANUAL)

    if how == "reset":
        client.send(client.reset())
    elif how == "lost":
        client.connection.connection_lost(None)
    else:
        await sleep(0.52)
        assert client.answer().status == (4, "Deadline Exceeded")

    assert client.dataplane.cancelled == ["mine"]
    assert client.admission.held == len(MANUAL)
    client.dataplane.requests.pop().deliver(InferResponse())
    assert client.admission.held == 0
    assert client.server.servicer.unary.open_count == 0


@in_virtual_time
async def test_a_stream_is_accepted_before_anything_is_asked() -> None:
    client = Client.greeted()

    client.send(client.headers(STREAM_INFER))
    await turns()
    accepted = client.answer().headers
    client.send(client.data(message(ECHO) * 2))
    await turns()

    assert [headers[":status"] for headers in accepted] == ["200"]
    answer = client.answer()
    assert answer.status == (0, "")
    assert answer.data.count(b"echo") == 2


@in_virtual_time
async def test_a_stream_whose_client_takes_nothing_holds_few_responses() -> None:
    client = Client.greeted()
    client.send(frames.SettingsFrame(settings={4: 0}))  # no window for any stream
    body = infer_request(data=bytes(100_000)).SerializeToString()

    client.send(client.headers(STREAM_INFER), client.data(message(body), is_last=False))
    client.send(client.data(message(body), is_last=False))
    await turns()

    assert client.answer().data == b""
    assert client.connection.engine.queued(0) < 150_000  # the second waits in its stream
    client.send(frames.WindowUpdateFrame(1, window_increment=300_000))
    client.send(frames.WindowUpdateFrame(0, window_increment=300_000), client.data(b""))
    await turns()
    assert client.answer().status == (0, "")
    assert len(client.answer().data) > 200_000


@in_virtual_time
async def test_a_client_that_reads_nothing_is_asked_nothing() -> None:
    client = Client.greeted()
    client.take()

    client.connection.pause_writing()
    was_reading = client.transport.is_reading
    client.call(LIVE, b"")
    written = list(client.transport.written)
    client.connection.resume_writing()

    assert (was_reading, written) == (False, [])
    assert client.transport.is_reading
    assert client.answer().status == (0, "")


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        (":method", "GET", "405"),
        ("content-type", "text/html", "415"),
        ("content-type", "application/grpcx", "415"),
    ],
)
@in_virtual_time
async def test_what_is_no_call_is_answered_as_http_is(header: str, value: str, status: str) -> None:
    client = Client.greeted()

    client.send(client.headers(is_last=True, **{header: value}))

    assert client.answer().headers == [{":status": status}]
    assert client.answer().is_complete


@in_virtual_time
async def test_a_server_that_leaves_says_so_twice_and_takes_what_was_on_its_way() -> None:
    client = Client.greeted()
    client.call(INFER, MANUAL)
    client.take()

    client.connection.leave()
    await turns()
    [notice, ping] = client.take()
    client.call(INFER, ECHO)  # sent before the client has heard
    late = client.answer().status
    client.send(frames.PingFrame(0, ping.opaque_data, flags=["ACK"]))
    [goodbye] = [each for each in client.take() if isinstance(each, frames.GoAwayFrame)]
    is_open = not client.transport.is_over
    client.dataplane.requests.pop().deliver(InferResponse())
    await turns()

    assert (kinds([notice]), notice.last_stream_id) == (["GoAway"], 2**31 - 1)
    assert late == (0, "")
    assert goodbye.last_stream_id == 3
    assert is_open
    assert client.answer(1).status == (0, "")
    assert client.transport.is_over


@in_virtual_time
async def test_a_client_that_came_just_before_the_server_leaves_is_told_so_and_answered() -> None:
    client = Client()
    client.connection.leave()

    client.greet()
    client.call(INFER, ECHO)
    came = client.take()

    assert kinds(came)[1:4] == ["WindowUpdate", "GoAway", "Ping"]
    assert client.answer().status == (0, "")
    client.send(frames.PingFrame(0, came[3].opaque_data, flags=["ACK"]))
    assert client.transport.is_over


@in_virtual_time
async def test_bytes_that_are_not_http_2_end_the_connection() -> None:
    client = Client()

    client.feed(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")

    assert client.transport.is_over


@in_virtual_time
async def test_a_client_that_says_nothing_is_not_waited_for() -> None:
    client = Client()

    await sleep(19)
    is_open = not client.transport.is_over
    await sleep(2)

    assert is_open
    assert client.transport.is_over


@in_virtual_time
async def test_a_call_that_cannot_be_cancelled_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client.greeted()
    client.call(INFER, infer_request("manual", id="first").SerializeToString())
    client.call(INFER, MANUAL)
    cancel = InferRequest.cancel

    def fails_for_the_first(request: InferRequest) -> None:
        if request.id == "first":
            raise ValueError("no")
        cancel(request)

    monkeypatch.setattr(InferRequest, "cancel", fails_for_the_first)
    client.connection.connection_lost(None)

    assert client.dataplane.cancelled == ["mine"]
    assert client.connection not in client.server.listener.connections
    assert [record.getMessage() for record in caplog.records if record.exc_info] == [
        f"{INFER} could not be cancelled"
    ]
