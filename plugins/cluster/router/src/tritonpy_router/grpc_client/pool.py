"""The connections to the gRPC port of one replica."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from tritonpy_router.grpc_client.connection import GrpcUpstream
from tritonpy_router.grpc_client.header_blocks import BlockReader, encoded
from tritonpy_router.replica import Place

_SCRATCH_BYTE_SIZE = 256 * 1024
_CONNECT_S = 5.0


def _nothing() -> None:
    """Nobody waits for the end of a turn."""


class GrpcPool:
    """The connections to one replica: one, and more when it has all the calls it may have; on the loop only.

    Args:
        place: where it is.
        tls: how its port is encrypted; None for not.
        on_turn: called when what came of the replica was told to calls.
    """

    def __init__(
        self, place: Place, tls: ssl.SSLContext | None, on_turn: Callable[[], None] = _nothing
    ) -> None:
        self._place = place
        self._tls = tls
        self._on_turn = on_turn
        host = f"[{place.host}]" if ":" in place.host else place.host
        scheme = b"http" if tls is None else b"https"
        authority = f"{host}:{place.grpc_port}".encode()
        self._lead = encoded(((b":method", b"POST"), (b":scheme", scheme), (b":authority", authority)))
        self._blocks = BlockReader()
        self._open: list[GrpcUpstream] = []
        self._all: set[GrpcUpstream] = set()
        self._shared = memoryview(bytearray(_SCRATCH_BYTE_SIZE))
        self._is_closed = False
        self._connecting: asyncio.Task[GrpcUpstream] | None = None

    def take(self) -> GrpcUpstream | None:
        """A connection that takes a call; None if one has to be made."""
        for connection in self._open:
            if connection.has_place and connection.is_open:
                return connection
        return None

    async def connect(self) -> GrpcUpstream:
        """Make connections, or wait for the one that is being made, until one has a place for a call.

        Raises:
            OSError: it cannot be made, or takes no calls.
            TimeoutError: it takes too long.
        """
        while True:
            if self._connecting is None:
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
                self._connecting.add_done_callback(_look_at)
            made = await asyncio.shield(self._connecting)
            connection = self.take()  # those that have waited too may have filled the new one
            if connection is not None:
                return connection
            if not made.is_open:
                raise ConnectionResetError("the connection ended as soon as it was made")

    def close(self) -> None:
        """Close each connection when its calls are over."""
        self._is_closed = True
        self.retire()

    def retire(self) -> None:
        """Give new calls another connection; those that are open close when their calls are over."""
        for connection in list(self._open):
            connection.close()

    def drop(self) -> None:
        """End all connections, and with them what is under way on them."""
        for connection in list(self._all):
            connection.abort()

    async def _connect(self) -> GrpcUpstream:
        try:
            connection = await self._make()
        finally:
            self._connecting = None  # before those that wait go on: they may need another one
        if self._is_closed or not connection.has_place:
            connection.close()
            raise ConnectionRefusedError(
                "its connections are closed" if self._is_closed else "it takes no calls of a new connection"
            )
        if connection.is_open:  # else it has ended already, and was told so
            self._open.append(connection)
        return connection

    async def _make(self) -> GrpcUpstream:
        place = self._place
        loop = asyncio.get_running_loop()
        scratch = self._shared
        if type(loop).__name__ == "ProactorEventLoop":  # reads in the background
            scratch = memoryview(bytearray(_SCRATCH_BYTE_SIZE))
        async with asyncio.timeout(_CONNECT_S):
            _, connection = await loop.create_connection(
                lambda: GrpcUpstream(
                    scratch, self._lead, self._blocks, self._closed, self._all.discard, self._on_turn
                ),
                place.host,
                place.grpc_port,
                ssl=self._tls,
            )
            self._all.add(connection)
            try:
                await connection.greeted()
            except BaseException:
                connection.abort()
                raise
        return connection

    def _closed(self, connection: GrpcUpstream) -> None:
        if connection in self._open:
            self._open.remove(connection)


def _look_at(task: asyncio.Task[GrpcUpstream]) -> None:
    if not task.cancelled():
        task.exception()  # whoever waited for it has it
