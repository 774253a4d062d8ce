"""One channel: tensors in and out of shared memory, and the worker's blocking end of the socket."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Union

import numpy as np

from .arena import ADMITTED_LEVELS, Arena, PeerSegments
from .frame import FORGET, FrameReader, Message, encode_frame

INLINE_BYTE_SIZE = 16 * 1024
"""Tensors up to this size travel inside the frame: copying them twice is cheaper than a block."""

CHANNEL_VARIABLE = "TRITONPY_CHANNEL_FD"
SEGMENT_VARIABLE = "TRITONPY_SEGMENT_FD"

_PR_SET_PDEATHSIG = 1

_RECEIVE_BYTE_SIZE = 64 * 1024  # above 128 KiB malloc maps and unmaps pages for every call

TensorData = Union[bytes, tuple[int, int]]  # noqa: UP007 (evaluated, also by Python 3.9)


class Endpoint:
    """The part that both ends share: the arenas of the two directions and the references to give back.

    Args:
        segment_socket: one end of a stream socket pair that carries nothing but segment descriptors.
        lends: blocks that come from the other end may be passed on to third ones (see `lend_or_export`).
    """

    def __init__(self, segment_socket: socket.socket, *, lends: bool = False) -> None:
        self._socket = segment_socket
        self._releases: deque[int] = deque()
        self.arena = Arena(segment_socket)
        self._inline_byte_size = INLINE_BYTE_SIZE
        self.peer = PeerSegments(segment_socket, self._releases.append, lends=lends)

    def pack(self, kind: int, *payload: Any) -> bytes:  # Any: see frame
        """Make the frame of one message, together with the references to give back."""
        releases = self._releases
        if not releases:
            return encode_frame((kind, (), *payload))
        given_back = []
        try:
            while releases:
                given_back.append(releases.popleft())
        except IndexError:  # another thread packs too
            pass
        try:
            return encode_frame((kind, tuple(given_back), *payload))
        except ValueError:  # the payload cannot travel; what was to be given back still has to
            releases.extend(given_back)
            raise

    def accept(self, message: Message) -> None:
        """Take back the blocks that the other end has finished reading; call it for every message."""
        for reference in message[1]:
            self.arena.release(reference)

    def export(self, data: bytes | bytearray | memoryview) -> TensorData:
        """Make a tensor's bytes fit for a frame: inline when small, one copy into shared memory when not."""
        byte_size = len(data)
        if byte_size <= self._inline_byte_size:
            return bytes(data)
        reference, view = self.arena.allocate(byte_size)
        view[:] = data
        return reference, byte_size

    def give_or_export(self, data: bytes | bytearray | memoryview) -> TensorData:
        """Like `export`, but a block that was leased from the arena is passed on as it is."""
        if isinstance(data, memoryview):
            reference = self.arena.give(data)
            if reference is not None:
                return reference, data.nbytes
        return self.export(data)

    def export_from(self, byte_size: int, fill: Callable[[memoryview], None]) -> TensorData:
        """Like `export`, for bytes that `fill` copies from wherever they are.

        Raises:
            Exception: what `fill` raises; nothing is left behind.
        """
        if byte_size <= INLINE_BYTE_SIZE:
            data = bytearray(byte_size)
            fill(memoryview(data))
            return bytes(data)
        reference, view = self.arena.allocate(byte_size)
        try:
            fill(view)
        except BaseException:
            self.arena.release(reference)
            raise
        return reference, byte_size

    def lend_or_export(self, data: bytes | bytearray | memoryview | np.ndarray[Any, Any]) -> TensorData:
        """Like `export`, but a block that a third process wrote is only referred to, not copied."""
        if isinstance(data, np.ndarray):
            reference = self.arena.lend(data)
            if reference is not None:
                return reference, data.nbytes
            data = data.data
        return self.export(data)

    def adopt(self, data: TensorData) -> bytes | np.ndarray[Any, Any]:
        """A received tensor's bytes, without a copy."""
        if isinstance(data, bytes):
            return data
        return self.peer.view(*data)

    def stop_sharing(self) -> None:
        """Put all tensors inside frames from now on, and give nothing back: the other end has no segments."""
        self._inline_byte_size = sys.maxsize
        self._releases.clear()

    def fileno(self) -> int:
        """The descriptor on which segments are announced."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the descriptors; mappings live on while they are read."""
        self._socket.close()
        self.peer.close()
        self.arena.close()


