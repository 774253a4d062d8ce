"""Which path does what."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import orjson

from tritonpy.errors import Internal, InvalidArg, TritonError, Unsupported
from tritonpy.frontends.dataplane import Dataplane
from tritonpy.frontends.http.encoder import ResponseEncoder
from tritonpy.frontends.http.infer import OutputForm, RequestDecoder, parse_raw_request
from tritonpy.frontends.http.message import BINARY, JSON, HttpRequest, error_response, refusal, response_head
from tritonpy.frontends.http.protocol import INFER_HEADER_LENGTH, HttpConnection
from tritonpy.frontends.http.repository import RepositoryCalls
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

_log = logging.getLogger("tritonpy.http")

_MODEL = re.compile(r"/v2/models/([^/]+)(?:/versions/([0-9]+))?(?:/(infer|config|stats|ready))?\Z")

Answer = Callable[[HttpRequest, HttpConnection, str, str], None]


class Router:
    """Answers HTTP requests by calling the data plane; satisfies `protocol.Handler`.

    Paths are matched as they came: no URL decoding, no trailing slash, query strings ignored.
    """

    def __init__(self, dataplane: Dataplane) -> None:
        self._dataplane = dataplane
        self._decoder = RequestDecoder()
        self._encoder = ResponseEncoder()
        self._fixed: dict[str, tuple[bytes, Callable[[HttpRequest, HttpConnection], None]]] = {
            "/v2": (b"GET", self._server_metadata),
            "/v2/health/live": (b"GET", self._live),
            "/v2/health/ready": (b"GET", self._ready),
            "/v2/models/stats": (b"GET", self._all_statistics),
        }
        self._repository = RepositoryCalls(dataplane)
        self._tasks: set[asyncio.Task[None]] = set()
        self._model: dict[str | None, tuple[bytes, Answer]] = {
            None: (b"GET", self._model_metadata),
            "infer": (b"POST", self._infer),
            "config": (b"GET", self._model_config),
            "stats": (b"GET", self._model_statistics),
            "ready": (b"GET", self._model_ready),
        }

    def __call__(self, request: HttpRequest, connection: HttpConnection) -> None:
        """Answer one request; nothing raised here reaches the connection."""
        try:
            self._dispatch(request, connection)
        except Exception as exc:
            connection.write(error_response(_as_triton_error(exc, request), connection.keep_alive))

    def _dispatch(self, request: HttpRequest, connection: HttpConnection) -> None:
        fixed = self._fixed.get(request.path)
        if fixed is not None:
            method, answer = fixed
            if request.method == method:
                answer(request, connection)
                return
        elif (match := _MODEL.match(request.path)) is not None:
            name, version, what = match.groups()
            method, answer_model = self._model[what]
            if request.method == method:
                answer_model(request, connection, name, version or "")
                return
        elif (call := self._repository.find(request.path)) is not None:
            if request.method == b"POST":
                self._answer_later(call(request.body), request, connection)
                return
        else:
            connection.write(refusal(404, "Not Found", connection.keep_alive))
            return
        response = refusal(405, "Method Not Allowed", connection.keep_alive)
        if request.method == b"HEAD":  # whose answers have no body
            response = response[: response.index(b"\r\n\r\n") + 4]
        connection.write(response)

    def _answer_later(
        self, answer: Awaitable[Any], request: HttpRequest, connection: HttpConnection
    ) -> None:  # Any: JSON
        """Write what `answer` gives when it is there; its work goes on though the client goes away."""

        async def write() -> None:
            document = await answer
            if document is None:
                self._empty(connection, 200)
            else:
                self._json(connection, document)

        self._go_on(write(), request, connection)

    def _go_on(
        self, work: Coroutine[None, None, None], request: HttpRequest, connection: HttpConnection
    ) -> None:
        async def run() -> None:
            try:
                await work
            except Exception as exc:
                connection.write(error_response(_as_triton_error(exc, request), connection.keep_alive))

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _json(self, connection: HttpConnection, document: Any) -> None:  # Any: JSON
        body = orjson.dumps(document)
        connection.write(response_head(200, JSON, len(body), connection.keep_alive) + body)

    def _empty(self, connection: HttpConnection, status: int) -> None:
        connection.write(response_head(status, b"", 0, connection.keep_alive))

    def _server_metadata(self, request: HttpRequest, connection: HttpConnection) -> None:
        self._json(connection, self._dataplane.server_metadata())

    def _live(self, request: HttpRequest, connection: HttpConnection) -> None:
        self._empty(connection, 200 if self._dataplane.is_live() else 400)

    def _ready(self, request: HttpRequest, connection: HttpConnection) -> None:
        self._empty(connection, 200 if self._dataplane.is_ready() else 400)

    def _all_statistics(self, request: HttpRequest, connection: HttpConnection) -> None:
        self._json(connection, self._dataplane.model_statistics())

    def _model_metadata(
        self, request: HttpRequest, connection: HttpConnection, name: str, version: str
    ) -> None:
        self._json(connection, self._dataplane.model_metadata(name, version))

    def _model_config(
        self, request: HttpRequest, connection: HttpConnection, name: str, version: str
    ) -> None:
        self._json(connection, self._dataplane.model_config(name, version))

    def _model_statistics(
        self, request: HttpRequest, connection: HttpConnection, name: str, version: str
    ) -> None:
        self._json(connection, self._dataplane.model_statistics(name, version))

    def _model_ready(self, request: HttpRequest, connection: HttpConnection, name: str, version: str) -> None:
        async def write() -> None:
            if await self._dataplane.model_ready(name, version):
                self._empty(connection, 200)
            else:
                connection.write(refusal(400, "Model version not ready", connection.keep_alive))

        self._go_on(write(), request, connection)

    def _infer(self, request: HttpRequest, connection: HttpConnection, name: str, version: str) -> None:
        arrival_ns = time.monotonic_ns()
        dataplane = self._dataplane
        if dataplane.is_decoupled(name, version):
            raise Unsupported("HTTP end point doesn't support models with decoupled transaction policy")
        encoding = request.headers.get(b"content-encoding", b"identity")
        if encoding.lower() != b"identity":
            raise Unsupported("Unsupported compression type")
        header_length = _header_length(request)
        if header_length == 0 or not request.body:
            specs = dataplane.input_specs(name, version)
            infer_request, form = parse_raw_request(request.body, specs, name, version)
        else:
            infer_request, form = self._decoder.decode(request.body, header_length, name, version)
        infer_request.arrival_ns = arrival_ns
        infer_request.sink = _Answer(connection, self._encoder, form)
        dataplane.infer(infer_request)
        if not infer_request.answered:
            connection.watch(_Canceller(infer_request))


def _as_triton_error(exc: Exception, request: HttpRequest) -> TritonError:
    """What the client is told of an exception; one that nobody meant for it is logged with its traceback."""
    if isinstance(exc, TritonError):
        return exc
    _log.error("%s %s failed", request.method.decode("latin-1"), request.path, exc_info=exc)
    return Internal(f"{type(exc).__name__}: {exc}")


def _header_length(request: HttpRequest) -> int | None:
    value = request.headers.get(INFER_HEADER_LENGTH)
    if value is None:
        return None
    text = value.strip()
    if text.startswith(b"-") and text[1:].isdigit():
        raise InvalidArg(
            f"inference header size should be in range (0, {len(request.body)}), got: {text.decode()}"
        )
    if not text.isdigit():
        raise InvalidArg(f"Unable to parse Inference-Header-Content-Length, got: {text.decode('latin-1')}")
    return int(text)


class _Canceller:
    """Cancels a request whose client is gone, without keeping the request alive."""

    __slots__ = ("_request",)

    def __init__(self, request: InferRequest) -> None:
        self._request = weakref.ref(request)

    def __call__(self) -> None:
        request = self._request()
        if request is not None:
            request.cancel()


class _Answer:
    """Writes the one response of an inference; satisfies `ResponseSink`."""

    __slots__ = ("_connection", "_encoder", "_form", "_is_answered")

    def __init__(self, connection: HttpConnection, encoder: ResponseEncoder, form: OutputForm) -> None:
        self._connection = connection
        self._encoder = encoder
        self._form = form
        self._is_answered = False

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if self._is_answered:  # by now the connection may be answering its next request
            if response is not None:
                _log.error("%sexpected a single response, got another one", request.label)
            return
        self._is_answered = True
        connection = self._connection
        if response is None:
            response = InferResponse(error=Internal(f"{request.label}the model sent no response"))
        if response.error is not None:
            # Not raised: its traceback would hold the frames below this one, and with them a worker that died
            # together with its shared memory, until the garbage collector happens to run.
            connection.write(error_response(response.error, connection.keep_alive))
            return
        try:
            header, wires, size = self._encoder.encode(request, response, self._form)
        except TritonError as error:
            connection.write(error_response(error, connection.keep_alive))
            return
        except Exception as exc:
            _log.exception("%sthe response cannot be written", request.label)
            failure = Internal(f"{request.label}the response cannot be written: {type(exc).__name__}: {exc}")
            connection.write(error_response(failure, connection.keep_alive))
            return
        keep_alive = connection.keep_alive
        if size is None:
            connection.write(response_head(200, JSON, len(header), keep_alive) + header)
            return
        length = b"Inference-Header-Content-Length: %d\r\n" % len(header)
        head = response_head(200, BINARY, len(header) + size, keep_alive, (length,)) + header
        connection.write_parts(head, wires, size)
