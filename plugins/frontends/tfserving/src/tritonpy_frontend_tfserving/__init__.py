"""The frontend `tfserving`: the REST API of TensorFlow Serving, for models of any backend."""

from __future__ import annotations

import asyncio

from aiohttp import web
from tritonpy.plugin import Address, Frontend, hookimpl

from tritonpy_frontend_tfserving.handler import Handler
from tritonpy_frontend_tfserving.settings import read_settings


@hookimpl
def frontend_initialize(frontend: Frontend) -> None:
    """Check the settings.

    Raises:
        InvalidArg: one is not known, or has a value that it cannot have.
    """
    settings = read_settings(frontend)
    frontend.addresses = [Address(settings.address, settings.port)]
    frontend.state = Handler(frontend, settings)


@hookimpl
async def frontend_start(frontend: Frontend) -> None:
    """Begin to listen."""
    server = web.Server(frontend.state.answer, handler_cancellation=True, access_log=None)
    listener = await asyncio.get_running_loop().create_server(server, *frontend.addresses[0][:2])
    frontend.addresses = [Address(*listener.sockets[0].getsockname()[:2])]
    frontend.state = server, listener


@hookimpl
async def frontend_stop(frontend: Frontend) -> None:
    """Accept no connections any more, let requests end, and close."""
    server, listener = frontend.state
    listener.close()
    server.pre_shutdown()  # connections end with the request that they have under way
    await frontend.drained()
    await server.shutdown(frontend.left_s)