class WorkerChannel:
    """The worker's end: blocking, one reader, any number of writers."""

    def __init__(self, channel: socket.socket, segments: socket.socket) -> None:
        self.endpoint = Endpoint(segments)
        self._cancel_flags: memoryview | None = None
        self._begin(channel)

    def _begin(self, channel: socket.socket) -> None:
        self._socket = channel
        self._write: Callable[[bytes], object] = channel.sendall
        self._reader = FrameReader()
        self._pending: deque[Message] = deque()
        self._send_lock = threading.RLock()
        self._is_sending = False
        self._deferred: deque[tuple[Any, ...]] = deque()  # Any: see frame

    @classmethod
    def from_environment(cls) -> WorkerChannel:
        """Open the descriptors the server left for this process."""
        channel = socket.socket(fileno=int(os.environ.pop(CHANNEL_VARIABLE)))
        segments = socket.socket(fileno=int(os.environ.pop(SEGMENT_VARIABLE)))
        for inherited in (channel, segments):
            inherited.set_inheritable(False)
            # The server knows a worker's end by its socket: no child that a model forks may keep it open.
            os.register_at_fork(after_in_child=inherited.close)
        return cls(channel, segments)

    def continue_over(self, channel: socket.socket) -> None:
        """Go on in a forked child, where the server's socket is closed, over a socket to the parent."""
        self._begin(channel)
        self.endpoint.stop_sharing()

    def exit_with_server(self) -> None:
        """End this process when the server is gone, even while a model computes or the process is stopped.

        The thread that watches also takes the segments that the server announces meanwhile.
        """
        _be_killed_with_parent()  # a stopped process runs no thread that could watch
        poll = select.poll()
        poll.register(self._socket, 0)  # hang-up is always reported; data is not asked for
        segments = self.endpoint.fileno()
        poll.register(segments, select.POLLIN)
        server = self._socket.fileno()

        def watch() -> None:
            while True:
                for descriptor, _ in poll.poll():
                    if descriptor == server:
                        os._exit(1)
                    if not self.endpoint.peer.receive_announced():
                        poll.unregister(segments)

        threading.Thread(target=watch, name="server-watch", daemon=True).start()

    def receive(self) -> Message | None:
        """Wait for the next message; None when the server has closed the channel."""
        while not self._pending:
            messages = self.receive_many()
            if messages is None:
                return None
            self._pending.extend(messages)
        return self._pending.popleft()

    def receive_many(self, flags: int = 0) -> list[Message] | None:
        """Wait for bytes and return the messages they complete; None when the server has closed the channel.

        Args:
            flags: of `socket.recv`; with `MSG_DONTWAIT`, nothing to read raises BlockingIOError.
        """
        try:
            data = self._socket.recv(_RECEIVE_BYTE_SIZE, flags)
        except OSError as exc:
            if isinstance(exc, BlockingIOError):
                raise
            return None  # closed under our feet, by `close`
        return self.understand(data) if data else None

    def understand(self, data: bytes) -> list[Message]:
        """The messages that bytes of the server complete, but for those that only this end heeds."""
        messages = self._reader.feed(data)
        has_own = False
        for message in messages:
            if message[1]:
                self.endpoint.accept(message)
            if message[0] == FORGET:
                self.endpoint.peer.forget(message[2])
                has_own = True
        return [message for message in messages if message[0] != FORGET] if has_own else messages

    def fileno(self) -> int:
        """The descriptor to wait on, for an event loop."""
        return self._socket.fileno()

    def take_rest(self) -> bytes:
        """The beginning of a frame, if one was read: for another reader, whose frames `understand` takes."""
        return self._reader.take_rest()

    def send_by(self, write: Callable[[bytes], object]) -> None:
        """Have frames sent by another writer from now on, so that they do not mix with its own."""
        with self._send_lock:  # what another thread has begun to send comes to its end
            self._write = write

    def send(self, kind: int, *payload: Any) -> None:  # Any: see frame
        """Send one message; from any thread, finalizers and signal handlers included."""
        with self._send_lock:
            if self._is_sending:  # a finalizer or a signal handler, in the midst of this thread's own sending
                self._deferred.append((kind, *payload))
                return
            self._is_sending = True
            try:
                self._write(self.endpoint.pack(kind, *payload))
            finally:
                self._is_sending = False
            while self._deferred:
                self.send(*self._deferred.popleft())

    def close(self) -> None:
        """Close both sockets, which tells the server that this worker is gone."""
        self._socket.close()
        self.endpoint.close()

    def is_cancelled(self, slot: int) -> bool:
        """True if the server has cancelled the request in `slot`; a read of shared memory."""
        return self._flags()[slot] != 0

    def cancel_flags(self) -> memoryview:
        """The bytes of all slots."""
        return self._flags()

    def cancel_flag(self, slot: int) -> memoryview:
        """The byte that is 1 when the server has cancelled the request in `slot`."""
        return self._flags()[slot : slot + 1]

    def admitted_levels(self) -> memoryview:
        """The byte in which the server says what its log admits."""
        return self._flags()[ADMITTED_LEVELS : ADMITTED_LEVELS + 1]

    def _flags(self) -> memoryview:
        flags = self._cancel_flags
        if flags is None:  # kept, because a model's thread may ask after the channel has closed
            flags = self._cancel_flags = memoryview(self.endpoint.peer.segment(0))
        return flags


def _be_killed_with_parent() -> None:
    if sys.platform == "linux":
        with suppress(ImportError, AttributeError, OSError):  # a Python without ctypes
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
