"""One worker process: started by exec, spoken to in frames, reaped when it is gone."""

from __future__ import annotations

import asyncio
import logging
import mmap
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tritonpy import ipc
from tritonpy.devices.host_policy import HostPolicy, bind
from tritonpy.errors import ErrorCode, Internal, TritonError
from tritonpy.handles import MemoryUsage
from tritonpy.ipc import frame
from tritonpy.ipc.arena import ADMITTED_LEVELS, CONTROL_BYTE_SIZE
from tritonpy.ipc.channel import Endpoint
from tritonpy.ipc.child import ChildGone
from tritonpy.ipc.child_channel import ChildChannel, Launch, Program, launch_process
from tritonpy.ipc.frame import Message
from tritonpy.request import InferRequest
from tritonpy.workers.calls import ServerAccess, WorkerCalls
from tritonpy.workers.in_flight import InFlight
from tritonpy.workers.worker_output import LEVELS, PipeReader, WorkerLines, show_levels
from tritonpy.workers.worker_services import Caller
from tritonpy.workers.worker_settings import SharedMemorySettings
from tritonpy.workers.worker_thread import Serve, WorkerThread

_log = logging.getLogger("tritonpy.worker")
_STREAMS = (("stdout", logging.INFO), ("stderr", logging.WARNING))

IPC_PATH_VARIABLE = "TRITONPY_IPC_PATH"

OnMessage = Callable[[Message], None]
OnExit = Callable[[TritonError], None]


