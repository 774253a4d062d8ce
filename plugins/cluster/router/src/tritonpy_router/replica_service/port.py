"""The frontend's port: who may ask, and what answers the two calls."""

from __future__ import annotations

import functools
import hmac

from google.protobuf.message import DecodeError
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.frontends.grpc.native.call import Call, CallConnection, RefusedCall
from tritonpy.frontends.grpc.native.connection import CallFactory
from tritonpy.frontends.grpc.native.listener import GrpcListener
from tritonpy.frontends.grpc.native.metadata import RequestHead
from tritonpy.frontends.grpc.native.streaming import Serve, StreamingCall
from tritonpy.frontends.grpc.status import Status
from tritonpy.frontends.grpc.stream import STOPPING
from tritonpy.plugin import Frontend, TritonError

from tritonpy_router.protos import ApplyRequest, WatchRequest
from tritonpy_router.replica_service.applying import Applier
from tritonpy_router.replica_service.report import Reports
from tritonpy_router.replica_service.settings import Settings
from tritonpy_router.secrets import bearer

SERVICE = "/tritonpy.cluster.v1.Replica/"
_REFUSAL = "the token is missing or wrong: expected 'authorization: Bearer TOKEN'"


class ReplicaPort:
    """Answers routers; on the loop only.

    Args:
        frontend: its handle.
        settings: of the frontend.

    Raises:
        InvalidArg: the files of TLS cannot be used.
    """

    def __init__(self, frontend: Frontend, settings: Settings) -> None:
        self._frontend = frontend
        self._applier = Applier(frontend.dataplane)
        self._reports = Reports(frontend.dataplane, lambda: self._applier.revision)
        calls = {
            f"{SERVICE}Watch": _guarded(self._watch, settings.token),
            f"{SERVICE}Apply": _guarded(self._apply, settings.token),
        }
        try:
            self._listener = GrpcListener(calls, frontend.admission, settings.ports)
        except TritonError as exc:
            names = (
                ("--grpc-server-cert", "tls-certificate"),
                ("--grpc-server-key", "tls-key"),
                ("--grpc-root-cert", "tls-client-ca"),
            )
            text = functools.reduce(lambda text, pair: text.replace(*pair), names, exc.message)
            raise InvalidArg(f"--frontend-config {frontend.name}: {text}") from None

    @property
    def number(self) -> int:
        """Of the port that is listened on."""
        return self._listener.port

    async def start(self) -> None:
        """Listen.

        Raises:
            TritonError: the address cannot be had.
        """
        await self._listener.start()

    async def stop(self) -> None:
        """Go on until all requests of the server are answered, and close."""
        await self._listener.stop(self._frontend.left_s, self._frontend.drained, self._reports.end)
        self._reports.end()

    async def _watch(self, call: StreamingCall) -> None:
        request = WatchRequest()
        _read(request, await call.read())
        async for message in self._reports.follow(request.interval_ms):
            await call.write(message)
        raise Unavailable(STOPPING)

    async def _apply(self, call: StreamingCall) -> None:
        request = ApplyRequest()
        _read(request, await call.read())
        await call.write((await self._applier.apply(request)).SerializeToString())


def _read(request: WatchRequest | ApplyRequest, body: bytes | memoryview | bytearray | None) -> None:
    if body is None:
        raise InvalidArg("a call that takes one message got none")
    try:
        request.ParseFromString(bytes(body))
    except DecodeError as exc:
        raise InvalidArg(f"the message cannot be read: {exc}") from None


def _guarded(serve: Serve, token: str) -> CallFactory:
    """A call that nothing is read of unless it brings the token."""
    expected = bearer(token)

    def make(connection: CallConnection, stream: int, head: RequestHead) -> Call:
        if token and not _brings(head, expected):
            return RefusedCall(connection, stream, head, (Status.UNAUTHENTICATED, _REFUSAL))
        return StreamingCall(connection, stream, head, serve)

    return make


def _brings(head: RequestHead, expected: bytes) -> bool:
    given = next((value for name, value in head.headers if name == b"authorization"), b"")
    return hmac.compare_digest(bytes(given), expected)
