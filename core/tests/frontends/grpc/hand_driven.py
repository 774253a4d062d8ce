"""A stream without sockets: messages go in by hand, and what is written comes out as the test takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tritonclient.grpc import service_pb2
from tritonpy.admission import Admission
from tritonpy.flow import DEFAULT_LIMITS, FlowLimits
from tritonpy.frontends.grpc.encoder import ResponseEncoder
from tritonpy.frontends.grpc.stream import InferStream, StreamPort
from tritonpy.frontends.outputs import References
from tritonpy.response import InferResponse
from tritonpy.shared_memory.registry import SharedMemoryRegions
from tritonpy.tracing.tracing import Tracing

from ...simulator.virtual_loop import turns
from ..data_plane import FakeDataplane
from .streams import described

MEBIBYTE = 1024 * 1024


class Call:
    """One call in front of a data plane that is steered by the test.

    Args:
        admission: of all calls; None for one without a limit.
        max_held_byte_size: bytes of its requests that may be open.
        flow_limits: how far its client may fall behind.
        has_shortcut: its transport brings and sends at once what nobody has to wait for.
        **options: of the stream.

    Attributes:
        plane: what the stream asks.
        port: where the call came in.
        received: the messages that its client has taken.
        running: the call.
    """

    def __init__(
        self,
        admission: Admission | None = None,
        max_held_byte_size: int = 64 * MEBIBYTE,
        flow_limits: FlowLimits = DEFAULT_LIMITS,
        has_shortcut: bool = False,
        **options: Any,
    ) -> None:
        self.plane = FakeDataplane()
        self.admission = admission or Admission(0)
        self.port = StreamPort(
            self.plane,  # type: ignore[arg-type]
            ResponseEncoder(),
            References(SharedMemoryRegions(is_allowed=True)),
            self.admission,
            Tracing(),
            max_held_byte_size,
            flow_limits,
        )
        self.stream = InferStream(self.port, **options)
        self.received: list[Any] = []
        self._incoming: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._reads = True
        self._room = asyncio.Semaphore(0)
        self._is_reading = self._is_writing = False
        self._take: Callable[[bytes], bool] | None = None
        shortcut = self if has_shortcut else None
        self.running = asyncio.create_task(self.stream.run(self._read, self._write, shortcut))

    async def send(self, *messages: Any) -> None:
        """Send messages, bytes, or what reading them raises."""
        for message in messages:
            if not isinstance(message, (bytes, Exception)):
                message = message.SerializeToString()
            is_offered = self._take and self._is_reading and self._incoming.empty()
            if not (is_offered and isinstance(message, bytes) and self._take(message)):
                self._incoming.put_nowait(message)
        await turns()

    async def half_close(self) -> None:
        """Send nothing more."""
        self._incoming.put_nowait(None)
        await turns()

    def stop_reading(self) -> None:
        """Take nothing any more."""
        self._reads = False

    async def take(self, count: int = 1) -> None:
        """Take some messages that wait."""
        for _ in range(count):
            self._room.release()
        await turns()

    async def read_on(self) -> None:
        """Take what comes."""
        self._reads = True
        self._room.release()
        await turns()

    async def deliver(self, id: str, *responses: InferResponse | None, final: bool = True) -> None:
        """Answer the request with this id; the last response is final if `final`."""
        request = next(request for request in self.plane.requests if request.id == id)
        for index, response in enumerate(responses):
            request.deliver(response, final and index == len(responses) - 1)
        await turns()

    @property
    def described(self) -> list[tuple[str, str, str, bool | None]]:
        """Of each message the error, the request's id, the model and the final flag."""
        return [described(message) for message in self.received]

    @property
    def ids(self) -> list[str]:
        return [message.infer_response.id for message in self.received]

    @property
    def unread_count(self) -> int:
        """Messages that the stream has not read."""
        return self._incoming.qsize()

    async def _read(self) -> bytes | None:
        self._is_reading = True
        message = await self._incoming.get()
        self._is_reading = False
        if isinstance(message, Exception):
            raise message
        return message

    async def _write(self, message: bytes) -> None:
        self._is_writing = True
        if not self._reads:
            await self._room.acquire()
        self._is_writing = False
        self._receive(message)

    # Of its transport.

    def write_now(self, message: bytes) -> bool:
        assert not self._is_writing
        if not self._reads:
            return False
        self._receive(message)
        return True

    def offer_to(self, receive: Callable[[bytes], bool]) -> None:
        self._take = receive

    def _receive(self, message: bytes) -> None:
        self.received.append(service_pb2.ModelStreamInferResponse.FromString(message))
