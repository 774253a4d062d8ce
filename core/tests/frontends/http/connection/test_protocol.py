"""One connection from its first byte to its end, driven by hand."""

from __future__ import annotations

import select
import socket
import struct
from asyncio import sleep
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonpy.admission import Admission
from tritonpy.frontends.http.connection.closing import MOST_LOOKS, QUIET_S
from tritonpy.frontends.http.connection.message import refusal
from tritonpy.frontends.http.connection.stalled_clients import STALLED_SWEEPS, Sweeper

from ....simulator.virtual_loop import in_virtual_time, run, turns
from .hand_driven import Client, Service, answers_in

GET = b"GET %b HTTP/1.1\r\nHost: t\r\n\r\n"
POST = b"POST %b HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n%b"
ASKS = b"POST %b HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST %b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%b\r\n\r\n"
RUBBISH = b"no request\r\n\r\n"
HALF = b"GET /a HT"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def get(path: bytes = b"/a") -> bytes:
    return GET % path


def post(path: bytes, body: bytes) -> bytes:
    return POST % (path, len(body), body)


def bodies(client: Client) -> list[bytes | None]:
    return [answer.body for answer in client.answers]


@pytest.fixture
def quick() -> Service:
    return Service()


@pytest.fixture
def slow() -> Service:
    return Service(is_quick=False)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets: the client's, and the server's."""
    pair = socket.socketpair()
    yield pair
    for each in pair:
        each.close()


# Requests, one after the other.


@in_virtual_time
async def test_a_connection_answers_one_request_after_the_other(quick: Service) -> None:
    client = Client(quick)
    for number in range(300):
        client.send(post(b"/%d" % number, b"x" * number))
    assert bodies(client) == [b"/%d %b" % (number, b"x" * number) for number in range(300)]
    assert client.transport.is_reading
    assert not client.is_closed


@in_virtual_time
async def test_pipelined_requests_are_answered_in_their_order_one_at_a_time(slow: Service) -> None:
    client = Client(slow)
    client.send(get(b"/0") + post(b"/1", b"b" * 50_000) + get(b"/2") + get(b"/3"))

    for number in range(4):
        assert [request.path for request in slow.requests] == [f"/{done}" for done in range(number + 1)]
        slow.answer()
        await turns()

    assert bodies(client) == [b"/0 ", b"/1 " + b"b" * 50_000, b"/2 ", b"/3 "]
    assert client.admission.held == 0


@in_virtual_time
async def test_thousands_of_pipelined_requests_need_no_deep_stack(quick: Service) -> None:
    client = Client(quick)
    client.send(get() * 2000)
    await turns()

    assert client.statuses == [200] * 2000


@in_virtual_time
async def test_thousands_of_requests_behind_a_slow_one_need_no_deep_stack(slow: Service) -> None:
    client = Client(slow)
    client.send(get(b"/first") + get() * 2000)
    slow.is_quick = True
    slow.answer()
    await turns()

    assert client.statuses == [200] * 2001


@in_virtual_time
async def test_a_connection_is_not_read_while_a_second_request_waits_for_the_first(slow: Service) -> None:
    client = Client(slow)
    client.send(get(b"/0"))
    assert client.transport.is_reading  # so that it is noticed if the client goes away
    client.send(get(b"/1"))
    assert not client.transport.is_reading
    client.send(get(b"/2"))
    assert client.unread_byte_size == len(get(b"/2"))

    slow.answer()
    await turns()

    assert [request.path for request in slow.requests] == ["/0", "/1"]
    assert client.unread_byte_size == 0  # the third one waits in its turn
    slow.answer()
    slow.answer()
    assert client.statuses == [200] * 3


@in_virtual_time
async def test_requests_in_many_pieces_are_answered_like_whole_ones(quick: Service) -> None:
    chunked = CHUNKED % (b"/c", b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b")
    client = Client(quick)
    for piece in (1, 7, 1000):
        client.send(get() + chunked + post(b"/p", b"x" * 20_000), piece)
        await turns()

    assert bodies(client) == [b"/a ", b"/c abcde", b"/p " + b"x" * 20_000] * 3
    assert client.admission.held == 0


# What ends a connection, and what does not.


@pytest.mark.parametrize(
    ("version", "connection", "stays"),
    [
        (1, b"", True),
        (1, b"Connection: keep-alive\r\n", True),
        (1, b"Connection: close\r\n", False),
        (0, b"", False),
        (0, b"Connection: keep-alive\r\n", True),
    ],
)
@in_virtual_time
async def test_the_client_decides_whether_the_connection_stays(
    quick: Service, version: int, connection: bytes, stays: bool
) -> None:
    client = Client(quick)
    client.send(b"GET /a HTTP/1.%d\r\n%b\r\n" % (version, connection))

    assert client.transport.received.startswith(b"HTTP/1.%d 200 OK\r\n" % version)
    assert client.is_closed is not stays
    [answer] = client.answers
    says = "keep-alive" if stays and version == 0 else None if stays else "close"
    assert answer.headers.get("connection") == says
    await turns()
    assert client.transport.is_lost is not stays
    assert not client.transport.was_aborted


@in_virtual_time
async def test_nothing_behind_a_last_request_is_answered(quick: Service) -> None:
    client = Client(quick)
    client.send(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n")
    client.send(get(b"/b"))
    await turns()

    assert [request.path for request in quick.requests] == ["/a"]
    assert client.statuses == [200]


@in_virtual_time
async def test_an_offered_upgrade_is_not_taken_up(quick: Service) -> None:
    offer = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    client = Client(quick)
    client.send(b"GET /a HTTP/1.1\r\n%b\r\n" % offer)
    client.send(b"POST /b HTTP/1.1\r\n%bContent-Length: 4\r\n\r\nbody" % offer + get(b"/c"), 9)
    client.send(b"GET /d HTTP/1.1\r\n%b\r\n" % offer * 3000)

    assert bodies(client) == [b"/a ", b"/b body", b"/c ", *[b"/d "] * 3000]


# Answers for clients that wait to be asked for the body.


@in_virtual_time
async def test_a_client_that_asks_is_told_to_send_its_body(quick: Service) -> None:
    client = Client(quick)
    client.send(ASKS % (b"/a", 4))
    assert client.transport.received == CONTINUE

    client.send(b"body")

    assert client.statuses == [100, 200]


@pytest.mark.parametrize("request_line", [b"POST /a HTTP/1.0", b"POST /a HTTP/1.1"])
@in_virtual_time
async def test_who_knows_no_interim_answers_or_sends_no_body_gets_none(
    quick: Service, request_line: bytes
) -> None:
    size = 0 if request_line.endswith(b"1.1") else 4
    client = Client(quick)
    client.send(request_line + b"\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size)
    assert 100 not in client.statuses

    client.send(b"body"[:size])

    assert client.statuses == [200]


@in_virtual_time
async def test_a_client_that_asks_behind_another_request_is_told_when_that_is_answered(slow: Service) -> None:
    client = Client(slow)
    client.send(get() + ASKS % (b"/b", 4))
    assert client.statuses == []

    slow.answer()
    assert client.statuses == [200, 100]
    client.send(b"body")
    slow.answer()

    assert client.statuses == [200, 100, 200]


@in_virtual_time
async def test_a_client_that_does_not_wait_though_it_said_so_is_not_told(slow: Service) -> None:
    client = Client(slow)
    client.send(get() + ASKS % (b"/b", 4) + b"body")
    slow.answer()
    await turns()
    slow.answer()

    assert client.statuses == [200, 200]


@in_virtual_time
async def test_a_body_that_would_be_refused_is_not_asked_for(quick: Service) -> None:
    client = Client(quick)
    client.send(ASKS % (b"/none", 4))

    assert client.statuses == [404]
    assert client.transport.has_ended
    assert quick.requests == []


@in_virtual_time
async def test_a_refusal_of_what_was_asked_waits_for_the_answers_before_it(slow: Service) -> None:
    client = Client(slow)
    client.send(get() + ASKS % (b"/none", 4))
    assert client.statuses == []

    slow.answer()

    assert client.statuses == [200, 404]
    await sleep(QUIET_S * 2)
    assert client.is_closed


# What is no request.


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (RUBBISH, 400),
        (b"GET / FTP/1.1\r\n\r\n", 400),
        (b"BREW / HTTP/1.1\r\n\r\n", 405),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000, 431),
        (post(b"/", b"x" * 2_000_000)[:1000], 400),
    ],
    ids=["rubbish", "version", "method", "length", "coding", "headers", "size"],
)
@in_virtual_time
async def test_what_is_no_request_is_refused_and_the_connection_lingers(
    quick: Service, sent: bytes, status: int
) -> None:
    client = Client(quick)
    client.send(get())
    client.send(sent)

    assert client.statuses == [200, status]
    assert client.answers[-1].headers["connection"] == "close"
    assert client.transport.has_ended
    assert not client.is_closed  # or the client, who may still be sending, would not see the answer
    client.send(get(b"/b") * 1000)
    await sleep(QUIET_S * 1.5)
    assert not client.is_closed
    await sleep(QUIET_S)
    assert client.is_closed
    assert not client.transport.was_aborted
    assert client.statuses == [200, status]
    assert len(quick.requests) == 1


@in_virtual_time
async def test_a_refused_client_that_never_stops_sending_is_left_in_the_end(quick: Service) -> None:
    client = Client(quick)
    client.send(RUBBISH)
    looks = 0
    while not client.is_closed:
        client.send(b"more")
        await sleep(QUIET_S)
        looks += 1

    assert looks <= MOST_LOOKS + 1


@in_virtual_time
async def test_rubbish_behind_requests_is_refused_after_their_answers(slow: Service) -> None:
    client = Client(slow)
    client.send(get(b"/0") + get(b"/1") + RUBBISH)
    assert not client.transport.is_reading
    client.send(b"more rubbish")
    slow.answer()
    assert client.statuses == [200]
    slow.answer()

    assert client.statuses == [200, 200, 400]
    assert client.transport.is_reading  # so that the client is not reset over what it still sends
    await turns()
    assert client.unread_byte_size == 0
    assert client.statuses == [200, 200, 400]


@in_virtual_time
async def test_rubbish_behind_a_last_request_is_not_answered(slow: Service) -> None:
    client = Client(slow)
    client.send(get() + b"GET /b HTTP/1.1\r\nConnection: close\r\n\r\n" + RUBBISH)
    slow.answer()
    slow.answer()
    await turns()

    assert client.statuses == [200, 200]
    assert client.transport.is_lost


@in_virtual_time
async def test_rubbish_behind_a_last_answer_that_is_not_taken_is_not_answered(quick: Service) -> None:
    client = Client(quick, is_tls=True)
    client.transport.is_taken = False
    client.send(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n")
    client.send(RUBBISH)
    client.transport.take()
    await turns()

    assert client.statuses == [200]
    assert client.transport.is_lost


@in_virtual_time
async def test_no_half_of_a_refused_request_is_counted(quick: Service) -> None:
    client = Client(quick)
    client.send(post(b"/a", b"x" * 500_000)[:100_000])
    assert client.admission.held > 90_000

    client.connection.time_out()

    assert client.statuses == [408]
    assert client.admission.held == 0


# Clients that are slow.


@in_virtual_time
async def test_the_next_request_waits_until_the_answer_before_it_is_taken(quick: Service) -> None:
    client = Client(quick)
    client.transport.is_taken = False
    client.send(get(b"/0"))
    client.send(get(b"/1") + get(b"/2"))
    assert [request.path for request in quick.requests] == ["/0"]
    assert not client.transport.is_reading

    client.transport.take()
    await turns()

    assert bodies(client) == [b"/0 ", b"/1 ", b"/2 "]
    assert client.transport.is_reading


@in_virtual_time
async def test_requests_wait_again_if_the_client_stops_reading_in_between(slow: Service) -> None:
    client = Client(slow)
    client.send(get(b"/0") + get(b"/1") + get(b"/2"))
    client.transport.is_taken = False
    slow.is_quick = True
    slow.answer()
    assert [request.path for request in slow.requests] == ["/0"]
    client.transport.take()

    assert client.statuses == [200] * 3


@pytest.mark.parametrize("is_tls", [False, True])
@in_virtual_time
async def test_a_last_answer_is_taken_whole_before_the_connection_ends(quick: Service, is_tls: bool) -> None:
    client = Client(quick, is_tls=is_tls)
    client.transport.is_taken = False
    client.send(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n")
    await sleep(1000)
    assert not client.transport.is_lost
    assert client.is_closed is not is_tls  # TLS would give it only so much time from then on

    client.transport.take()
    await turns()

    assert client.statuses == [200]
    assert client.transport.is_lost
    assert not client.transport.was_aborted


@in_virtual_time
async def test_a_stream_learns_whether_its_client_keeps_up(slow: Service) -> None:
    client = Client(slow)
    client.send(get())
    stream = slow.stream()
    caught_up: list[bool] = []
    stream.on_caught_up = lambda: caught_up.append(stream.is_paused)
    assert stream.write(b"one")
    client.transport.is_taken = False
    assert not stream.write(b"two")
    assert caught_up == []

    client.transport.take()
    assert caught_up == [False]
    stream.end()

    assert bodies(client) == [b"onetwo"]


@in_virtual_time
async def test_a_stream_that_begins_while_the_client_reads_slowly_is_paused(slow: Service) -> None:
    client = Client(slow)
    client.send(get(b"/0"))
    client.transport.is_taken = False
    client.connection.pause_writing()  # over an interim answer, say
    stream = slow.stream()

    assert stream.is_paused


@in_virtual_time
async def test_requests_behind_a_stream_wait_for_its_end(slow: Service) -> None:
    client = Client(slow)
    client.send(get(b"/0") + get(b"/1"))
    stream = slow.stream()
    stream.write(b"piece")
    assert len(slow.requests) == 1
    stream.end()
    slow.answer()

    assert bodies(client) == [b"piece", b"/1 "]


@in_virtual_time
async def test_a_stream_ends_the_connection_of_an_older_client(slow: Service) -> None:
    client = Client(slow)
    client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    stream = slow.stream()
    stream.write(b"one")
    stream.write(b"two")
    assert not client.is_closed
    stream.end()

    assert client.is_closed
    assert client.transport.received.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"keep-alive" not in client.transport.received.lower()
    assert bodies(client) == [b"onetwo"]


# Clients that are gone.


@in_virtual_time
async def test_who_waits_for_a_client_is_told_once_that_it_is_gone(slow: Service) -> None:
    client = Client(slow)
    client.send(post(b"/a", b"body") + post(b"/b", b"more"))
    client.vanish()
    assert slow.losses == 1
    assert client.opened == []
    assert client.admission.held == 4  # of the one that is still worked on

    slow.answer()

    assert client.transport.received == b""
    assert client.admission.held == 0
    assert len(slow.requests) == 1
    assert slow.losses == 1


@in_virtual_time
async def test_who_begins_to_wait_for_a_client_that_is_gone_is_told_at_once(slow: Service) -> None:
    client = Client(slow)
    client.send(get())
    client.vanish()
    told: list[bool] = []

    client.connection.watch(lambda: told.append(True))

    assert told == [True]


@in_virtual_time
async def test_who_has_answered_is_not_told_that_the_client_is_gone(slow: Service) -> None:
    client = Client(slow)
    client.send(get())
    slow.answer()
    client.vanish()

    assert slow.losses == 0


@pytest.mark.parametrize("sent", [b"", HALF, post(b"/a", b"x" * 50_000)[:-1], RUBBISH, get() + RUBBISH])
@in_virtual_time
async def test_a_client_that_is_gone_leaves_nothing_behind(slow: Service, sent: bytes) -> None:
    client = Client(slow)
    client.send(sent)
    client.vanish()
    if slow.is_busy:
        slow.answer()
    await sleep(100)

    assert client.opened == []
    assert client.admission.held == 0
    assert client.connection.progress() is None
    assert client.connection.idle_mark() is None


@in_virtual_time
async def test_a_stream_to_a_client_that_is_gone_is_told_so(slow: Service) -> None:
    client = Client(slow)
    client.send(get())
    stream = slow.stream()
    client.vanish()
    assert slow.losses == 1
    assert not stream.is_open
    assert stream.write(b"for nobody")
    stream.end()

    assert client.answers[0].body is None


# Clients that end their side, and may wait for the answer.


@in_virtual_time
async def test_who_ends_its_side_between_requests_is_parted_with(quick: Service) -> None:
    client = Client(quick)
    client.send(get())
    client.end()

    assert client.is_closed


@in_virtual_time
async def test_half_a_request_before_the_end_is_dropped(quick: Service) -> None:
    client = Client(quick)
    client.send(post(b"/a", b"x" * 50_000)[:-1])
    client.end()
    await turns()

    assert client.transport.received == b""
    assert client.transport.is_lost
    assert client.admission.held == 0


@pytest.mark.parametrize("version", [0, 1])
@in_virtual_time
async def test_who_ends_its_side_gets_the_answer(
    slow: Service, version: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    client = Client(slow, end=ends[1])
    client.send(b"GET /a HTTP/1.%d\r\nConnection: keep-alive\r\n\r\n" % version)
    client.end()
    interim = CONTINUE if version else b""  # is refused by the system of one that is gone
    assert client.transport.received == interim
    await sleep(60)
    assert not client.is_closed
    assert slow.losses == 0

    slow.answer()
    await turns()

    assert client.statuses == [*([100] if version else []), 200]
    assert client.transport.is_lost
    assert not client.transport.was_aborted


@in_virtual_time
async def test_who_turns_out_to_be_gone_behind_the_end_of_its_side_is_noticed(slow: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        end, _ = listening.accept()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with end:
        client = Client(slow, end=end)
        client.send(get())
        client.end()
        await sleep(10)
        assert slow.losses == 0
        peer.close()  # which resets the connection
        reset = select.poll()
        reset.register(end, 0)
        assert reset.poll(20_000)
        await sleep(2)

        assert slow.losses == 1
        assert client.transport.was_aborted


@in_virtual_time
async def test_all_requests_before_the_end_of_a_side_are_answered(
    slow: Service, ends: tuple[socket.socket, socket.socket]
) -> None:
    client = Client(slow, end=ends[1])
    client.send(get(b"/0") + get(b"/1") + get(b"/2"))
    client.end()
    for _ in range(3):
        slow.answer()
        await turns()

    assert [status for status in client.statuses if status != 100] == [200] * 3
    assert client.transport.is_lost


@in_virtual_time
async def test_a_refusal_behind_an_answer_is_not_given_to_who_ends_its_side_in_the_midst(
    slow: Service, ends: tuple[socket.socket, socket.socket]
) -> None:
    client = Client(slow, end=ends[1])
    client.send(get() + HALF)
    client.end()
    client.connection.time_out()
    slow.answer()
    await turns()

    assert client.statuses == [100, 200]
    assert client.transport.is_lost


@in_virtual_time
async def test_who_is_gone_behind_the_end_of_its_side_is_looked_for_no_longer(slow: Service) -> None:
    client = Client(slow)
    client.send(get())
    client.end()
    client.vanish()
    await sleep(60)

    assert not client.transport.was_aborted


@in_virtual_time
async def test_a_connection_that_is_read_again_is_not_looked_at(
    slow: Service, ends: tuple[socket.socket, socket.socket]
) -> None:
    client = Client(slow, end=ends[1])
    client.send(get(b"/0") + get(b"/1"))
    slow.answer()
    await turns()
    ends[0].shutdown(socket.SHUT_WR)  # which the loop would have noticed
    await sleep(10)

    assert client.statuses == [200]


@pytest.mark.parametrize("is_stream", [False, True], ids=["TLS", "stream"])
@in_virtual_time
async def test_the_end_of_a_side_is_that_of_a_stream_and_of_tls(slow: Service, is_stream: bool) -> None:
    client = Client(slow, is_tls=not is_stream)
    client.send(get())
    if is_stream:
        slow.stream()
    client.end()
    await turns()

    assert client.transport.is_lost
    assert slow.losses == 1


@pytest.mark.parametrize("ending", ["ends its side", "is gone"])
@in_virtual_time
async def test_the_end_of_a_connection_that_is_not_read_is_noticed(
    slow: Service, ending: str, ends: tuple[socket.socket, socket.socket]
) -> None:
    theirs, ours = ends
    client = Client(slow, end=ours)
    client.send(get(b"/0") + get(b"/1"))  # the second one waits, so nothing is read
    await sleep(10)
    assert slow.losses == 0
    if ending == "is gone":
        theirs.close()
    else:
        theirs.shutdown(socket.SHUT_WR)
    await sleep(1)

    assert slow.losses == (ending == "is gone")
    assert client.transport.received == (b"" if slow.losses else CONTINUE)
    await sleep(10)
    assert client.transport.received.count(CONTINUE) == (not slow.losses)  # it is asked once


@in_virtual_time
async def test_a_stream_of_a_client_that_ended_its_side_while_not_read_goes_on(
    slow: Service, ends: tuple[socket.socket, socket.socket]
) -> None:
    client = Client(slow, end=ends[1])
    client.send(get(b"/0") + get(b"/1"))
    stream = slow.stream()
    ends[0].shutdown(socket.SHUT_WR)
    await sleep(2)
    stream.end()

    assert CONTINUE not in client.transport.received  # it would be in the midst of the body


# Room for requests.


@in_virtual_time
async def test_a_connection_is_not_read_while_there_is_no_room(slow: Service) -> None:
    admission = Admission(100_000)
    admission.hold(90_000)
    client = Client(slow, admission)
    client.send(post(b"/a", b"x" * 50_000), 10_000)
    assert not client.transport.is_reading
    assert slow.requests == []

    admission.release(90_000)
    await turns()
    slow.answer()

    assert client.statuses == [200]
    assert admission.held == 0


@in_virtual_time
async def test_a_whole_request_waits_for_room_too(slow: Service) -> None:
    admission = Admission(100)
    admission.hold(90)
    client = Client(slow, admission)
    client.send(post(b"/a", b"x" * 50))
    assert slow.requests == []
    admission.release(90)

    assert len(slow.requests) == 1
    assert client.transport.is_reading


@in_virtual_time
async def test_a_request_that_is_all_that_is_held_needs_no_room(quick: Service) -> None:
    client = Client(quick, Admission(100))
    client.send(post(b"/a", b"x" * 50_000), 1000)
    client.send(post(b"/a", b"x" * 5000) * 2)

    assert client.statuses == [200] * 3


@pytest.mark.parametrize("size", [50, 500_000], ids=["a whole request", "in the midst of a body"])
@in_virtual_time
async def test_a_request_that_finds_no_room_for_long_is_refused(slow: Service, size: int) -> None:
    admission = Admission(100, patience_s=5)
    admission.hold(90)
    client = Client(slow, admission)
    client.send(post(b"/a", b"x" * size)[:60_000])
    await sleep(4.9)
    assert client.statuses == []
    await sleep(0.2)

    [answer] = client.answers
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert f"request of {size} bytes refused".encode() in (answer.body or b"")
    assert b"--max-inflight-bytes is 100" in (answer.body or b"")
    assert slow.requests == []
    assert admission.held == 90
    assert client.transport.is_reading
    client.send(b"x" * 100)  # it may still be sending, and is not reset over it
    admission.release(90)
    await sleep(60)
    assert client.transport.is_lost
    assert client.statuses == [503]


@in_virtual_time
async def test_who_runs_while_its_next_request_finds_no_room_is_answered_before_the_refusal(
    slow: Service,
) -> None:
    admission = Admission(100, patience_s=5)
    admission.hold(90)
    client = Client(slow, admission)
    client.send(get(b"/0") + post(b"/1", b"x" * 50))
    await sleep(6)
    assert client.statuses == []
    slow.answer()

    assert client.statuses == [200, 503]
    assert admission.held == 90


@in_virtual_time
async def test_room_that_comes_while_another_request_runs_lets_its_next_one_in(slow: Service) -> None:
    admission = Admission(100)
    admission.hold(90)
    client = Client(slow, admission)
    client.send(get(b"/0") + post(b"/1", b"x" * 50)[:-1])
    assert not client.transport.is_reading
    admission.release(90)
    assert client.transport.is_reading
    client.send(b"x")
    assert not client.transport.is_reading
    slow.answer()
    await turns()
    slow.answer()

    assert client.statuses == [200, 200]
    assert client.transport.is_reading


@in_virtual_time
async def test_a_continue_is_not_sent_while_there_is_no_room(quick: Service) -> None:
    admission = Admission(100)
    admission.hold(90)
    client = Client(quick, admission)
    client.send(ASKS % (b"/a", 50))
    assert client.transport.received == b""
    admission.release(90)
    assert client.transport.received == CONTINUE
    client.send(b"x" * 50)

    assert client.statuses == [100, 200]


@in_virtual_time
async def test_a_client_that_leaves_waits_for_room_no_longer(slow: Service, quick: Service) -> None:
    admission = Admission(100)
    admission.hold(90)
    client, other = Client(slow, admission), Client(quick, admission)
    client.send(post(b"/a", b"x" * 50_000))
    other.send(post(b"/b", b"x" * 50_000))
    client.vanish()
    assert admission.held == 50_090
    admission.release(90)
    await sleep(1)

    assert slow.requests == []
    assert client.transport.received == b""
    assert other.statuses == [200]  # it may be larger than the limit when nothing else is held


@in_virtual_time
async def test_a_client_that_is_not_read_for_lack_of_room_is_not_waited_for(slow: Service) -> None:
    admission = Admission(100)
    admission.hold(90)
    client = Client(slow, admission)
    client.send(post(b"/a", b"x" * 50)[:-1])
    swept(client, 100)
    assert client.statuses == []
    client.connection.on_refusal(refusal(408, "all the same", False))
    admission.release(90)

    assert client.statuses == [408]
    assert client.transport.is_reading


# A server that stops.


@in_virtual_time
async def test_an_idle_connection_of_a_stopping_server_ends(
    quick: Service, ends: tuple[socket.socket, socket.socket]
) -> None:
    client = Client(quick, end=ends[1])
    client.send(get())
    client.connection.drain()

    assert client.is_closed
    assert ends[0].recv(1) == b""  # told at once, not when the transport comes to it


@in_virtual_time
async def test_a_request_that_has_arrived_but_was_not_read_is_answered_by_a_stopping_server(
    quick: Service, ends: tuple[socket.socket, socket.socket]
) -> None:
    client = Client(quick, end=ends[1])
    ends[0].send(get())
    client.connection.drain()
    assert not client.is_closed
    client.send(get())

    assert client.answers[0].headers["connection"] == "close"
    assert client.is_closed


@in_virtual_time
async def test_what_is_under_way_in_a_stopping_server_is_answered_and_nothing_behind_it(
    slow: Service,
) -> None:
    client = Client(slow)
    client.send(get(b"/0") + get(b"/1"))
    client.connection.drain()
    assert not client.is_closed
    slow.answer()
    await turns()

    assert client.statuses == [200]
    assert client.answers[0].headers["connection"] == "close"
    assert client.transport.is_lost
    assert len(slow.requests) == 1


@in_virtual_time
async def test_a_request_that_has_begun_to_arrive_is_answered_by_a_stopping_server(quick: Service) -> None:
    client = Client(quick)
    request = post(b"/a", b"body")
    client.send(request[:-2])
    client.connection.drain()
    assert not client.is_closed
    client.send(request[-2:])

    assert client.answers[0].headers["connection"] == "close"
    assert client.is_closed


@in_virtual_time
async def test_a_stopping_server_answers_no_more_of_what_came_in_one_piece(quick: Service) -> None:
    client = Client(quick)
    client.send(HALF)
    client.connection.drain()
    client.send((get() * 3)[len(HALF) :])

    assert client.statuses == [200]
    assert len(quick.requests) == 1


@in_virtual_time
async def test_a_stopping_server_lingers_no_longer(quick: Service) -> None:
    client = Client(quick)
    client.send(RUBBISH)
    for _ in range(4):
        client.send(b"more")
        await sleep(QUIET_S)
    assert not client.is_closed
    client.connection.drain()
    client.send(b"more")
    await sleep(QUIET_S)

    assert client.is_closed


# Clients that keep the connection waiting.


def swept(client: Client, times: int, idle_timeout_s: float = 0) -> None:
    sweeper = Sweeper([client.connection], client.port.quiet_order, idle_timeout_s)
    for _ in range(times):
        sweeper.sweep()


@in_virtual_time
async def test_headers_that_do_not_come_in_time_are_refused_however_they_trickle_in(quick: Service) -> None:
    client = Client(quick)
    sweeper = Sweeper([client.connection], client.port.quiet_order)
    client.send(get()[:-2])
    for _ in range(STALLED_SWEEPS + 1):
        assert client.statuses == []
        client.send(b"X: y\r\n")
        sweeper.sweep()

    assert client.statuses == [408]


@in_virtual_time
async def test_a_body_may_take_its_time_as_long_as_it_moves(quick: Service) -> None:
    client = Client(quick)
    sweeper = Sweeper([client.connection], client.port.quiet_order)
    request = post(b"/a", b"x" * 100)
    client.send(request[:-20])
    for at in range(20, 0, -1):
        sweeper.sweep()
        client.send(request[-at:][:1])
    assert client.statuses == [200]
    client.send(request[:-20])
    for _ in range(STALLED_SWEEPS + 1):
        sweeper.sweep()

    assert client.statuses == [200, 408]


@in_virtual_time
async def test_a_client_that_takes_nothing_of_its_answer_is_dropped(quick: Service) -> None:
    client = Client(quick)
    client.transport.is_taken = False
    client.send(get())
    swept(client, STALLED_SWEEPS)
    assert not client.is_closed
    swept(client, STALLED_SWEEPS + 1)

    assert client.transport.was_aborted


@pytest.mark.parametrize("asked", [False, True])
@in_virtual_time
async def test_a_client_that_asks_nothing_for_long_is_parted_with(quick: Service, asked: bool) -> None:
    client = Client(quick)
    client.send(get() if asked else b"")
    assert client.connection.has_asked is asked
    assert client.connection.is_quiet
    swept(client, 100)
    assert not client.is_closed
    swept(client, 3, idle_timeout_s=20)

    assert client.is_closed
    assert not client.transport.was_aborted


@in_virtual_time
async def test_a_client_that_is_waited_for_by_nobody_is_left_alone(slow: Service) -> None:
    client = Client(slow)
    client.send(get())
    assert not client.connection.is_quiet
    swept(client, 100, idle_timeout_s=1)
    client.send(get() + HALF)  # it is not read, and so not waited for either
    swept(client, 100, idle_timeout_s=1)
    slow.answer()
    await turns()
    slow.answer()

    assert client.statuses == [200, 200]


@pytest.mark.parametrize(
    ("sent", "is_quiet"),
    [(b"", True), (HALF, True), (post(b"/a", b"xy")[:-1], False), (get(), False)],
    ids=["silent", "in a head", "in a body", "asked"],
)
@in_virtual_time
async def test_a_connection_is_quiet_until_a_head_is_complete(
    slow: Service, sent: bytes, is_quiet: bool
) -> None:
    client = Client(slow)
    client.send(sent)

    assert client.connection.is_quiet is is_quiet


@in_virtual_time
async def test_another_handler_may_take_over(slow: Service, quick: Service) -> None:
    client = Client(slow)
    client.connection.restrict(quick)
    client.send(get())

    assert len(quick.requests) == 1
    assert slow.requests == []


# What handlers may do.


@in_virtual_time
async def test_a_second_answer_goes_nowhere(slow: Service) -> None:
    client = Client(slow)
    client.send(get())
    slow.answer()
    slow.answer()
    client.connection.write_parts(b"more", [b"parts"], 5)

    assert client.statuses == [200]
    assert client.connection.current is None
    assert not client.connection.keep_alive


@pytest.mark.parametrize("size", [10, 1_000_000])
@in_virtual_time
async def test_an_answer_in_parts_arrives_whole(slow: Service, size: int) -> None:
    client = Client(slow)
    client.send(get())
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * size)
    client.connection.write_parts(head, [b"a" * size, memoryview(b"b" * size)], 2 * size)
    client.send(get())
    slow.answer()

    assert bodies(client) == [b"a" * size + b"b" * size, b"/a "]


@in_virtual_time
async def test_an_older_client_reads_its_own_words_in_parts_too(slow: Service) -> None:
    client = Client(slow)
    client.send(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    client.connection.write_parts(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", [b"ab"], 2)

    assert client.transport.received == (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nab"
    )


class Trace:
    """Keeps what is reported; stands for a `RequestTrace`."""

    def __init__(self) -> None:
        self.activities: list[str] = []

    def report_activity(self, activity: str) -> None:
        self.activities.append(activity)


@in_virtual_time
async def test_a_trace_sees_when_one_answer_is_sent_and_no_other(slow: Service) -> None:
    client = Client(slow)
    client.send(get() + get())
    trace = Trace()
    client.connection.follow(trace)  # type: ignore[arg-type]
    slow.answer()
    slow.answer()

    assert trace.activities == ["HTTP_SEND_START", "HTTP_SEND_END"]
    assert client.connection.trace is None


@in_virtual_time
async def test_a_trace_of_a_stream_is_left_to_who_writes_it(slow: Service) -> None:
    client = Client(slow)
    client.send(get())
    trace = Trace()
    client.connection.follow(trace)  # type: ignore[arg-type]
    slow.stream().end()

    assert trace.activities == []
    assert client.connection.trace is None


class Log:
    """Keeps what it is told; stands for an `AccessLog`, and for its notes."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def begin(self, peer: object, request: object) -> Log:
        self.lines.append((peer, getattr(request, "path", None)))
        return self

    def end(self, response: bytes, byte_size: int, request_id: str = "") -> None:
        self.lines.append((response[9:12], byte_size, request_id))


