"""Inbox of a worker: the thread that waits for a message reads for all the others.

A regular model has one thread, and it must not pay for others: it reads the next batch, executes, answers.
But a model that calls another model waits for the answer in the middle of `execute`, perhaps on several
threads and an event loop at once, while only one thread can read. So the first one that waits reads for all.
It hands replies to those they belong to, keeps batches for the session, and when it has what it waited for it
wakes one of the others to read on. No thread exists only to read.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from .channel import Channel, Message, frame

if TYPE_CHECKING:
    import asyncio

_DONT_WAIT = getattr(socket, "MSG_DONTWAIT", 0)


_GLANCE_S = 0.01
_COMMANDS = frozenset(
    (frame.SETUP, frame.COMPLETE, frame.INITIALIZE, frame.EXECUTE, frame.FINALIZE, frame.PROBE)
)


class ServerGone(ConnectionError):
    """The server has closed the channel: there will be no answer."""


class Waiter:
    """A thread or coroutine that waits for messages.

    Attributes:
        messages: what has come and has not been taken.
        notify: for one on an event loop: called, from any thread, when there is something new.
    """

    __slots__ = ("gate", "messages", "notify")

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.notify: Callable[[], None] | None = None
        self.gate: threading.Lock | None = None  # made when its thread has to sleep; locked while it may

    def wake(self) -> None:
        """Let its thread look again."""
        gate = self.gate
        if gate is not None and gate.locked():
            with suppress(RuntimeError):  # another thread was quicker
                gate.release()


class Inbox:
    """Passes each message to the thread that waits for it; from any thread."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.start_anew()

    def start_anew(self) -> None:
        """Forget all waiting and reading threads; in a forked child, where they do not exist."""
        self._session = Waiter()
        self._abandoned: deque[int] = deque()
        self._is_closed = False
        self._lock = threading.Lock()  # guards all below
        self._is_read = False
        self._sleepers: deque[Waiter] = deque()
        self._replies: dict[int, Waiter] = {}
        self._loops: dict[asyncio.AbstractEventLoop, int] = {}
        self._number = 0

    def next_command(self) -> Message | None:
        """Wait for the session's next message; None when the server has closed the channel."""
        commands = self._session.messages
        if not commands:
            if not self._replies and (command := self._only_command()) is not None:
                return command
            self._wait(self._session)
        return commands.popleft() if commands else None

    def _only_command(self) -> Message | None:
        """The short way for a model that calls no other: read once, take what came; None for the long one."""
        lock = self._lock
        with lock:
            if self._is_read or self._is_closed:
                return None
            self._is_read = True
        command: Message | None = None
        try:
            messages = self._channel.receive_many()
            if messages and len(messages) == 1 and messages[0][0] in _COMMANDS:
                command = messages[0]
            else:
                self._route(messages)
        finally:
            with lock:
                self._is_read = False
                if self._sleepers:
                    self._wake_next_reader()
        return command

    def open(self) -> tuple[int, Waiter]:
        """A number for a question or a call, and where its replies will come; `close` it in the end.

        Raises:
            ServerGone: there will be none.
        """
        waiter = Waiter()
        with self._lock:
            if self._is_closed:
                raise ServerGone("the server is gone")
            self._number = number = self._number % 0x7FFFFFFF + 1
            self._replies[number] = waiter
        return number, waiter

    def close(self, number: int) -> None:
        """No more replies to this number are wanted; those that come are dropped."""
        with self._lock:
            waiter = self._replies.pop(number, None)
        if waiter is not None:
            while waiter.messages:
                self._drop(waiter.messages.popleft())

    def abandon(self, number: int) -> None:
        """The same from a finalizer, which may run anywhere: done when the next messages come."""
        self._abandoned.append(number)

    def next_reply(self, waiter: Waiter) -> Message:
        """Wait, on this thread, for the next reply.

        Raises:
            ServerGone: it will never come.
        """
        messages = waiter.messages
        if not messages:
            self._wait(waiter)
        if not messages:
            raise ServerGone("the server is gone")
        return messages.popleft()

    def has_reply_within(self, waiter: Waiter, timeout: float) -> bool:
        """Wait, on this thread, for the next reply no longer than this; read meanwhile unless others do."""
        until = time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        while not waiter.messages and not self._is_closed and (left_s := until - time.monotonic()) > 0:
            self._read_now()
            if self._is_read:  # by a thread that hands on what comes, and may cease at any time
                time.sleep(min(_GLANCE_S, left_s))
            elif not waiter.messages:
                poll.poll(min(_GLANCE_S, left_s) * 1000)
        return bool(waiter.messages) or self._is_closed

    async def next_reply_async(self, waiter: Waiter) -> Message:
        """The same on the running event loop, which reads the channel itself when no thread does."""
        from asyncio import get_running_loop  # late: slow to import, and most models do without

        loop = get_running_loop()
        messages = waiter.messages
        if not messages:
            self._enter(loop)
            try:
                while not messages and not self._is_closed:
                    news = loop.create_future()
                    waiter.notify = _notifier(loop, news)
                    if not messages and not self._is_closed:  # what had come by now has woken no one
                        await news
            finally:
                waiter.notify = None
                self._leave(loop)
        if not messages:
            raise ServerGone("the server is gone")
        return messages.popleft()

    # Reading.

    def _wait(self, waiter: Waiter) -> None:
        """Return once there is a message, or never will be; read meanwhile, or sleep while another does."""
        while True:
            with self._lock:
                if waiter.gate is not None and waiter in self._sleepers:
                    self._sleepers.remove(waiter)
                if waiter.messages or self._is_closed:
                    if not self._is_read:
                        self._wake_next_reader()  # perhaps it was this one's turn
                    return
                if self._is_read:
                    gate = waiter.gate
                    if gate is None:
                        gate = waiter.gate = threading.Lock()
                    gate.acquire(False)
                    self._sleepers.append(waiter)
                else:
                    self._is_read = True
                    gate = None
            if gate is None:
                self._read_for(waiter)
                return
            gate.acquire()
            waiter.wake()

    def _read_for(self, waiter: Waiter) -> None:
        try:
            while not waiter.messages and not self._is_closed:
                self._route(self._channel.receive_many())
        finally:
            self._stop_reading()

    def _read_now(self) -> None:
        """Read what is there without waiting; called by an event loop."""
        with self._lock:
            if self._is_read:
                return  # that thread hands on what it reads
            self._is_read = True
        try:
            self._route(self._channel.receive_many(_DONT_WAIT))
        except BlockingIOError:
            pass
        finally:
            self._stop_reading()

    def _stop_reading(self) -> None:
        with self._lock:
            self._is_read = False
            self._wake_next_reader()

    def _wake_next_reader(self) -> None:
        if self._sleepers:
            self._sleepers.popleft().wake()

    def _route(self, messages: list[Message] | None) -> None:
        if messages is None:
            self._end()
            return
        while self._abandoned:
            self.close(self._abandoned.popleft())
        for message in messages:
            kind = message[0]
            if kind == frame.CALLED or kind == frame.ANSWER:
                with self._lock:  # or `close` could miss it
                    waiter = self._replies.get(message[2])
                    if waiter is not None:
                        waiter.messages.append(message)
                if waiter is None:
                    self._drop(message)
                    continue
            else:
                waiter = self._session
                waiter.messages.append(message)
            waiter.wake()
            notify = waiter.notify
            if notify is not None:
                notify()

    def _drop(self, message: Message) -> None:
        if message[0] == frame.CALLED and message[3] is not None:
            for _, _, _, data in message[3][0]:
                self._channel.endpoint.adopt(data)  # and let it go, which gives its block back

    def _end(self) -> None:
        with self._lock:
            self._is_closed = True
            waiters = [self._session, *self._replies.values()]
        for waiter in waiters:
            waiter.wake()
            notify = waiter.notify
            if notify is not None:
                notify()

    # Event loops.

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            count = self._loops.get(loop, 0)
            self._loops[loop] = count + 1
        if count == 0:
            loop.add_reader(self._channel.fileno(), self._read_now)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            count = self._loops.pop(loop) - 1
            if count:
                self._loops[loop] = count
        if count == 0:
            loop.remove_reader(self._channel.fileno())


def _notifier(loop: asyncio.AbstractEventLoop, news: asyncio.Future[None]) -> Callable[[], None]:
    def tell() -> None:
        if not news.done():
            news.set_result(None)

    def notify() -> None:
        with suppress(RuntimeError):  # the model has closed its loop
            loop.call_soon_threadsafe(tell)

    return notify
