"""Large JSON, read and written in a process of its own, where it delays no other request.

The parser holds the interpreter's lock from the first byte to the last, a second for 50 MB, so a thread would
not help. The process is started when it is first needed, works on one text at a time, and is started again
when it dies; what it was doing is then done once more. Texts go there, and tensors come back, in shared
memory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tritonpy.errors import ErrorCode, Internal, TritonError, Unavailable
from tritonpy.frontends.http.codec import large_json
from tritonpy.frontends.http.codec.flat_json import FlatParts, InputForms, put_together_flat, take_apart_flat
from tritonpy.frontends.http.codec.json_body import Json
from tritonpy.frontends.http.codec.worker import (
    DONE,
    FAILED,
    KEPT_BYTE_SIZE,
    TAKE_APART,
    TAKE_FLAT,
    WRITE_DATA,
)
from tritonpy.ipc.arena import SharedMemoryExhausted
from tritonpy.ipc.channel import INLINE_BYTE_SIZE, Endpoint, TensorData
from tritonpy.ipc.child import ChildGone
from tritonpy.ipc.child_channel import ChildChannel, launch_process
from tritonpy.ipc.frame import Message
from tritonpy.secret_variables import without_secrets
from tritonpy.tensor import Tensor

_log = logging.getLogger("tritonpy.http")

MOST_WAITING_BYTE_SIZE = 512 * 1024 * 1024
"""Bytes of texts and tensors that wait or are worked on; beyond that nothing more is taken."""

_RETRY_S = 60.0
_COMMAND = [sys.executable, "-P", "-m", "tritonpy.frontends.http.codec.worker"]
_START_TIMEOUT_S = 30.0
_COPY_HERE = 64 * 1024

_Result = TypeVar("_Result")


class JsonCodec:
    """Reads and writes large JSON; on the loop only.

    Where processes cannot be started this way it works on a thread, which others feel.
    """

    def __init__(self) -> None:
        self._process: CodecProcess | None = None
        self._turn = asyncio.Lock()
        self._held = 0
        self._retry_at = 0.0
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return self._process.pid if self._process is not None and self._process.is_alive else None

    async def read(self, text: bytes | memoryview) -> Json:
        """Parse the JSON of an inference request; see `large_json`.

        Cancelled before its turn it costs nothing; after that its result is dropped.

        Raises:
            TritonError: what is wrong with it; Unavailable when too much waits.
        """

        def here() -> large_json.Parts:
            return large_json.take_apart(text)

        async def there(process: CodecProcess) -> large_json.Parts:
            return await process.take_apart(text)

        return large_json.put_together(await self._do("read", len(text), there, here))

    async def read_flat(self, text: bytes | memoryview, forms: InputForms) -> Json:
        """Parse the JSON of a generate request; see `flat_json`. Otherwise as `read`."""

        def here() -> FlatParts:
            return take_apart_flat(text, forms)

        async def there(process: CodecProcess) -> FlatParts:
            return await process.take_apart_flat(text, forms)

        return put_together_flat(await self._do("read", len(text), there, here))

    async def write(self, tensors: Sequence[Tensor]) -> list[bytes] | list[memoryview]:
        """Write the elements of each tensor as a JSON array.

        Raises:
            TritonError: one cannot travel as JSON; Unavailable when too much waits.
        """

        def here() -> list[bytes] | list[memoryview]:
            return large_json.write_data(tensors)

        async def there(process: CodecProcess) -> list[bytes] | list[memoryview]:
            return await process.write_data(tensors)

        return await self._do("written", sum(map(large_json.json_byte_size, tensors)), there, here)

    async def close(self) -> None:
        """End the process."""
        self._is_closed = True
        process, self._process = self._process, None
        if process is not None:
            await process.close()

    async def _do(
        self,
        what: str,
        byte_size: int,
        there: Callable[[CodecProcess], Awaitable[_Result]],
        here: Callable[[], _Result],
    ) -> _Result:
        """Do one thing when its turn comes."""
        if self._held and self._held + byte_size > MOST_WAITING_BYTE_SIZE:
            raise Unavailable(
                f"{byte_size} bytes of JSON cannot be {what} now: {self._held} bytes wait to be read or "
                f"written, and {MOST_WAITING_BYTE_SIZE} is the most. Large tensors are better sent in binary"
            )
        self._held += byte_size
        try:
            await self._turn.acquire()
        except BaseException:
            self._held -= byte_size
            raise
        # A task, because the process finishes what it has begun, also if the waiter is gone.
        task = asyncio.get_running_loop().create_task(self._do_now(what, byte_size, there, here))

        def finished(task: asyncio.Task[_Result]) -> None:
            self._held -= byte_size
            self._turn.release()
            if not task.cancelled():
                task.exception()  # retrieved, also if the waiter is gone

        task.add_done_callback(finished)
        return await asyncio.shield(task)

    async def _do_now(
        self,
        what: str,
        byte_size: int,
        there: Callable[[CodecProcess], Awaitable[_Result]],
        here: Callable[[], _Result],
    ) -> _Result:
        for is_second in (False, True):
            process = await self._ready()
            if process is None:
                return await asyncio.to_thread(here)
            try:
                return await there(process)
            except SharedMemoryExhausted as exc:
                raise Unavailable(f"{byte_size} bytes of JSON cannot be {what} now: {exc}") from None
            except ChildGone as gone:
                if is_second:
                    raise Internal(
                        f"{byte_size} bytes of JSON cannot be {what}: the process that does it {gone}, twice"
                    ) from None
                _log.warning("the process that reads and writes large JSON %s; it is started again", gone)
        raise AssertionError("unreachable")

    async def _ready(self) -> CodecProcess | None:
        """The process, started if need be; None where there can be none."""
        process = self._process
        if process is not None and process.is_alive:
            return process
        if self._is_closed:
            raise Unavailable("the server is stopping")
        now = asyncio.get_running_loop().time()
        if now < self._retry_at:
            return None
        process = CodecProcess()
        try:
            await process.start()
        except (OSError, ValueError, NotImplementedError, AttributeError, ChildGone) as exc:
            self._retry_at = now + _RETRY_S
            _log.warning(
                "large JSON is read and written on a thread, where it stops others for 20 ms a MiB: the "
                "process for it cannot be started (%s)",
                exc,
            )
            return None
        if self._is_closed:
            await process.close()
            raise Unavailable("the server is stopping")
        self._process = process
        return process


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

    async def take_apart(self, text: bytes | memoryview) -> large_json.Parts:
        """See `large_json.take_apart`; the tensors are where the process put them.

        Raises:
            TritonError: as there.
            ChildGone: the process died of it, or meanwhile.
        """
        data = await self._export(text)
        _, _, _, rest, outcomes = await self._ask(TAKE_APART, (data,))
        return large_json.Parts(rest, [(index, self._outcome(outcome)) for index, outcome in outcomes])

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
        """Ask it to end, and return when it has ended."""
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
                reply.exception()  # retrieved, also if the waiter is gone

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

    def _outcome(self, outcome: Message | None) -> large_json.Outcome | None:
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
