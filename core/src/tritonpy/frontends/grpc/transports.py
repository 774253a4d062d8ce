"""The two ways in which the bytes of gRPC may be moved, and the choice between them."""

from __future__ import annotations

import logging
from importlib import import_module, metadata
from typing import Protocol

from tritonpy.dataplane import Dataplane
from tritonpy.errors import InvalidArg
from tritonpy.frontends.services import FrontendServices
from tritonpy.options import ServerOptions

_log = logging.getLogger("tritonpy.grpc")

_ENGINE = "ngh2"
_SERIES = "0.3."  # its interface may change before the first stable release


class GrpcServer(Protocol):
    """The gRPC port, however its bytes are moved."""

    @property
    def port(self) -> int:
        """The port that is listened on."""

    async def start(self) -> None:
        """Listen.

        Raises:
            InvalidArg: nobody knows the address.
            Unavailable: the address cannot be had.
        """

    async def stop(self, timeout_s: float) -> None:
        """Refuse new requests, wait for those in flight, and cancel those that take longer."""


def grpc_server(dataplane: Dataplane, services: FrontendServices, options: ServerOptions) -> GrpcServer:
    """The server that `--grpc-transport` asks for; only what that needs is imported.

    Args:
        dataplane: what calls are answered with.
        services: what it shares with other frontends.
        options: of the server.

    Raises:
        InvalidArg: the transport is not installed, or the options contradict each other.
    """
    transport = options.grpc_transport
    unusable = "" if transport == "grpcio" else _why_not_native()
    if transport == "native" and unusable:
        raise InvalidArg(f"--grpc-transport=native: {unusable}. pip install 'tritonpy[grpc-native]'")
    if transport == "grpcio" or unusable:
        from tritonpy.frontends.grpc.grpcio.server import GrpcioServer

        why = f" ({unusable})" if unusable else ""
        _log.info("gRPC transport: grpcio %s%s", metadata.version("grpcio"), why)
        return GrpcioServer(dataplane, services, options)
    from tritonpy.frontends.grpc.native.server import NativeGrpcServer

    _log.info("gRPC transport: native, %s %s", _ENGINE, metadata.version(_ENGINE))
    return NativeGrpcServer(dataplane, services, options)


def _why_not_native() -> str:
    """The reason why the engine cannot be used here; "" where it can."""
    try:
        version = metadata.version(_ENGINE)
        import_module(_ENGINE)
    except ImportError as exc:  # it is not there, or has nothing for this system
        return f"the distribution {_ENGINE} cannot be imported: {exc}"
    if not version.startswith(_SERIES):
        return f"the distribution {_ENGINE} is {version}, not {_SERIES}x"
    return ""
