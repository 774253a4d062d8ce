"""How far a sender may be ahead, and which threads wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from tritonpy.ipc import window
from tritonpy.ipc.window import MOST_BYTE_SIZE, MOST_RESPONSES, SendWindow, execute_several


class Permission(threading.Event):
    """An answer to come, and how long it was waited for each time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits_s.append(timeout)
        return super().wait(timeout)


class Server:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Permission] = []
        self.is_asked = threading.Event()

    def ask(self) -> Permission:
        self.asked.append(Permission())
        self.is_asked.set()
        return self.asked[-1]


def on_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def fill(own: SendWindow, server: Server, count: int = MOST_RESPONSES, byte_size: int = 0) -> None:
    for _ in range(count):
        own.wait()
        own.sent(byte_size, server.ask)


def test_a_sender_asks_at_half_of_its_window_and_waits_at_the_end_of_it() -> None:
    own, server = SendWindow(), Server()
    fill(own, server, MOST_RESPONSES // 2 - 1)
    assert server.asked == []
    fill(own, server, MOST_RESPONSES // 2 + 1)
    assert len(server.asked) == 1

    sender = on_thread(own.wait)
    sender.join(0.05)
    was_waiting = sender.is_alive()
    server.asked[0].set()
    sender.join(20)

    assert was_waiting
    assert not sender.is_alive()


def test_whether_a_sender_would_wait_can_be_asked() -> None:
    own, server = SendWindow(), Server()
    fill(own, server, MOST_RESPONSES - 1)
    before = own.is_full

    fill(own, server, 1)

    assert (before, own.is_full) == (False, True)
    server.asked[0].set()
    assert not own.is_full


def test_a_sender_whose_client_keeps_up_never_waits() -> None:
    own, server = SendWindow(), Server()
    for _ in range(10 * MOST_RESPONSES):
        own.wait()
        own.sent(10, server.ask)
        for permission in server.asked:
            permission.set()

    assert len(server.asked) == 20


def test_bytes_count_as_well() -> None:
    own, server = SendWindow(), Server()
    own.wait()
    own.sent(MOST_BYTE_SIZE * 3, server.ask)

    sender = on_thread(own.wait)
    sender.join(0.05)
    was_waiting = sender.is_alive()
    server.asked[0].set()
    sender.join(20)

    assert was_waiting


def test_a_thread_that_executes_several_requests_waits_for_a_moment_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window, "_MOMENT_S", 0.05)
    own, server = SendWindow(), Server()

    def execute() -> None:
        execute_several(True)
        fill(own, server)
        for _ in range(3):
            own.wait()

    on_thread(execute).join(20)

    assert [permission.waits_s for permission in server.asked] == [[0.05]]


def test_so_does_one_that_answers_another_open_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_MOMENT_S", 0.01)
    own, other, server = SendWindow(), SendWindow(), Server()

    def answer() -> None:
        other.wait()
        other.sent(1, server.ask)
        fill(own, server)
        own.wait()

    sender = on_thread(answer)
    sender.join(20)

    assert not sender.is_alive()


def test_so_does_an_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_MOMENT_S", 0.01)
    own, server = SendWindow(), Server()

    async def answer() -> None:
        fill(own, server)
        own.wait()

    sender = on_thread(lambda: asyncio.run(answer()))
    sender.join(20)

    assert not sender.is_alive()


def test_requests_one_after_the_other_are_not_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_MOMENT_S", 0.01)
    before, own, server = SendWindow(), SendWindow(), Server()

    def answer() -> None:
        before.wait()
        before.sent(1, server.ask)
        before.end()
        fill(own, server)
        own.wait()

    sender = on_thread(answer)
    assert server.is_asked.wait(20)
    sender.join(0.1)
    was_waiting = sender.is_alive()
    server.asked[0].set()
    sender.join(20)

    assert was_waiting
