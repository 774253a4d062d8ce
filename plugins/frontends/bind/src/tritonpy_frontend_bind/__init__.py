"""The frontend `bind`: programs elsewhere connect, and their functions become models of the server."""

from __future__ import annotations

from tritonpy.plugin import Frontend, hookimpl

from tritonpy_frontend_bind.listener import Listener
from tritonpy_frontend_bind.settings import read_settings


@hookimpl
def frontend_initialize(frontend: Frontend) -> None:
    """Check the settings.

    Raises:
        InvalidArg: one is not known, or has a value that it cannot have, or the token is missing.
    """
    settings = read_settings(frontend)
    frontend.addresses = settings.addresses
    frontend.state = Listener(frontend, settings)


@hookimpl
async def frontend_start(frontend: Frontend) -> None:
    """Begin to listen."""
    listener: Listener = frontend.state
    frontend.addresses = await listener.start()


@hookimpl
async def frontend_stop(frontend: Frontend) -> None:
    """Take no programs and functions any more, let requests end, and let the programs go."""
    listener: Listener = frontend.state
    listener.refuse()
    await frontend.drained()
    await listener.close()
