"""A worker's channel that is lent to the executor of its instance: who reads what, and sends how."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import pytest
from tritonpy.errors import Unavailable
from tritonpy.ipc import frame
from tritonpy.ipc.channel import WorkerChannel
from tritonpy.ipc.frame import FrameReader, Message, encode_frame
from tritonpy.workers.child.inbox import WorkerInbox
from tritonpy.workers.child.server_link import WorkerLink
from tritonpy_sdk.testing import DEADLINE_S


class Executor:
    """Reads nothing by itself: the test says what it leaves, and sees what is written."""

    def __init__(self, frame_version: int = frame.FRAME_VERSION) -> None:
        self.frame_version = frame_version
        self.attached: tuple[int, bytes, int, int] | None = None
        self.commands: SimpleQueue[bytes | None] = SimpleQueue()
        self.replies: SimpleQueue[bytes | None] = SimpleQueue()
        self.written: SimpleQueue[bytes] = SimpleQueue()
        self.running_batch = 0

    def attach(
        self, descriptor: int, received: bytes, cancel_flags: memoryview, inline_byte_size: int
    ) -> None:
        self.attached = descriptor, received, len(cancel_flags), inline_byte_size

    def next(self) -> bytes | None:
        return self.commands.get(timeout=DEADLINE_S)

    def next_reply(self) -> bytes | None:
        return self.replies.get(timeout=DEADLINE_S)

    def write(self, frame: bytes) -> None:
        self.written.put(frame)

    def close(self) -> None:
        pass

    def sent(self) -> Message:
        (message,) = FrameReader().feed(self.written.get(timeout=DEADLINE_S))
        return message


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, WorkerChannel]]:
    server, worker = socket.socketpair()
    segments, theirs = socket.socketpair()
    channel = WorkerChannel(worker, theirs)
    channel._cancel_flags = memoryview(bytearray(8))  # which a server shares at the start
    yield server, channel
    channel.close()
    server.close()
    segments.close()


def test_the_executor_goes_on_where_the_channel_was_read_to(
    ends: tuple[socket.socket, WorkerChannel], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, channel = ends
    forgotten: list[int] = []
    monkeypatch.setattr(channel.endpoint.peer, "forget", forgotten.append)
    inbox, executor = WorkerInbox(channel), Executor()
    probe, finalize = encode_frame((frame.PROBE, ())), encode_frame((frame.FINALIZE, ()))
    server.sendall(probe + probe + finalize[:3])
    assert inbox.next_command() == (frame.PROBE, ())

    assert inbox.lend_to(executor)

    assert executor.attached == (channel.fileno(), finalize[:3], 8, 16 * 1024)
    assert inbox.next_command() == (frame.PROBE, ())  # it had been read, too
    executor.commands.put(encode_frame((frame.FORGET, (), 3)))  # which only the channel heeds
    executor.commands.put(finalize)
    assert inbox.next_command() == (frame.FINALIZE, ())
    assert forgotten == [3]
    executor.commands.put(None)
    assert inbox.next_command() is None
    channel.send(frame.STARTED)
    assert executor.sent() == (frame.STARTED, ())


def test_questions_are_answered_while_the_executor_is_busy(
    ends: tuple[socket.socket, WorkerChannel],
) -> None:
    _, channel = ends
    inbox, executor = WorkerInbox(channel), Executor()
    link = WorkerLink(channel, inbox)
    assert inbox.lend_to(executor)
    busy = threading.Thread(target=inbox.next_command, daemon=True)
    busy.start()

    first = link.ask("what")
    _, _, number, *_ = executor.sent()
    executor.replies.put(encode_frame((frame.ANSWER, (), number, 5, None)))
    assert first.result(DEADLINE_S) == 5
    second = link.ask("what else")
    executor.replies.put(None)
    with pytest.raises(Unavailable):
        second.result(DEADLINE_S)
    executor.commands.put(None)
    busy.join(DEADLINE_S)
    assert not busy.is_alive()


def test_it_is_not_lent_while_an_answer_is_expected_that_another_thread_would_read(
    ends: tuple[socket.socket, WorkerChannel],
) -> None:
    server, channel = ends
    inbox, executor = WorkerInbox(channel), Executor()
    answer = WorkerLink(channel, inbox).ask("what")
    _, _, number, *_ = FrameReader().feed(server.recv(4096))[0]

    assert not inbox.lend_to(executor)

    assert executor.attached is None
    server.sendall(encode_frame((frame.ANSWER, (), number, 5, None)))
    assert answer.result(DEADLINE_S) == 5


def test_an_executor_of_other_frames_gets_no_channel(
    ends: tuple[socket.socket, WorkerChannel], caplog: pytest.LogCaptureFixture
) -> None:
    server, channel = ends
    older, newer, oldest = Executor(frame.FRAME_VERSION - 1), Executor(frame.FRAME_VERSION + 1), Executor()
    del oldest.frame_version  # from before there was one
    inbox = WorkerInbox(channel)

    for executor in (older, newer, oldest):
        assert not inbox.lend_to(executor)
        assert executor.attached is None
    assert f"have version {frame.FRAME_VERSION}" in caplog.text
    assert f"reads version {newer.frame_version}" in caplog.text
    server.sendall(encode_frame((frame.PROBE, ())))
    assert inbox.next_command() == (frame.PROBE, ())
