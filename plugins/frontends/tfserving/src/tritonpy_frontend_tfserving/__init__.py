"""The frontend `tfserving`: TensorFlow Serving's REST and gRPC APIs, for models of any backend."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from tritonpy.plugin import Address, Frontend, Unavailable, hookimpl

from tritonpy_frontend_tfserving.connection import Connection, make_request
from tritonpy_frontend_tfserving.handler import Handler
from tritonpy_frontend_tfserving.settings import Settings, read_settings

_LAST_S = 1.0
"""Time for the last answers to be sent."""


@dataclass(slots=True)
class _Ports:
    """What listens; `grpc` is None where it is not asked for."""

    settings: Settings
    rest: web.Server | None = None
    listener: asyncio.Server | None = None
    grpc: Any = None  # Any: grpc is untyped


@hookimpl
def frontend_initialize(frontend: Frontend) -> None:
    """Check the settings.

    Raises:
        InvalidArg: one is not known, or has a value that it cannot have.
    """
    settings = read_settings(frontend)
    ports = (settings.port, settings.grpc_port)
    frontend.addresses = [Address(settings.address, port) for port in ports if port is not None]
    frontend.state = _Ports(settings)


@hookimpl
async def frontend_start(frontend: Frontend) -> None:
    """Begin to listen."""
    ports: _Ports = frontend.state
    loop = asyncio.get_running_loop()
    server = ports.rest = web.Server(
        Handler(frontend, ports.settings).answer, request_factory=make_request, handler_cancellation=True
    )
    rest, *grpc = frontend.addresses
    ports.listener = await loop.create_server(lambda: Connection(server, loop), *rest[:2])
    addresses = [Address(*ports.listener.sockets[0].getsockname()[:2])]
    if grpc:
        from tritonpy_frontend_tfserving.grpc_services import (
            GrpcServices,
        )  # a server with REST alone needs none

        ports.grpc, port = GrpcServices(frontend, ports.settings).make_server(grpc[0])
        if not port:
            raise Unavailable(f"frontend '{frontend.name}' cannot listen for gRPC on {grpc[0]}")
        await ports.grpc.start()
        addresses.append(Address(grpc[0].host, port))
    frontend.addresses = addresses


@hookimpl
async def frontend_stop(frontend: Frontend) -> None:
    """Accept no connections any more, let requests end, and close."""
    ports: _Ports = frontend.state
    assert ports.rest is not None  # it was started
    assert ports.listener is not None
    ports.listener.close()
    ports.rest.pre_shutdown()  # connections end with the request that they have under way
    ending = None if ports.grpc is None else asyncio.create_task(ports.grpc.stop(frontend.left_s))
    await frontend.drained()
    await ports.rest.shutdown(frontend.left_s)
    if ending is not None:
        # Every request is answered: what is waited for now are connections that have not asked for anything.
        await ports.grpc.stop(min(frontend.left_s, _LAST_S))
        await ending