@in_virtual_time
async def test_each_answer_has_its_line_in_the_access_log(slow: Service) -> None:
    log = Log()
    client = Client(slow, access_log=log)
    client.send(get(b"/0"))
    client.connection.request_id = "7"
    slow.answer()
    client.send(get(b"/1"))
    stream = slow.stream()
    stream.write(b"abc")
    stream.end()
    client.send(RUBBISH)
    sizes = [len(part) for part in client.transport.received.split(b"HTTP/1.1 ")]
    peer = ("10.0.0.7", 51224)
    whole = len(b"HTTP/1.1 ")

    assert log.lines == [
        (peer, "/0"),
        (b"200", sizes[1] + whole, "7"),
        (peer, "/1"),
        (b"200", sizes[2] + whole - len(b"3\r\n\r\n0\r\n\r\n"), ""),
        (peer, None),
        (b"400", sizes[3] + whole, ""),
    ]


@in_virtual_time
async def test_an_answer_that_nobody_takes_has_a_line_too(slow: Service) -> None:
    log = Log()
    client = Client(slow, access_log=log)
    client.send(get())
    client.vanish()
    slow.answer()

    assert log.lines[1:] == [(b"200", 0, "")]


def test_the_answers_of_a_test_are_read_right() -> None:
    streamed = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    plain = b"HTTP/1.1 204 X\r\nContent-Length: 1\r\n\r\nd"
    answers = answers_in(streamed + CONTINUE + plain + streamed[:-5])

    assert [(answer.status, answer.body) for answer in answers] == [
        (200, b"abc"),
        (100, b""),
        (204, b"d"),
        (200, None),
    ]


