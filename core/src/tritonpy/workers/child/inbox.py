"""Inbox of an isolated backend's worker: the thread that waits for a message reads for all the others.

The thread that executes reads the next batch. But a thread that waits, perhaps the same one, until more
responses may be sent needs an answer from the channel too. So one of them reads for all, and no thread exists
only to read.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable

from tritonpy.executor import FrameExecutor
from tritonpy.ipc import frame
from tritonpy.ipc.channel import INLINE_BYTE_SIZE, WorkerChannel
from tritonpy.ipc.frame import Message
from tritonpy.ipc.window import Permission

_log = logging.getLogger("tritonpy.worker")

OnReply = Callable[[Message | None], None]


class WorkerInbox:
    """Passes the messages of a channel to the threads that wait for them; from any thread."""

    def __init__(self, channel: WorkerChannel) -> None:
        self._channel = channel
        self._changed = threading.Condition()  # guards all below
        self._commands: deque[Message] = deque()
        self._answered: dict[int, threading.Event] = {}
        self._expected: dict[int, OnReply] = {}
        self._replies: deque[Message] = deque()
        self._has_replier = False
        self._number = 0
        self._is_read = False
        self._is_closed = False
        self._executor: FrameExecutor | None = None

    def lend_to(self, executor: FrameExecutor) -> bool:
        """Have an executor read from now on; by the thread that asks for commands.

        Returns:
            False where another thread reads, or may begin to at any moment: it would take what comes; and
            where the executor knows other frames, as one of another release may.
        """
        version = getattr(executor, "frame_version", 0)  # releases before there was one have none
        if version != frame.FRAME_VERSION:
            _log.warning(
                "frames of workers have version %d, and %s reads version %d: each batch is executed by its "
                "hook, which costs more; install releases of both that belong together",
                frame.FRAME_VERSION,
                type(executor).__module__.partition(".")[0],
                version,
            )
            return False
        channel = self._channel
        with self._changed:
            if self._is_read or self._expected:
                return False
            flags = channel.cancel_flags()
            executor.attach(channel.fileno(), channel.take_rest(), flags, INLINE_BYTE_SIZE)
            channel.send_by(executor.write)
            self._executor = executor
        return True

    def _next_left(self, executor: FrameExecutor) -> Message | None:
        """The next message that an executor leaves."""
        while not self._commands:
            left = executor.next()
            if left is None:
                return None
            self._commands.extend(self._channel.understand(left))
        return self._commands.popleft()

    def next_command(self) -> Message | None:
        """Wait for the server's next message; None when it has closed the channel."""
        if self._executor is not None:
            return self._next_left(self._executor)
        self._read_until(lambda: bool(self._commands))
        with self._changed:
            return self._commands.popleft() if self._commands else None

    def ask_to_go_on(self, slot: int) -> Permission:
        """Ask whether the request in `slot` may have more responses."""
        with self._changed:
            self._number = number = self._number % 0x7FFFFFFF + 1
            self._answered[number] = answered = threading.Event()
        self._channel.send(frame.ASK, number, frame.OPEN_QUESTION, (slot,))
        return _Answer(self, answered)

    def expect(self, on_reply: OnReply) -> int:
        """A number for a call or a question whose replies `on_reply` takes, in their order.

        It gets None when the channel has closed. It is called on a thread of this inbox, which reads only
        while something is expected.
        """
        with self._changed:
            self._number = number = self._number % 0x7FFFFFFF + 1
            self._expected[number] = on_reply
            if self._has_replier:
                self._changed.notify_all()
                return number
            self._has_replier = True
        threading.Thread(target=self._reply, name="server-replies", daemon=True).start()
        return number

    def forget(self, number: int) -> None:
        """Nothing more is expected under this number."""
        with self._changed:
            self._expected.pop(number, None)

    def _reply(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._expected)
            self._receive_replies()
            with self._changed:
                replies, self._replies = self._replies, deque()
                taken = [(self._expected.get(message[2]), message) for message in replies]
                gone = list(self._expected.values()) if self._is_closed and not replies else []
            for on_reply, message in taken:
                if on_reply is not None:
                    _hand_over(on_reply, message)
            for on_reply in gone:
                _hand_over(on_reply, None)

    def _receive_replies(self) -> None:
        if self._executor is None:
            self._read_until(lambda: bool(self._replies))
            return
        reply = self._executor.next_reply()
        messages = None if reply is None else self._channel.understand(reply)
        with self._changed:
            self._take(messages)

    def wait(self, answered: threading.Event, timeout: float | None = None) -> None:
        """Return when an answer has come, never will, or the time is over."""
        self._read_until(answered.is_set, timeout)

    def _read_until(self, is_there: Callable[[], bool], timeout: float | None = None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                if self._is_read:
                    left_s = None if until is None else until - time.monotonic()
                    self._changed.wait_for(lambda: not self._is_read or is_there() or self._is_closed, left_s)
                if is_there() or self._is_closed or self._is_read:
                    return
                self._is_read = True
            messages: list[Message] | None = []
            try:
                if self._comes(until):
                    messages = self._channel.receive_many()
            finally:
                with self._changed:
                    self._is_read = False
                    self._take(messages)
                    self._changed.notify_all()
            if not messages and until is not None:
                return

    def _comes(self, until: float | None) -> bool:
        """Wait until there is something to read; False when the time is over."""
        if until is None:
            return True
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))

    def _take(self, messages: list[Message] | None) -> None:
        if messages is None:
            self._is_closed = True
            return
        for message in messages:
            if message[0] == frame.CALLED or (message[0] == frame.ANSWER and message[2] in self._expected):
                self._replies.append(message)
            elif message[0] == frame.ANSWER:
                self._answered.pop(message[2]).set()
            else:
                self._commands.append(message)


def _hand_over(on_reply: OnReply, message: Message | None) -> None:
    try:
        on_reply(message)
    except Exception:  # costs this reply, not the thread that brings all others
        _log.exception("a reply of the server could not be handed on")


class _Answer:
    """Satisfies `Permission`."""

    def __init__(self, inbox: WorkerInbox, answered: threading.Event) -> None:
        self._inbox = inbox
        self._answered = answered

    def is_set(self) -> bool:
        return self._answered.is_set()

    def wait(self, timeout: float | None = None) -> None:
        self._inbox.wait(self._answered, timeout)
