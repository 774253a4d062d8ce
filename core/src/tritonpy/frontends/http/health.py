"""Health over HTTP, for probes: of the server, of a model, and under `/api` for those made for version 1.

The statuses are Triton's; what is not ready says why in the body, where Triton says less or nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container

from tritonpy.dataplane import Dataplane
from tritonpy.errors import NotFound, TritonError
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import (
    JSON,
    TEXT,
    HttpRequest,
    error_body,
    json_bytes,
    json_response,
    response_head,
)
from tritonpy.handles import JsonObject


class HealthChecks:
    """Answers the paths that probes ask; see `router.Answer`.

    Args:
        dataplane: what is asked.
        restricted: categories that need a key: reasons are facts of the model repository's.
    """

    def __init__(self, dataplane: Dataplane, restricted: Container[str] = ()) -> None:
        self._dataplane = dataplane
        self._gives_reasons = "model-repository" not in restricted

    def live(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Answer 200 if the server runs at all."""
        status = 200 if self._dataplane.is_live() else 400
        connection.write(response_head(status, TEXT, 0, connection.keep_alive))

    def ready(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Answer 200 if the server takes requests for its models."""
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
        """Answer 200 if a model version takes requests."""
        reason = await self._dataplane.why_model_not_ready(*names)
        if not reason:
            connection.write(response_head(200, TEXT, 0, connection.keep_alive))
            return
        document = {"error": "Model version not ready"}
        if self._gives_reasons:
            document["reason"] = reason
        connection.write(json_response(document, connection.keep_alive, 400))


class VersionOne:
    """Health and status under `/api`, for probes and dashboards made for version 1 of the protocol.

    Nothing but these: version 1 has other bodies for inference. Each answer has the header `NV-Status`, and
    the status is JSON, spelled as version 1 spelled its messages:

        {"id": "triton", "version": "0.1.0", "uptime_ns": "1000000000", "ready_state": "SERVER_READY",
         "model_status": {"resnet": {"config": {...}, "version_status": {"1": {
            "ready_state": "MODEL_READY", "model_execution_count": "4", "model_inference_count": "32"}}}}}

    64-bit numbers are strings, as everywhere in that protocol. A version that is not ready has
    `ready_state_reason` with a `message`. Of what is restricted for others, nothing is told here.

    Args:
        dataplane: what is told.
        restricted: categories that need a key: their facts are left out of the status.
    """

    def __init__(self, dataplane: Dataplane, restricted: Container[str] = ()) -> None:
        self._dataplane = dataplane
        self._shows_config = "model-config" not in restricted
        self._shows_statistics = "statistics" not in restricted
        self._shows_reasons = "model-repository" not in restricted
        self._started_ns = time.monotonic_ns()
        self._request_count = 0

    def live(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Answer 200 if the server runs at all."""
        self._answer(connection, self._dataplane.is_live())

    def ready(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Answer 200 if the server takes requests for its models."""
        self._answer(connection, self._dataplane.is_ready())

    async def status(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Show the state of the server and of its models, or of one model."""
        (name,) = names
        models = await self._models(name)
        if name and not models:
            error = NotFound(f"no status available for unknown model '{name}'")
            self._answer(connection, False, error_body(error.message), error)
            return
        metadata = self._dataplane.server_metadata()
        document = {
            "id": metadata["name"],
            "version": metadata["version"],
            "uptime_ns": str(time.monotonic_ns() - self._started_ns),
            "ready_state": "SERVER_READY" if self._dataplane.is_ready() else "SERVER_INITIALIZING",
            "model_status": models,
        }
        self._answer(connection, True, json_bytes(document))

    async def _models(self, wanted: str) -> JsonObject:
        models: JsonObject = {}
        for row in await self._dataplane.repository_index():
            name = row["name"]
            if not wanted or name == wanted:
                model = models.setdefault(name, {"version_status": {}})
                if "version" in row:
                    model["version_status"][row["version"]] = self._version(row)
                    if row["state"] == "READY" and self._shows_config:
                        with contextlib.suppress(TritonError):  # gone since
                            model["config"] = self._dataplane.find(name, row["version"]).config
        return models

    def _version(self, row: JsonObject) -> JsonObject:
        status: JsonObject = {"ready_state": f"MODEL_{row['state']}"}
        if row.get("reason") and self._shows_reasons:
            status["ready_state_reason"] = {"message": row["reason"]}
        if row["state"] == "READY" and self._shows_statistics:
            with contextlib.suppress(TritonError):
                counts = self._dataplane.model_statistics(row["name"], row["version"])["model_stats"][0]
                status["model_execution_count"] = str(counts["execution_count"])
                status["model_inference_count"] = str(counts["inference_count"])
        return status

    def _answer(
        self, connection: HttpConnection, is_good: bool, body: bytes = b"", error: TritonError | None = None
    ) -> None:
        self._request_count += 1
        code = "SUCCESS" if error is None else error.code.name
        said = f' msg: "{error.message}"' if error is not None else ""
        server = self._dataplane.server_metadata()["name"]
        line = f'NV-Status: code: {code}{said} server_id: "{server}" request_id: {self._request_count}\r\n'
        head = response_head(
            200 if is_good else 400,
            JSON if body else TEXT,
            len(body),
            connection.keep_alive,
            (line.encode("latin-1", "replace"),),
        )
        connection.write(head + body)