# Everything in any order.

SENT = {
    "get": GET,
    "small": POST.replace(b"%d", b"3") % (b"%b", b"abc"),
    "large": POST.replace(b"%d", b"20000") % (b"%b", b"x" * 20_000),
    "chunked": CHUNKED % (b"%b", b"3\r\nabc\r\n0"),
    "asks": ASKS.replace(b"%d", b"3") + b"abc",  # it does not wait
    "older": b"GET %b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "last": b"GET %b HTTP/1.1\r\nConnection: close\r\n\r\n",
}
STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 30_000)),
    st.tuples(st.just("pass"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["answer", "answer", "stream", "stop", "take", "crowd", "leave"]), st.just(0)),
)
ENDS = st.sampled_from(["all", "vanish", "end", "drain", "time out"])


class Scenario:
    """Does what the steps say to a client, and checks what must be true after each."""

    def __init__(self, kinds: list[str], end: socket.socket) -> None:
        self.admission = Admission(30_000, patience_s=6)
        self.service = Service(is_quick=False)
        self.client = Client(self.service, self.admission, end=end)
        self.to_send = b"".join(SENT[kind] % b"/%d" % number for number, kind in enumerate(kinds))
        count = kinds.index("last") + 1 if "last" in kinds else len(kinds)
        self.expected = [f"/{number}" for number in range(count)]
        self.crowd = 0

    def do(self, step: str, amount: int) -> None:
        client, service = self.client, self.service
        match step:
            case "send":
                client.send(self.to_send[:amount])
                self.to_send = self.to_send[amount:]
            case "answer" if service.is_busy:
                service.answer()
            case "stream" if service.is_busy and not service.requests[-1].is_http_1_0:
                stream = service.stream()
                stream.write(b"streamed")
                stream.end()
            case "stop":
                client.transport.is_taken = False
            case "take":
                client.transport.take()
            case "crowd":
                self.admission.hold(25_000)
                self.crowd += 25_000
            case "leave":
                self.disperse()

    def disperse(self) -> None:
        """All others leave."""
        left, self.crowd = self.crowd, 0
        self.admission.release(left)

    def check(self) -> None:
        paths = [request.path for request in self.service.requests]
        assert paths == self.expected[: len(paths)]
        finals = [answer for answer in self.client.answers if answer.status != 100]
        assert len([answer for answer in finals if answer.status == 200]) <= self.service.answers
        assert [answer.status for answer in finals[:-1]] == [200] * (len(finals) - 1)
        assert self.admission.held >= self.crowd

    async def finish(self, end: str) -> None:
        client, service = self.client, self.service
        match end:
            case "vanish":
                client.vanish()
            case "drain":
                client.connection.drain()
            case "time out":
                client.connection.time_out()
        self.disperse()
        for _ in range(2 * len(self.expected) + 2):
            client.transport.take()
            await turns()
            client.send(self.to_send)
            self.to_send = b""
            if service.is_busy:
                service.answer()
            self.check()
        if end == "end":
            client.end()
        await sleep(100)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(sorted(SENT)), min_size=1, max_size=6), st.lists(STEPS, max_size=25), ENDS)
def test_requests_are_answered_once_and_in_order_whatever_happens(
    kinds: list[str], steps: list[tuple[str, int]], end: str
) -> None:
    theirs, ours = socket.socketpair()

    async def main(_: object) -> None:
        scenario = Scenario(kinds, ours)
        client, service = scenario.client, scenario.service
        for step, amount in steps:
            scenario.do(step, amount)
            if step == "pass":
                await sleep(amount)
            scenario.check()
        await scenario.finish(end)

        statuses = [status for status in client.statuses if status != 100]
        if end in ("all", "end") and 503 not in statuses:
            assert [request.path for request in service.requests] == scenario.expected
            assert statuses == [200] * len(scenario.expected)
        assert not service.is_busy
        assert scenario.admission.held == 0
        is_last = "last" in kinds or end != "all" or 503 in statuses
        assert client.transport.is_lost is is_last or end == "time out"
        assert client.transport.is_lost or client.transport.is_reading
        client.vanish()
        assert client.opened == []
        assert client.port.unread._unread == {}
        assert service.losses <= 1

    with theirs, ours:
        run(main)
