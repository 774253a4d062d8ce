"""One worker process: started by exec, spoken to in frames, reaped when it is gone."""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

from tritonpy import ipc
from tritonpy.devices.host_policy import HostPolicy
from tritonpy.errors import ErrorCode, Internal, TritonError
from tritonpy.ipc import frame
from tritonpy.ipc.arena import CONTROL_SLOTS
from tritonpy.ipc.channel import CHANNEL_VARIABLE, SEGMENT_VARIABLE, Endpoint
from tritonpy.ipc.frame import FrameReader, Message
from tritonpy.own_thread import on_own_thread
from tritonpy.workers.calls import WorkerCalls
from tritonpy.workers.child_process import Program, how_it_ended, spawn
from tritonpy.workers.output import LEVELS, PipeReader, WorkerLines
from tritonpy.workers.settings import SharedMemorySettings
from tritonpy.workers.thread import Serve, WorkerThread

_log = logging.getLogger("tritonpy.worker")
_STREAMS = (("stdout", logging.INFO), ("stderr", logging.WARNING))

IPC_PATH_VARIABLE = "TRITONPY_IPC_PATH"

OnMessage = Callable[[Message], None]
OnExit = Callable[[TritonError], None]


class WorkerProcess(asyncio.Protocol):
    """A running worker and the server's end of its channel; on the loop only.

    Args:
        name: the instance it will hold, for messages.

    Attributes:
        calls: handles what its model asks for; set before it is started.
        is_connected: False from the moment the channel is known to be closed; `on_exit` follows when the
            process has been reaped.
        cancel_flags: shared with the worker; byte `slot` set to 1 cancels the request in that slot.
    """

    calls: WorkerCalls
    cancel_flags: mmap.mmap | bytearray

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_connected = False
        self._on_message: OnMessage = _ignore
        self._on_exit: OnExit = _ignore
        self._reader = FrameReader()
        self._reply: asyncio.Future[Message] | None = None
        self._probed: asyncio.Future[bool] | None = None
        self._end: TritonError | None = None
        self._is_closing = False
        self._transport: asyncio.Transport | None = None
        self._process: Program | None = None
        self._gone = asyncio.get_running_loop().create_future()
        self._pipes: list[PipeReader] = []

    async def start(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        memory: SharedMemorySettings,
        policy: HostPolicy | None = None,
    ) -> None:
        """Exec the worker's program with the channel's descriptors.

        Args:
            command: the program.
            variables: its environment.
            memory: of each direction between the server and the worker.
            policy: which processors it keeps to, from its first instruction on.

        Raises:
            Internal: the program cannot be started, or the policy not be put in force.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            try:
                channel, their_channel, their_segments = self._make_channel(memory, ours)
                theirs.callback(their_channel.close)
                theirs.callback(their_segments.close)
                pipes = []
                for _ in _STREAMS:
                    read, write = os.pipe()
                    ours.callback(os.close, read)
                    theirs.callback(os.close, write)
                    pipes.append((read, write))
                environment = {
                    **variables,
                    CHANNEL_VARIABLE: str(their_channel.fileno()),
                    SEGMENT_VARIABLE: str(their_segments.fileno()),
                    IPC_PATH_VARIABLE: str(Path(ipc.__file__).parent),
                }
                self._process = await spawn(
                    command,
                    environment,
                    (their_channel.fileno(), their_segments.fileno()),
                    [write for _, write in pipes],
                    policy,
                )
            except OSError as exc:
                raise Internal(f"cannot start the worker of instance '{self.name}': {exc}") from exc
            ours.pop_all()  # it runs: what is ours is closed when it ends
        self._lines.pid = self._process.pid
        self._pipes = [
            PipeReader(read, name, level, self._lines)
            for (read, _), (name, level) in zip(pipes, _STREAMS, strict=True)
        ]
        await self._connect(channel)

    async def start_thread(self, serve: Serve, memory: SharedMemorySettings) -> None:
        """Run the worker's program on a thread of this process.

        Raises:
            OSError: there are no descriptors for its channel.
        """
        with ExitStack() as ours:
            channel, theirs, their_segments = self._make_channel(memory, ours)
            self._process = WorkerThread(self.name, serve, theirs, their_segments)
            ours.pop_all()
        await self._connect(channel)

    def _make_channel(
        self, memory: SharedMemorySettings, ours: ExitStack
    ) -> tuple[socket.socket, socket.socket, socket.socket]:
        """Our end of the channel and the worker's two sockets; `ours` closes what stays here."""
        channel, theirs = socket.socketpair()
        ours.callback(channel.close)
        with ExitStack() as failing:
            failing.callback(theirs.close)
            segments, their_segments = socket.socketpair()
            failing.callback(their_segments.close)
            # The loop never waits for a worker that takes no segments: such a request fails.
            segments.setblocking(False)
            self.endpoint = Endpoint(segments, lends=True)
            ours.callback(self.endpoint.close)
            self.endpoint.arena.on_forget = partial(self.send, frame.FORGET)
            memory.apply(self.endpoint.arena)
            self.cancel_flags = self.endpoint.arena.add_segment(CONTROL_SLOTS)
            failing.pop_all()
        self._lines = WorkerLines(self.calls.caller, self._set_reading)
        self._reply = asyncio.get_running_loop().create_future()  # of STARTED
        return channel, theirs, their_segments

    async def _connect(self, ours: socket.socket) -> None:
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        # Cancelled in the middle, uvloop would leave a transport behind that nobody closes.
        connecting = asyncio.ensure_future(loop.create_unix_connection(lambda: self, sock=ours))
        try:
            await asyncio.shield(connecting)
        except BaseException:
            self.kill()
            await asyncio.wait((connecting,))
            if connecting.cancelled() or connecting.exception() is not None:
                ours.close()
                await self._reap()  # there is no connection whose end would have it reaped
                self.calls.close()
            await self._gone
            raise

    def adopt(self, name: str, on_message: OnMessage, on_exit: OnExit) -> None:
        """Give the running worker to an instance.

        Args:
            name: the instance.
            on_message: takes EXECUTED, RESPONSE and RESCHEDULE messages.
            on_exit: called once when the process is gone without having been asked to go, with an error that
                names exit code or signal.
        """
        self.name = name
        self._on_message = on_message
        self._on_exit = on_exit

    @property
    def pid(self) -> int:
        """The worker's process id."""
        assert self._process is not None  # started
        return self._process.pid

    def send(self, kind: int, *payload: Any) -> None:  # Any: see frame
        """Queue one message; it leaves at the end of this turn of the loop.

        Nothing happens when the worker is gone: `on_exit` is about to say so.
        """
        assert self._transport is not None  # started
        if self.is_connected and not self._transport.is_closing():
            self._transport.write(self.endpoint.pack(kind, *payload))

    async def started(self, timeout_s: float | None, late: str) -> None:
        """Wait until its program runs; what the model itself takes comes after that.

        Args:
            timeout_s: how long to wait; None for ever.
            late: the text of the error when that was not enough.

        Raises:
            TritonError: it died, or is late.
        """
        await self._replied(timeout_s, late)

    async def ask(
        self, kind: int, *payload: Any, timeout_s: float | None = None, late: str = ""
    ) -> Message:  # Any: see frame
        """Send one message and wait for its answer.

        Args:
            kind: of the message.
            payload: of the message.
            timeout_s: how long to wait; None for ever.
            late: the text of the error when that was not enough.

        Raises:
            TritonError: the worker answered FAILED, died, or is late.
        """
        if self._end is not None:
            raise self._end
        self._reply = asyncio.get_running_loop().create_future()
        self.send(kind, *payload)
        return await self._replied(timeout_s, late)

    async def _replied(self, timeout_s: float | None, late: str) -> Message:
        assert self._reply is not None  # made by whoever waits
        try:
            async with asyncio.timeout(timeout_s):
                message = await self._reply
        except TimeoutError:
            raise Internal(
                late or f"the worker of instance '{self.name}' did not answer within {timeout_s:g} s"
            ) from None
        finally:
            self._reply = None
        if message[0] == frame.FAILED:
            _, _, code, text, trace = message
            if trace:
                said = text.partition("\n")[0]
                self._lines.add(logging.ERROR, f"instance '{self.name}' failed: {said}", trace=trace)
            raise TritonError(text, ErrorCode(code))
        return message

    async def probe(self, timeout_s: float) -> bool:
        """Ask the model whether it is ready; one that does not say so in `timeout_s` seconds is not."""
        if self._probed is None:
            self._probed = asyncio.get_running_loop().create_future()
            self.send(frame.PROBE)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._probed)
        except TimeoutError:
            _log.warning("instance '%s' did not say within %g s whether it is ready", self.name, timeout_s)
            return False

    def _take_probed(self, is_ready: bool, error: str | None) -> None:
        probed, self._probed = self._probed, None
        if probed is not None:
            probed.set_result(is_ready)
        if error is not None:
            _log.error("instance '%s' failed to say whether it is ready: %s", self.name, error)

    async def close(self, timeout_s: float) -> None:
        """Ask the worker to finalize and go; after `timeout_s` seconds it is killed."""
        was_killed, self._is_closing = self._is_closing, True
        if self._process is None:
            return
        if not self._gone.done() and not was_killed:
            try:
                message = await self.ask(frame.FINALIZE, timeout_s=timeout_s)
                if message[2]:
                    _log.error("finalize of instance '%s' failed: %s", self.name, message[2])
                async with asyncio.timeout(timeout_s):
                    await asyncio.shield(self._gone)
            except (TritonError, TimeoutError) as exc:
                _log.warning("worker of instance '%s' is killed: %s", self.name, exc or "it did not exit")
                self.kill()
        await self._gone

    def kill(self) -> None:
        """End the worker at once."""
        self._is_closing = True
        if self._process is not None:
            self._process.kill()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The channel is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        self.is_connected = True

    def data_received(self, data: bytes) -> None:
        """Take what the worker wrote."""
        for message in self._reader.feed(data):
            self.endpoint.accept(message)
            kind = message[0]
            if kind == frame.EXECUTED or kind == frame.RESPONSE or kind == frame.RESCHEDULE:
                self._on_message(message)
            elif kind == frame.PROBED:
                self._take_probed(message[2], message[3])
            elif kind >= frame.CALL and kind != frame.STARTED:
                self.calls.take(message)
            elif kind == frame.LOG:
                _, _, level, text, request_id, file, line, trace = message
                self._lines.add(LEVELS[level], text, request_id, file, line, trace)
            elif self._reply is not None and not self._reply.done():
                self._reply.set_result(message)

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker is gone, or will be in a moment."""
        self.is_connected = False
        self._take_probed(False, None)
        self.calls.close()
        task = asyncio.get_running_loop().create_task(self._reap())
        task.add_done_callback(lambda _: None)  # holds the task until it is done
        self._reaper = task

    async def _reap(self) -> None:
        process = self._process
        assert process is not None  # connected
        try:
            status = await on_own_thread(partial(process.wait, 2.0), "reaper")
        except subprocess.TimeoutExpired:  # it closed its channel but lives
            process.kill()
            status = await on_own_thread(process.wait, "reaper")
        await self._end_output()
        self.endpoint.close()
        self.cancel_flags = bytearray(CONTROL_SLOTS)  # nobody's: those of the worker are to be unmapped
        error = Internal(f"Stub process '{self.name}' is not healthy. It {how_it_ended(status)}")
        self._end = error
        if self._reply is not None and not self._reply.done():
            # Whoever waits for the answer hears of the end, and need not be told twice.
            self._is_closing = True
            self._reply.set_result((frame.FAILED, (), int(error.code), error.message, ""))
        if not self._gone.done():
            self._gone.set_result(None)
        if not self._is_closing:
            self._is_closing = True
            self._on_exit(error)

    # Output.

    def _set_reading(self, is_reading: bool) -> None:
        """Stop reading what the worker says, whichever way it comes, or go on."""
        for pipe in self._pipes:
            pipe.set_reading(is_reading)
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if is_reading:
            transport.resume_reading()
        else:
            transport.pause_reading()

    async def _end_output(self) -> None:
        """Log its last words before anything is said about its end."""
        for pipe in self._pipes:
            pipe.close()
        await self._lines.end()


def _ignore(_: Any) -> None:  # Any: a message or an error that nobody waits for yet
    return None
