"""Health over HTTP: is the server alive, is it ready, is a model.

The statuses are Triton's; what is not ready says why in the body, where Triton says less or nothing.
"""

from __future__ import annotations

from collections.abc import Container

from tritonpy.dataplane import Dataplane
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import TEXT, HttpRequest, json_response, response_head
from tritonpy.handles import JsonObject


class HealthChecks:
    """Answers the paths that probes ask; see `routing.Answer`.

    Args:
        dataplane: what is asked.
        restricted: categories that need a key: reasons are facts of the model repository's.
    """

    def __init__(self, dataplane: Dataplane, restricted: Container[str] = ()) -> None:
        self._dataplane = dataplane
        self._gives_reasons = "model-repository" not in restricted

    def live(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Whether the server runs at all."""
        status = 200 if self._dataplane.is_live() else 400
        connection.write(response_head(status, TEXT, 0, connection.keep_alive))

    def ready(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Whether the server takes requests for its models."""
        unready = self._dataplane.why_not_ready()
        if unready is None:
            connection.write(response_head(200, TEXT, 0, connection.keep_alive))
            return
        document: JsonObject = {"error": "the server is not ready"}
        if self._gives_reasons:
            document = {"error": unready.reason, "models": unready.models}
        connection.write(json_response(document, connection.keep_alive, 400))

    async def model_ready(
        self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]
    ) -> None:
        """Whether a model version takes requests."""
        reason = await self._dataplane.why_model_not_ready(*names)
        if not reason:
            connection.write(response_head(200, TEXT, 0, connection.keep_alive))
            return
        document = {"error": "Model version not ready"}
        if self._gives_reasons:
            document["reason"] = reason
        connection.write(json_response(document, connection.keep_alive, 400))
