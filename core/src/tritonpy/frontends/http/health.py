"""Health over HTTP: is the server alive, is it ready, is a model."""

from __future__ import annotations

from tritonpy.frontends.dataplane import Dataplane
from tritonpy.frontends.http.message import HttpRequest, refusal, response_head
from tritonpy.frontends.http.protocol import HttpConnection


class HealthChecks:
    """Answers the paths that probes ask; see `routing.Answer`."""

    def __init__(self, dataplane: Dataplane) -> None:
        self._dataplane = dataplane

    def live(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Whether the server runs at all."""
        status = 200 if self._dataplane.is_live() else 400
        connection.write(response_head(status, b"", 0, connection.keep_alive))

    def ready(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Whether the server takes requests for its models."""
        status = 200 if self._dataplane.is_ready() else 400
        connection.write(response_head(status, b"", 0, connection.keep_alive))

    async def model_ready(
        self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]
    ) -> None:
        """Whether a model version takes requests."""
        if await self._dataplane.model_ready(*names):
            connection.write(response_head(200, b"", 0, connection.keep_alive))
        else:
            connection.write(refusal(400, "Model version not ready", connection.keep_alive))
