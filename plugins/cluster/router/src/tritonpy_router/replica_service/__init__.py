"""The frontend `replica`: tells routers how the server is, and takes from them which models it should have.

Service `tritonpy.cluster.v1.Replica`, over gRPC on a port of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tritonpy.plugin import Address, Frontend, hookimpl

if TYPE_CHECKING:
    from tritonpy_router.replica_service.port import ReplicaPort


@hookimpl
def frontend_initialize(frontend: Frontend) -> None:
    """Check the settings.

    Raises:
        InvalidArg: one is not known, or has a value that it cannot have, or nothing would say who may ask.
    """
    from tritonpy_router.replica_service.port import ReplicaPort
    from tritonpy_router.replica_service.settings import read_settings

    settings = read_settings(frontend)
    frontend.addresses = [settings.address]
    frontend.state = ReplicaPort(frontend, settings)


@hookimpl
async def frontend_start(frontend: Frontend) -> None:
    """Begin to listen."""
    port: ReplicaPort = frontend.state
    await port.start()
    frontend.addresses = [Address(frontend.addresses[0].host, port.number)]


@hookimpl
async def frontend_stop(frontend: Frontend) -> None:
    """Go on to say that the server is stopping, until all requests are answered, and close."""
    port: ReplicaPort = frontend.state
    await port.stop()
