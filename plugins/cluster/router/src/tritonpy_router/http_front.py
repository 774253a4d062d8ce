"""The paths of the router's HTTP port: most go to a replica as they are, some concern all of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

from tritonpy.errors import InvalidArg
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import TEXT, HttpRequest, json_response, response_head
from tritonpy.frontends.http.router import Answer, Names, Route, get, post

from tritonpy_router.control import Control, Json
from tritonpy_router.http_forward import HttpForward
from tritonpy_router.request_spans import RequestSpans
from tritonpy_router.scan import Asked, Unreadable, scan_json
from tritonpy_router.tracing import RouterTracing
from tritonpy_router.traffic import Traffic

_MODEL = "/v2/models/{model}[/versions/{version}]"
_REPOSITORY = "/v2/repository[/{repository}]"
NOT_SHARED = (
    "shared memory belongs to one machine, and the router's replicas are on others: send tensors with the "
    "request, or start the router with --replicas-share-host beside them"
)
_MOST_INFLATED = 1 << 26


def make_routes(traffic: Traffic, control: Control, shares_host: bool) -> list[Route]:
    """Every route of the port.

    Args:
        traffic: the way to replicas.
        control: all replicas as one.
        shares_host: replicas are on the router's machine, so that clients' shared memory can be theirs.
    """
    view = traffic.view

    def infer(request: HttpRequest, connection: HttpConnection, names: Names) -> None:
        model, version = names
        asked = Asked(model, version)
        if view.facts(model).is_sequence and request.body:
            _read_sequence(request, asked)
        forward = HttpForward(traffic, request, connection, asked)
        if traffic.tracing is not None:
            forward.spans = _begin_spans(traffic.tracing, request, asked)
        forward.begin()

    def to_model(request: HttpRequest, connection: HttpConnection, names: Names) -> None:
        model, version = names
        HttpForward(traffic, request, connection, Asked(model, version)).begin()

    def to_any(request: HttpRequest, connection: HttpConnection, names: Names) -> None:
        HttpForward(traffic, request, connection, Asked()).begin_at(view.any_ready())

    def live(request: HttpRequest, connection: HttpConnection, names: Names) -> None:
        connection.write(response_head(200, TEXT, 0, connection.keep_alive))

    def ready(request: HttpRequest, connection: HttpConnection, names: Names) -> None:
        reason = view.why_not_ready()
        if reason:
            connection.write(json_response({"error": reason}, connection.keep_alive, 400))
        else:
            live(request, connection, names)

    def model_ready(request: HttpRequest, connection: HttpConnection, names: Names) -> None:
        if view.is_model_ready(*names):
            live(request, connection, names)
        else:
            connection.write(json_response({"error": "Model version not ready"}, connection.keep_alive, 400))

    async def index(body: bytes, repository: str) -> Json:
        return await control.index(bytes(body) or b"{}")

    def change(action: str) -> Callable[[bytes, str, str], Json]:
        async def changed(body: bytes, repository: str, model: str) -> None:
            await control.change(model, action, bytes(body))

        return changed

    def everywhere(path: str) -> Callable[..., Json]:
        async def asked(body: bytes, *names: str) -> Json:
            return await control.everywhere("POST", path.format(*names), bytes(body))

        return asked

    routes = [
        *_all(b"POST", "inference", infer, (f"{_MODEL}/infer", f"{_MODEL}/generate")),
        Route(b"POST", f"{_MODEL}/generate_stream", "inference", infer),
        Route(b"GET", "/v2/health/live", "health", live),
        Route(b"GET", "/v2/health/ready", "health", ready),
        Route(b"GET", f"{_MODEL}/ready", "health", model_ready),
        Route(b"GET", "/v2", "metadata", to_any),
        get("/v2/models/stats", "statistics", control.statistics),
        Route(b"GET", _MODEL, "metadata", to_model),
        get(f"{_MODEL}/stats", "statistics", control.statistics),
        Route(b"GET", f"{_MODEL}/explain", "statistics", to_model),
        Route(b"GET", f"{_MODEL}/config", "model-config", to_model),
        Route(b"GET", "/v2/logging", "logging", to_any),
        post("/v2/logging", "logging", everywhere("/v2/logging")),
        Route(b"GET", "/v2/trace/setting", "trace", to_any),
        post("/v2/trace/setting", "trace", everywhere("/v2/trace/setting")),
        Route(b"GET", "/v2/models/{model}/trace/setting", "trace", to_any),
        post("/v2/models/{model}/trace/setting", "trace", everywhere("/v2/models/{}/trace/setting")),
        post(f"{_REPOSITORY}/index", "model-repository", index),
        post(f"{_REPOSITORY}/models/{{model}}/load", "model-repository", change("load"), takes_large=True),
        post(f"{_REPOSITORY}/models/{{model}}/unload", "model-repository", change("unload")),
    ]
    return [*routes, *_memory_routes(to_any, control, shares_host)]


def _memory_routes(to_any: Answer, control: Control, shares_host: bool) -> Iterable[Route]:
    def elsewhere(*_: object) -> None:
        raise InvalidArg(NOT_SHARED)

    for kind in ("system", "cuda"):
        path = f"/v2/{kind}sharedmemory"
        pattern = f"{path}[/region/{{region}}]"
        yield Route(b"GET", f"{pattern}/status", "shared-memory", to_any)
        for action in ("register", "unregister"):

            def asked(body: bytes, region: str, path: str = path, action: str = action) -> Json:
                where = f"{path}/region/{region}" if region else path
                return control.everywhere("POST", f"{where}/{action}", bytes(body))

            yield post(f"{pattern}/{action}", "shared-memory", asked if shares_host else elsewhere)


def _all(method: bytes, category: str, answer: Answer, patterns: Iterable[str]) -> Iterable[Route]:
    return (Route(method, pattern, category, answer) for pattern in patterns)


def _begin_spans(tracing: RouterTracing, request: HttpRequest, asked: Asked) -> RequestSpans | None:
    how = {"network.protocol.name": "http", "http.request.method": "POST", "url.path": request.path}
    spans = tracing.begin(request.headers.items(), request.begun_ns, how)
    if spans is not None:
        spans.names(asked)
    return spans


def _read_sequence(request: HttpRequest, asked: Asked) -> None:
    """Find out which sequence a request belongs to; what cannot be read is the replica's to refuse."""
    headers = request.headers
    length = headers.get(b"inference-header-content-length", b"")
    body = request.body
    try:
        if headers.get(b"content-encoding", b"identity") != b"identity":
            wbits = 31 if headers[b"content-encoding"] == b"gzip" else 15
            body = zlib.decompressobj(wbits=wbits).decompress(body, _MOST_INFLATED)
        scan_json(body, int(length) if length.isdigit() else None, asked)
    except (Unreadable, zlib.error):
        return
