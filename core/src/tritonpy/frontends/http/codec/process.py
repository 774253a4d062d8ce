"""The server's end of the process that reads and writes large JSON: one life of it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, cast

import numpy as np

from tritonpy.errors import ErrorCode, TritonError
from tritonpy.frontends.http.codec.flat_json import FlatParts, InputForms
from tritonpy.frontends.http.codec.large_json import Outcome, Parts
from tritonpy.frontends.http.codec.worker import (
    DONE,
    FAILED,
    KEPT_BYTE_SIZE,
    TAKE_APART,
    TAKE_FLAT,
    WRITE_DATA,
)
from tritonpy.ipc import frame
from tritonpy.ipc.channel import (
    CHANNEL_VARIABLE,
    INLINE_BYTE_SIZE,
    SEGMENT_VARIABLE,
    Endpoint,
    TensorData,
)
from tritonpy.ipc.frame import FrameReader, Message
from tritonpy.secret_variables import without_secrets
from tritonpy.tensor import Tensor
from tritonpy.workers.child_process import how_it_ended, spawn

_COMMAND = [sys.executable, "-P", "-m", "tritonpy.frontends.http.codec.worker"]
_START_TIMEOUT_S = 30.0
_EXIT_TIMEOUT_S = 2.0
_COPY_HERE = 64 * 1024
_STANDARD_ERROR = 2


class CodecGone(Exception):
    """The process ended while it was asked for something; says how."""


class CodecProcess(asyncio.Protocol):
    """A running process; on the loop only.

    Attributes:
        is_alive: it takes requests.
    """

    def __init__(self) -> None:
        self.is_alive = False
        self._reader = FrameReader()
        self._replies: dict[int, asyncio.Future[Message]] = {}
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._job_count = 0
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None  # started
        return self._process.pid

    async def start(self) -> None:
        """Exec the program, and wait until it runs.

        Raises:
            OSError, ValueError: processes, or descriptors for them, cannot be had here.
            CodecGone: it ended at once, or did not say that it runs.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            channel, their_channel = socket.socketpair()
            ours.callback(channel.close)
            theirs.callback(their_channel.close)
            segments, their_segments = socket.socketpair()
            # What it decodes is read by a model's worker where it is, so its blocks can be lent on.
            self._endpoint = Endpoint(segments, lends=True)
            ours.callback(self._endpoint.close)
            theirs.callback(their_segments.close)
            self._endpoint.arena.keep_byte_size = KEPT_BYTE_SIZE
            channel.setblocking(False)
            segments.setblocking(False)
            descriptors = (their_channel.fileno(), their_segments.fileno())
            environment = {
                **without_secrets(os.environ),
                CHANNEL_VARIABLE: str(descriptors[0]),
                SEGMENT_VARIABLE: str(descriptors[1]),
            }
            outputs = (subprocess.DEVNULL, _STANDARD_ERROR)
            self._process = await spawn(_COMMAND, environment, descriptors, outputs)
            try:
                await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=channel)
            except BaseException:  # there is no connection whose end would have it reaped
                self._process.kill()
                await asyncio.to_thread(self._process.wait)
                raise
            ours.pop_all()
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await asyncio.shield(self._started)
        except TimeoutError:
            self.kill()
            raise CodecGone(f"did not start within {_START_TIMEOUT_S:g} seconds") from None

    async def take_apart(self, text: bytes | memoryview) -> Parts:
        """See `large_json.take_apart`; the tensors are where the process put them.

        Raises:
            TritonError: as there.
            CodecGone: the process died of it, or meanwhile.
        """
        data = await self._export(text)
        _, _, _, rest, outcomes = await self._ask(TAKE_APART, (data,))
        return Parts(rest, [(index, self._outcome(outcome)) for index, outcome in outcomes])

    async def take_apart_flat(self, text: bytes | memoryview, forms: InputForms) -> FlatParts:
        """See `flat_json.take_apart_flat`; the tensors are where the process put them.

        Raises:
            TritonError: as there.
            CodecGone: the process died of it, or meanwhile.
        """
        data = await self._export(text)
        _, _, _, rest, inputs = await self._ask(TAKE_FLAT, (data, dict(forms)))
        read = []
        for is_nested, name, packed in inputs:
            outcome = self._outcome(packed)
            assert outcome is not None  # every input has a form
            read.append((is_nested, name, outcome))
        return FlatParts(rest, read)

    async def write_data(self, tensors: Sequence[Tensor]) -> list[memoryview]:
        """See `large_json.write_data`; the texts are where the process put them.

        Raises:
            TritonError: as there.
            CodecGone: the process died of it, or meanwhile.
        """
        encoded = []
        for tensor in tensors:
            buffer = tensor.buffer
            lent = self._endpoint.arena.lend(buffer) if isinstance(buffer, np.ndarray) else None
            wire = tensor.wire()
            data = (lent, len(wire)) if lent is not None else await self._export(wire)
            encoded.append((tensor.name, tensor.datatype, tensor.shape, data))
        *_, texts = await self._ask(WRITE_DATA, encoded)
        return [_view(self._endpoint.adopt(text)) for text in texts]

    def kill(self) -> None:
        """End it at once."""
        self.is_alive = False
        if self._process is not None:
            self._process.kill()

    async def close(self) -> None:
        """Let it go, and return when it is gone."""
        self.is_alive = False
        if self._transport is not None:
            self._transport.close()
            await asyncio.shield(self._gone)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The channel is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it
        self.is_alive = True

    def data_received(self, data: bytes) -> None:
        """Take what the process wrote."""
        for message in self._reader.feed(data):
            self._endpoint.accept(message)
            kind = message[0]
            if kind in (DONE, FAILED):
                reply = self._replies.pop(message[2])
                if not reply.done():
                    reply.set_result(message)
            elif kind == frame.STARTED and not self._started.done():
                self._started.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process is gone, or will be in a moment."""
        self.is_alive = False
        self._reaper = asyncio.get_running_loop().create_task(self._reap())

    # Inside

    async def _export(self, data: bytes | bytearray | memoryview) -> TensorData:
        """Copy a text or tensor into shared memory, on a thread when that takes a while."""
        byte_size = len(data)
        if byte_size <= INLINE_BYTE_SIZE:
            return bytes(data)
        if not self.is_alive:
            raise CodecGone("was gone")
        try:
            reference, view = self._endpoint.arena.allocate(byte_size)
        except ConnectionError:
            raise CodecGone("was gone") from None
        if byte_size <= _COPY_HERE:
            view[:] = data
        else:  # unlike the copying of a memoryview, numpy's lets other threads run
            source = np.frombuffer(data, np.uint8)
            await asyncio.to_thread(np.copyto, np.frombuffer(view, np.uint8), source)
        return reference, byte_size

    async def _ask(self, kind: int, payload: Any) -> Message:  # Any: see worker.py
        if not self.is_alive or self._transport is None:
            raise CodecGone("was gone")
        self._job_count += 1
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._replies[self._job_count] = reply
        self._transport.write(self._endpoint.pack(kind, self._job_count, payload))
        message = await reply
        if message[0] == FAILED:
            raise TritonError(message[4], ErrorCode(message[3]))
        return message

    def _outcome(self, outcome: Message | None) -> Outcome | None:
        if outcome is None:
            return None
        if len(outcome) == 2:
            return TritonError(outcome[1], ErrorCode(outcome[0]))
        name, datatype, shape, data = outcome
        return Tensor(name, datatype, shape, self._endpoint.adopt(data))

    async def _reap(self) -> None:
        process = self._process
        assert process is not None  # connected
        try:
            status = await asyncio.to_thread(process.wait, _EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # busy; nobody waits for what it does
            process.kill()
            status = await asyncio.to_thread(process.wait)
        self._endpoint.close()
        gone = CodecGone(how_it_ended(status))
        replies, self._replies = self._replies, {}
        if not self._started.done():
            self._started.set_exception(gone)
            self._started.exception()  # retrieved, though nobody may wait any more
        for reply in replies.values():
            if not reply.done():
                reply.set_exception(gone)
                reply.exception()  # likewise
        self._gone.set_result(None)


def _view(data: bytes | np.ndarray[Any, Any]) -> memoryview:
    return memoryview(data) if isinstance(data, bytes) else data.data
