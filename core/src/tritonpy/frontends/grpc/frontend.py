"""The frontend `grpc`: hooks that start and stop its port."""

from __future__ import annotations

from tritonpy.dataplane import Address
from tritonpy.frontends.grpc.transports import GrpcServer, grpc_server
from tritonpy.frontends.services import BuiltInFrontend
from tritonpy.hookspecs import hookimpl


@hookimpl
def frontend_initialize(frontend: BuiltInFrontend) -> None:
    """Check certificates and patterns."""
    frontend.refuse_settings()
    options = frontend.options
    frontend.addresses = [Address(options.grpc_address, options.grpc_port, options.grpc_reuse_port)]
    frontend.state = grpc_server(frontend.dataplane, frontend.services, options)


@hookimpl
async def frontend_start(frontend: BuiltInFrontend) -> None:
    """Listen."""
    server: GrpcServer = frontend.state
    await server.start()
    frontend.addresses = [frontend.addresses[0]._replace(port=server.port)]


@hookimpl
async def frontend_stop(frontend: BuiltInFrontend) -> None:
    """Refuse calls, and close the port when those that are open have ended, or have no time left."""
    await frontend.state.stop(frontend.left_s)
