"""Health over HTTP: is the server alive, is it ready, is a model.

The statuses are Triton's; what is not ready says why in the body, where Triton says less or nothing.
"""

from __future__ import annotations

from tritonpy.frontends.dataplane import Dataplane
from tritonpy.frontends.http.connection.message import HttpRequest, json_response, response_head
from tritonpy.frontends.http.connection.protocol import HttpConnection


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
        unready = self._dataplane.why_not_ready()
        if unready is None:
            connection.write(response_head(200, b"", 0, connection.keep_alive))
            return
        document = {"error": unready.reason, "models": unready.models}
        connection.write(json_response(document, connection.keep_alive, 400))

    async def model_ready(
        self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]
    ) -> None:
        """Whether a model version takes requests."""
        reason = await self._dataplane.why_model_not_ready(*names)
        if not reason:
            connection.write(response_head(200, b"", 0, connection.keep_alive))
            return
        document = {"error": "Model version not ready", "reason": reason}
        connection.write(json_response(document, connection.keep_alive, 400))