class WorkerProcess:
    """A running worker, spoken to through a `ChildChannel` that it owns; on the loop only.

    Args:
        caller: the worker as the server's services know it, with the name of the instance that it will hold.
        access: what its model can reach.
        finalize_timeout_s: how long it may take to finalize, and then to go.

    Attributes:
        endpoint: tensors in memory that is shared with it.
        is_connected: False from the moment the channel is known to be closed; `on_exit` follows when the
            process has been reaped.
        cancel_flags: shared with the worker; byte `slot` set to 1 cancels the request in that slot.
        is_probed: its model is to be asked whether it is ready; known when it has been initialised.
    """

    endpoint: Endpoint
    cancel_flags: mmap.mmap | bytearray

    def __init__(self, caller: Caller, access: ServerAccess, finalize_timeout_s: float) -> None:
        self.is_connected = False
        self.is_probed = False
        self._caller = caller
        self._finalize_timeout_s = finalize_timeout_s
        self._channel = ChildChannel(self)
        self._calls = WorkerCalls(self._channel, caller, access)
        self._lines = WorkerLines(caller, self._set_reading)
        self._is_started = False
        self._on_message: OnMessage = _ignore
        self._on_exit: OnExit = _ignore
        self._reply: asyncio.Future[Message] | None = None
        self._probed: asyncio.Future[bool] | None = None
        self._end: TritonError | None = None
        self._is_closing = False
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
        environment = {**variables, IPC_PATH_VARIABLE: str(Path(ipc.__file__).parent)}
        prepare = partial(bind, policy) if policy is not None else None

        async def launch(channel: socket.socket, segments: socket.socket) -> Program:
            process = await launch_process(
                channel, segments, command, environment, has_pipes=True, prepare=prepare
            )
            self._lines.pid = process.pid
            self._pipes = [
                PipeReader(read, name, level, self._lines)
                for read, (name, level) in zip(process.outputs, _STREAMS, strict=True)
            ]
            return process

        try:
            await self._open(launch, memory)
        except OSError as exc:
            raise Internal(f"cannot start the worker of instance '{self.name}': {exc}") from exc

    async def start_thread(self, serve: Serve, memory: SharedMemorySettings) -> None:
        """Run the worker's program on a thread of this process.

        Raises:
            OSError: there are no descriptors for its channel.
        """

        async def launch(channel: socket.socket, segments: socket.socket) -> Program:
            return WorkerThread(self.name, serve, channel, segments)

        await self._open(launch, memory)

    async def _open(self, launch: Launch, memory: SharedMemorySettings) -> None:
        def prepare(endpoint: Endpoint) -> None:
            self.endpoint = endpoint
            endpoint.arena.on_forget = partial(self._channel.send, frame.FORGET)
            memory.apply(endpoint.arena)
            self.cancel_flags = endpoint.arena.add_segment(CONTROL_BYTE_SIZE)
            show_levels(self)

        await self._channel.open(launch, prepare)
        self._is_started = True
        self.is_connected = self._channel.is_connected

    def set_levels(self, admitted: int) -> None:
        """Have the worker see which levels the log admits; on any thread."""
        self.cancel_flags[ADMITTED_LEVELS] = admitted

    def adopt(self, name: str, work: InFlight, on_message: OnMessage, on_exit: OnExit) -> None:
        """Give the running worker to an instance.

        Args:
            name: the instance.
            work: what the instance sends it.
            on_message: takes EXECUTED, RESPONSE and RESCHEDULE messages.
            on_exit: called once when the process is gone without having been asked to go, with an error that
                names exit code or signal.
        """
        self._caller.instance = name
        self._calls.work = work
        self._on_message = on_message
        self._on_exit = on_exit

    @property
    def name(self) -> str:
        """The instance in it, or the model while it has none."""
        return self._caller.instance

    def finish_loading(self) -> None:
        """Say to services that its instance takes requests from now on."""
        self._caller.is_loading = False

    def give_up_calls(self, batch: int) -> None:
        """Cancel the calls of other models whose answers are only for that batch."""
        self._calls.give_up(batch)

    @property
    def memory_usage(self) -> Sequence[MemoryUsage]:
        """Memory that its model has reported to use."""
        return self._caller.memory_usage

    def awaited_calls(self) -> Mapping[int, Sequence[InferRequest]]:
        """Unanswered calls by the batch that waits for them."""
        return self._calls.awaited()

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._channel.pid

    def send(self, kind: int, *payload: Any) -> None:  # Any: see frame
        """Queue one message; nothing happens when the worker is gone: `on_exit` is about to say so."""
        self._channel.send(kind, *payload)

    async def started(self, timeout_s: float | None, late: str) -> None:
        """Wait until its program runs; what the model itself takes comes after that.

        Args:
            timeout_s: how long to wait; None for no limit.
            late: the text of the error when that was not enough.

        Raises:
            TritonError: it died, or is late.
        """
        try:
            await self._channel.started(timeout_s)
        except TimeoutError:
            raise Internal(late) from None
        except ChildGone as gone:
            raise self._ended(str(gone)) from None

    async def ask(
        self, kind: int, *payload: Any, timeout_s: float | None = None, late: str = ""
    ) -> Message:  # Any: see frame
        """Send one message and wait for its answer.

        Args:
            kind: of the message.
            payload: of the message.
            timeout_s: how long to wait; None for no limit.
            late: the text of the error when that was not enough.

        Raises:
            TritonError: the worker answered FAILED, died, or is late.
        """
        if self._end is not None:
            raise self._end
        self._reply = asyncio.get_running_loop().create_future()
        self.send(kind, *payload)
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

    async def close(self) -> None:
        """Ask the worker to finalize and go; it is killed if that takes too long, or is not waited for."""
        timeout_s = self._finalize_timeout_s
        was_killed, self._is_closing = self._is_closing, True
        if not self._is_started:
            return
        gone = self._channel.gone
        if not gone.done() and not was_killed:
            try:
                message = await self.ask(frame.FINALIZE, timeout_s=timeout_s)
                if message[2]:
                    _log.error("finalize of instance '%s' failed: %s", self.name, message[2])
                async with asyncio.timeout(timeout_s):
                    await asyncio.shield(gone)
            except (TritonError, TimeoutError) as exc:
                _log.warning(
                    "worker of instance '%s' is killed: %s", self.name, str(exc) or "it did not exit"
                )
                self.kill()
            except asyncio.CancelledError:
                self.kill()
                raise
        await gone

    def kill(self) -> None:
        """End the worker at once."""
        self._is_closing = True
        self._channel.kill()

    # ChildOwner

    def take(self, messages: Sequence[Message]) -> None:
        """Pass on what the worker wrote."""
        for message in messages:
            kind = message[0]
            if kind == frame.EXECUTED or kind == frame.RESPONSE or kind == frame.RESCHEDULE:
                self._on_message(message)
            elif kind == frame.PROBED:
                self._take_probed(message[2], message[3])
            elif kind >= frame.CALL and kind != frame.STARTED:
                self._calls.take(message)
            elif kind == frame.LOG:
                _, _, level, text, request_id, file, line, trace = message
                self._lines.add(LEVELS[level], text, request_id, file, line, trace)
            elif self._reply is not None and not self._reply.done():
                self._reply.set_result(message)

    def channel_lost(self) -> None:
        """Give up the calls to the worker, and those that it has made."""
        self.is_connected = False
        self._take_probed(False, None)
        self._calls.close()

    async def child_ended(self, how: str) -> None:
        """Notify the caller that waits for the worker, or the instance that has it."""
        for pipe in self._pipes:
            pipe.close()
        await self._lines.end()  # its last words are logged before anything is said about its end
        self.cancel_flags = bytearray(CONTROL_BYTE_SIZE)  # unshared: those of the worker are to be unmapped
        self._end = error = self._ended(how)
        if self._reply is not None and not self._reply.done():
            # The waiter for the answer gets the end as its answer, and `on_exit` is not called as well.
            self._is_closing = True
            self._reply.set_result((frame.FAILED, (), int(error.code), error.message, ""))
        if not self._is_closing:
            self._is_closing = True
            self._on_exit(error)

    def _ended(self, how: str) -> Internal:
        return Internal(f"Stub process '{self.name}' is not healthy. It {how}")

    # Output.

    def _set_reading(self, is_reading: bool) -> None:
        """Stop or resume reading the worker's messages and output."""
        for pipe in self._pipes:
            pipe.set_reading(is_reading)
        self._channel.set_reading(is_reading)


def _ignore(_: Any) -> None:  # Any: a message or an error before `adopt`
    return None
