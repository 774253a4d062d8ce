"""A child that speaks frames: its channel and its process, from the start of one to the end of the other."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any, Protocol, TypeVar, cast

from .channel import CHANNEL_VARIABLE, SEGMENT_VARIABLE, Endpoint
from .child import ChildGone, ChildProcess, describe_end
from .frame import STARTED, FrameReader, Message

_EXIT_TIMEOUT_S = 2.0
"""How long a child may live on after it has closed its channel."""

_Outcome = TypeVar("_Outcome")


class Program(Protocol):
    """The program of a child: a `ChildProcess`, or a thread of this process."""

    pid: int
    ended: Future[int]

    def kill(self) -> None:
        """End it."""


Launch = Callable[[socket.socket, socket.socket], Awaitable[Program]]
"""Starts a program at the other ends of the channel's two sockets, which are the program's once it runs.

Raises:
    OSError: it cannot be started.
"""


class ChildOwner(Protocol):
    """Takes the messages and the end of a child; on the loop."""

    def take(self, messages: Sequence[Message]) -> None:
        """Handle what came in one read; STARTED needs no attention."""

    def channel_lost(self) -> None:
        """The channel has closed: the child is gone, or will be in a moment."""

    async def child_ended(self, how: str) -> None:
        """The child has been reaped; `how` goes on after its name."""


class ChildChannel(asyncio.Protocol):
    """Our end of the channel to a child; on the loop only.

    Args:
        owner: takes its messages and hears of its end.

    Attributes:
        endpoint: tensors in shared memory; there once it is opened.
        is_connected: the channel is open.
        gone: done when the child has been reaped, and its owner has heard of it.
    """

    endpoint: Endpoint

    def __init__(self, owner: ChildOwner) -> None:
        loop = asyncio.get_running_loop()
        self.is_connected = False
        self.gone: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._reader = FrameReader()
        self._started: asyncio.Future[None] = loop.create_future()
        self._is_starting = True
        self._transport: asyncio.Transport | None = None
        self._program: Program | None = None
        self._reaper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._program is not None  # opened
        return self._program.pid

    async def open(self, launch: Launch, prepare: Callable[[Endpoint], None]) -> None:
        """Start the child and connect; cancelled or failed, it leaves nothing behind.

        Args:
            launch: starts its program.
            prepare: called with the endpoint, before the child has its other end.

        Raises:
            OSError: there are no descriptors, or what `launch` raises.
        """
        with ExitStack() as failing:
            channel, theirs = socket.socketpair()
            failing.callback(channel.close)
            failing.callback(theirs.close)
            segments, their_segments = socket.socketpair()
            failing.callback(their_segments.close)
            channel.setblocking(False)
            segments.setblocking(False)  # the loop never waits for a child that takes no segments
            self.endpoint = Endpoint(segments, lends=True)
            failing.callback(self.endpoint.close)
            prepare(self.endpoint)
            self._program = await launch(theirs, their_segments)
            failing.pop_all()  # it runs: what is ours is closed when it ends
        await self._connect(channel)

    async def started(self, timeout_s: float | None) -> None:
        """Wait until the child's program runs.

        Raises:
            asyncio.TimeoutError: it takes longer than `timeout_s`; it is not ended for that.
            ChildGone: it has ended.
        """
        await asyncio.wait_for(asyncio.shield(self._started), timeout_s)

    def send(self, kind: int, *payload: Any) -> None:  # Any: see frame
        """Queue one message; it leaves at the end of this turn of the loop.

        Nothing happens when the channel is closed: the owner is about to hear so.
        """
        transport = self._transport
        assert transport is not None  # opened
        if self.is_connected and not transport.is_closing():
            transport.write(self.endpoint.pack(kind, *payload))

    def set_reading(self, is_reading: bool) -> None:
        """Stop reading, or go on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if is_reading:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def kill(self) -> None:
        """End the child at once."""
        if self._program is not None:
            self._program.kill()

    def close(self) -> None:
        """Close the channel, which tells the child to go."""
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The channel is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        self.is_connected = True

    def data_received(self, data: bytes) -> None:
        """Take what the child wrote."""
        messages = self._reader.feed(data)
        for message in messages:
            if message[1]:
                self.endpoint.accept(message)
        if self._is_starting and any(message[0] == STARTED for message in messages):
            self._is_starting = False
            self._started.set_result(None)
        self._owner.take(messages)

    def connection_lost(self, exc: Exception | None) -> None:
        """The child is gone, or will be in a moment."""
        self.is_connected = False
        self._reaper = asyncio.get_running_loop().create_task(self._reap())  # in any case
        self._owner.channel_lost()

    # Inside

    async def _connect(self, channel: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        # Cancelled in the middle, uvloop would leave an open transport behind.
        connecting = asyncio.ensure_future(loop.create_unix_connection(lambda: self, sock=channel))
        try:
            await asyncio.shield(connecting)
        except BaseException:
            self.kill()
            await asyncio.wait((connecting,))
            if connecting.cancelled() or connecting.exception() is not None:
                channel.close()
                self._owner.channel_lost()  # there is no connection that could be lost
                await self._reap()
            await self.gone
            raise

    async def _reap(self) -> None:
        program = self._program
        assert program is not None  # launched
        ended = on_loop(program.ended)
        await asyncio.wait((ended,), timeout=_EXIT_TIMEOUT_S)
        if not ended.done():  # it closed its channel but lives
            program.kill()
        how = describe_end(await ended)
        self.endpoint.close()
        if self._is_starting:
            self._started.set_exception(ChildGone(how))
            self._started.exception()  # retrieved, for there may be no waiter left
        try:
            await self._owner.child_ended(how)
        finally:
            self.gone.set_result(None)


async def launch_process(
    channel: socket.socket,
    segments: socket.socket,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    has_pipes: bool = False,
    prepare: Callable[[], None] | None = None,
) -> ChildProcess:
    """Exec a program at the other ends of a channel's sockets without stopping the loop; see `ChildProcess`.

    Cancelled, it leaves no process behind. The sockets are closed here.
    """
    with channel, segments:
        variables = {CHANNEL_VARIABLE: str(channel.fileno()), SEGMENT_VARIABLE: str(segments.fileno())}
        process = ChildProcess(
            command,
            environment={**environment, **variables},
            descriptors=(channel.fileno(), segments.fileno()),
            has_pipes=has_pipes,
            prepare=prepare,
        )
        started = on_loop(process.started)
        try:
            await asyncio.shield(started)
        except asyncio.CancelledError:
            await started
            process.kill()
            for descriptor in process.outputs:
                os.close(descriptor)
            await on_loop(process.ended)
            raise
    return process


def on_loop(outcome: Future[_Outcome]) -> asyncio.Future[_Outcome]:
    """The result of a thread's future as a future of the running loop; cancelling it affects only itself."""
    loop = asyncio.get_running_loop()
    here: asyncio.Future[_Outcome] = loop.create_future()

    def settle() -> None:
        if here.done():  # cancelled
            return
        error = outcome.exception()
        if error is not None:
            here.set_exception(error)
        else:
            here.set_result(outcome.result())

    def on_settled(_: Future[_Outcome]) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle)

    outcome.add_done_callback(on_settled)
    return here
