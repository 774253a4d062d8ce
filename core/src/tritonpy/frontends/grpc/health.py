"""The standard health service, `grpc.health.v1.Health`, which probes of Kubernetes and load balancers ask.

It says what `ServerReady` says, whatever the name of the service that is asked for: as in Triton, and because
names of models could not be told from names of services. Whether one model is ready is `ModelReady`'s to say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tritonpy.dataplane import Dataplane
from tritonpy.errors import Unavailable
from tritonpy.frontends.grpc.stream import STOPPING
from tritonpy.protos import HealthCheckRequest, HealthCheckResponse, RpcMethod

_LOOK_EVERY_S = 0.5

_STATUS = {True: HealthCheckResponse.SERVING, False: HealthCheckResponse.NOT_SERVING}

CHECK = RpcMethod("Check", HealthCheckRequest, HealthCheckResponse, False, False)


class HealthCalls:
    """Answers probes; on the loop only.

    Args:
        dataplane: knows whether the server is ready.
    """

    def __init__(self, dataplane: Dataplane) -> None:
        self._dataplane = dataplane
        self._is_over = asyncio.Event()

    def check(self, request: HealthCheckRequest) -> HealthCheckResponse:
        """Answer whether the server is ready."""
        return HealthCheckResponse(status=_STATUS[self._dataplane.is_ready()])

    async def watch(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Say whether the server is ready, and again whenever that has changed, until `end`.

        Raises:
            Unavailable: the server is gone.
        """
        told: bool | None = None
        while True:
            is_over = self._is_over.is_set()
            is_ready = self._dataplane.is_ready()
            if is_ready is not told:
                told = is_ready
                await write(HealthCheckResponse(status=_STATUS[is_ready]).SerializeToString())
            if is_over:
                raise Unavailable(STOPPING)
            await self._pause()

    def end(self) -> None:
        """The server is about to close its port: tell those who watch for the last time."""
        self._is_over.set()

    async def _pause(self) -> None:
        # Readiness depends on every instance of every model. Nobody is told when it changes: that is worth
        # less than looking twice a second while somebody watches.
        try:
            async with asyncio.timeout(_LOOK_EVERY_S):
                await self._is_over.wait()
        except TimeoutError:
            pass
