"""The gRPC port on grpcio: listens, hands calls to their handlers, and stops without losing any."""

from __future__ import annotations

import asyncio

import grpc

from tritonpy.dataplane import Dataplane
from tritonpy.errors import Unavailable
from tritonpy.frontends.grpc.compression import MessageInflation
from tritonpy.frontends.grpc.grpcio.credentials import server_credentials
from tritonpy.frontends.grpc.grpcio.handlers import make_handlers
from tritonpy.frontends.grpc.grpcio.hang_ups import HangUpFilter
from tritonpy.frontends.grpc.grpcio.method_table import GuardedMethodTable, MethodTable
from tritonpy.frontends.grpc.grpcio.options import channel_arguments
from tritonpy.frontends.grpc.guard import CallGuard
from tritonpy.frontends.grpc.health import HealthCalls
from tritonpy.frontends.grpc.servicer import Servicer
from tritonpy.frontends.services import FrontendServices
from tritonpy.frontends.sockets import is_unix, listening_sockets
from tritonpy.options import ServerOptions

_LATE_CALLS_S = 0.05
"""How long a stopping server goes on to refuse calls in words after the last answer."""
_LAST_BYTES_S = 5.0
"""How long a stopping server lets clients take to receive answers that are given."""
_LAST_EVENTS_S = 1.0
"""How long a stopped server waits to hear that they have been sent."""
_TASKS_OF_CALLS = ("HandleExceptions[", "rpc_task")  # as grpcio names them


class GrpcioServer:
    """`inference.GRPCInferenceService`, and the standard services health and reflection, on one address.

    Messages reach the servicer and leave it serialized: there is no generated code, and gRPC copies nothing
    it need not.

    Args:
        dataplane: what calls are answered with.
        services: what it shares with other frontends.
        options: of the server.

    Raises:
        InvalidArg: the options contradict each other, or a file with a certificate or key is no such thing.
    """

    def __init__(self, dataplane: Dataplane, services: FrontendServices, options: ServerOptions) -> None:
        self.servicer = Servicer(dataplane, services, options)
        self._health = HealthCalls(dataplane)
        inflation = MessageInflation(options.grpc_max_inflated_byte_size, services.admission)
        handlers = make_handlers(self.servicer, self._health, inflation)
        self._hang_ups = HangUpFilter(frozenset(handlers))
        self._methods: grpc.GenericRpcHandler = MethodTable(handlers)
        if options.grpc_restricted_protocols:
            self._methods = GuardedMethodTable(handlers, CallGuard(options.grpc_restricted_protocols))
        self._arguments = channel_arguments(options, services.admission.limit)
        self._credentials = server_credentials(options)  # before models take their time to load
        self._options = options
        self._port = options.grpc_port
        self._server: grpc.aio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            InvalidArg: nobody knows the address.
            Unavailable: the address cannot be had.
        """
        server = grpc.aio.server(options=self._arguments)
        server.add_generic_rpc_handlers((self._methods,))
        host = self._options.grpc_address.removeprefix("[").removesuffix("]")
        address = f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"
        if is_unix(host):
            address = host
        try:
            if self._credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, self._credentials)
            self._port = 0 if is_unix(host) else port
        except RuntimeError as exc:
            if is_unix(host):
                raise Unavailable(f"Socket '{host}' cannot be listened on: {exc}") from exc
            # grpcio tells the reason only on standard error; who tries what it tried is told.
            for listener in await listening_sockets(host, self._port, self._options.grpc_reuse_port):
                listener.close()
            raise Unavailable(f"Socket '{host}:{self._port}' cannot be listened on: {exc}") from exc
        await server.start()
        self._hang_ups.install()
        self._server = server

    async def stop(self, timeout_s: float) -> None:
        """Refuse new requests, wait for those in flight, and cancel those that take longer.

        The port closes last, and a moment later than it could: calls that grpcio has received but not handed
        over when it stops end CANCELLED, and a client that has just been answered is about to send the next.
        Until then late ones are told UNAVAILABLE.
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        grace_s: float | None = _LAST_BYTES_S
        try:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.servicer.drain()
                    await asyncio.sleep(_LATE_CALLS_S)
            except TimeoutError:
                grace_s = None
            self._health.end()
            await server.stop(grace_s)
            await _last_events()
        finally:
            self._hang_ups.remove()


async def _last_events() -> None:
    """Return when grpcio has told the calls on this loop what became of them.

    It may do so after the server has ended. Where the loop is closed by then, the next one that this process
    runs for gRPC finds an error in its log.
    """
    calls = [task for task in asyncio.all_tasks() if task.get_name().startswith(_TASKS_OF_CALLS)]
    if calls:
        await asyncio.wait(calls, timeout=_LAST_EVENTS_S)
