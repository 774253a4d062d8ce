"""The two ways in which the bytes of gRPC may be moved, and the choice between them."""

from __future__ import annotations

import logging
from importlib import metadata, util
from typing import Protocol

from tritonpy.dataplane import Dataplane
from tritonpy.errors import InvalidArg
from tritonpy.frontends.services import FrontendServices
from tritonpy.options import ServerOptions

_log = logging.getLogger("tritonpy.grpc")

_ENGINE = "ngh2"


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
    has_engine = util.find_spec(_ENGINE) is not None
    if transport == "native" and not has_engine:
        raise InvalidArg(
            f"--grpc-transport=native needs the distribution {_ENGINE}: pip install 'tritonpy[grpc-native]'"
        )
    if transport == "grpcio" or not has_engine:
        from tritonpy.frontends.grpc.grpcio.server import GrpcioServer

        _log.info("gRPC transport: grpcio %s", metadata.version("grpcio"))
        return GrpcioServer(dataplane, services, options)
    from tritonpy.frontends.grpc.native.server import NativeGrpcServer

    _log.info("gRPC transport: native, %s %s", _ENGINE, metadata.version(_ENGINE))
    return NativeGrpcServer(dataplane, services, options)
