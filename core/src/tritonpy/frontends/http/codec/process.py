"""The server's end of the process that reads and writes large JSON: one life of it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

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
from tritonpy.ipc.channel import INLINE_BYTE_SIZE, Endpoint, TensorData
from tritonpy.ipc.child import ChildGone
from tritonpy.ipc.child_channel import ChildChannel, launch_process
from tritonpy.ipc.frame import Message
from tritonpy.secret_variables import without_secrets
from tritonpy.tensor import Tensor

_COMMAND = [sys.executable, "-P", "-m", "tritonpy.frontends.http.codec.worker"]
_START_TIMEOUT_S = 30.0
_COPY_HERE = 64 * 1024


class CodecProcess:
    """A running process, spoken to through a `ChildChannel` that it owns; on the loop only.

    Attributes:
        is_alive: it takes requests.
    """

    def __init__(self) -> None:
        self.is_alive = False
        self._channel = ChildChannel(self)
        self._replies: dict[int, asyncio.Future[Message]] = {}
        self._last_request = 0

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._channel.pid

    async def start(self) -> None:
        """Exec the program, and wait until it runs.

        Raises:
            OSError, ValueError: processes, or descriptors for them, cannot be had here.
            ChildGone: it ended at once, or did not say that it runs.
        """
        launch = partial(launch_process, command=_COMMAND, environment=without_secrets(os.environ))
        await self._channel.open(launch, _prepare)
        self.is_alive = self._channel.is_connected
        try:
            await self._channel.started(_START_TIMEOUT_S)
        except TimeoutError:
            self.kill()
            raise ChildGone(f"did not start within {_START_TIMEOUT_S:g} seconds") from None

    async def take_apart(self, text: bytes | memoryview) -> Parts:
        """See `large_json.take_apart`; the tensors are where the process put them.

        Raises:
            TritonError: as there.
            ChildGone: the process died of it, or meanwhile.
        """
        data = await self._export(text)
        _, _, _, rest, outcomes = await self._ask(TAKE_APART, (data,))
        return Parts(rest, [(index, self._outcome(outcome)) for index, outcome in outcomes])

    async def take_apart_flat(self, text: bytes | memoryview, forms: InputForms) -> FlatParts:
        """See `flat_json.take_apart_flat`; the tensors are where the process put them.

        Raises:
            TritonError: as there.
            ChildGone: the process died of it, or meanwhile.
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
            ChildGone: the process died of it, or meanwhile.
        """
        encoded = []
        for tensor in tensors:
            buffer = tensor.buffer
            lent = self._channel.endpoint.arena.lend(buffer) if isinstance(buffer, np.ndarray) else None
            wire = tensor.wire()
            data = (lent, len(wire)) if lent is not None else await self._export(wire)
            encoded.append((tensor.name, tensor.datatype, tensor.shape, data))
        *_, texts = await self._ask(WRITE_DATA, encoded)
        return [_view(self._channel.endpoint.adopt(text)) for text in texts]

    def kill(self) -> None:
        """End it at once."""
        self.is_alive = False
        self._channel.kill()

    async def close(self) -> None:
        """Let it go, and return when it is gone."""
        self.is_alive = False
        self._channel.close()
        await asyncio.shield(self._channel.gone)

    # ChildOwner

    def take(self, messages: Sequence[Message]) -> None:
        """Bring answers to those who wait for them."""
        for message in messages:
            if message[0] in (DONE, FAILED):
                reply = self._replies.pop(message[2])
                if not reply.done():
                    reply.set_result(message)

    def channel_lost(self) -> None:
        """Take no more requests."""
        self.is_alive = False

    async def child_ended(self, how: str) -> None:
        """Tell those who wait for answers."""
        replies, self._replies = self._replies, {}
        for reply in replies.values():
            if not reply.done():
                reply.set_exception(ChildGone(how))
                reply.exception()  # retrieved, though nobody may wait any more

    # Inside

    async def _export(self, data: bytes | bytearray | memoryview) -> TensorData:
        """Copy a text or tensor into shared memory, on a thread when that takes a while."""
        byte_size = len(data)
        if byte_size <= INLINE_BYTE_SIZE:
            return bytes(data)
        if not self.is_alive:
            raise ChildGone("was gone")
        try:
            reference, view = self._channel.endpoint.arena.allocate(byte_size)
        except ConnectionError:
            raise ChildGone("was gone") from None
        if byte_size <= _COPY_HERE:
            view[:] = data
        else:  # unlike the copying of a memoryview, numpy's lets other threads run
            source = np.frombuffer(data, np.uint8)
            await asyncio.to_thread(np.copyto, np.frombuffer(view, np.uint8), source)
        return reference, byte_size

    async def _ask(self, kind: int, payload: Any) -> Message:  # Any: see worker.py
        if not self.is_alive:
            raise ChildGone("was gone")
        self._last_request += 1
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._replies[self._last_request] = reply
        self._channel.send(kind, self._last_request, payload)
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
        return Tensor(name, datatype, shape, self._channel.endpoint.adopt(data))


def _prepare(endpoint: Endpoint) -> None:
    endpoint.arena.keep_byte_size = KEPT_BYTE_SIZE


def _view(data: bytes | np.ndarray[Any, Any]) -> memoryview:
    return memoryview(data) if isinstance(data, bytes) else data.data
