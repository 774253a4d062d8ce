"""The calls of inference on the native gRPC transport."""

from __future__ import annotations

from tritonpy.dataplane import Dataplane
from tritonpy.frontends.grpc.health import HealthCalls
from tritonpy.frontends.grpc.native.calls import make_calls
from tritonpy.frontends.grpc.native.listener import GrpcListener
from tritonpy.frontends.grpc.servicer import Servicer
from tritonpy.frontends.services import FrontendServices
from tritonpy.options import ServerOptions


class NativeGrpcServer:
    """`inference.GRPCInferenceService`, and the standard services health and reflection, on one address.

    Args:
        dataplane: what calls are answered with.
        services: what it shares with other frontends.
        options: of the server.

    Attributes:
        servicer: answers calls.
        listener: takes connections.

    Raises:
        InvalidArg: the options contradict each other, or a file with a certificate or key is no such thing.
    """

    def __init__(self, dataplane: Dataplane, services: FrontendServices, options: ServerOptions) -> None:
        self.servicer = Servicer(dataplane, services, options)
        self._health = HealthCalls(dataplane)
        self.listener = GrpcListener(make_calls(self.servicer, self._health), services.admission, options)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self.listener.port

    async def start(self) -> None:
        """Listen; see `GrpcListener`."""
        await self.listener.start()

    async def stop(self, timeout_s: float) -> None:
        """Refuse new requests, wait for those in flight, and cancel those that take longer."""
        await self.listener.stop(timeout_s, self.servicer.drain, self._health.end)
