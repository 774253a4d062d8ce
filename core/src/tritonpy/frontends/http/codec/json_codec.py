"""Large JSON, read and written where it stops nobody: in a process of its own.

The parser holds the interpreter's lock from the first byte to the last, a second for 50 MB, so a thread would
not help. The process is started when it is first needed, works on one text at a time, and is started again
when it dies; what it was doing is then done once more. Texts go there, and tensors come back, in shared
memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tritonpy.errors import Internal, Unavailable
from tritonpy.frontends.http.codec import large_json
from tritonpy.frontends.http.codec.flat_json import FlatParts, InputForms, put_together_flat, take_apart_flat
from tritonpy.frontends.http.codec.json_body import Json
from tritonpy.frontends.http.codec.process import CodecProcess
from tritonpy.ipc.arena import SharedMemoryExhausted
from tritonpy.ipc.child import ChildGone
from tritonpy.tensor import Tensor

_log = logging.getLogger("tritonpy.http")

MOST_WAITING_BYTE_SIZE = 512 * 1024 * 1024
"""Bytes of texts and tensors that wait or are worked on; beyond that nothing more is taken."""

_RETRY_S = 60.0

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
        # A task, because the process finishes what it has begun, whether or not somebody still waits for it.
        task = asyncio.get_running_loop().create_task(self._do_now(what, byte_size, there, here))

        def finished(task: asyncio.Task[_Result]) -> None:
            self._held -= byte_size
            self._turn.release()
            if not task.cancelled():
                task.exception()  # retrieved, though nobody may wait any more

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
