"""Inference over HTTP: from a request to the data plane, and its one response back."""

from __future__ import annotations

import logging
import time
import weakref

from tritonpy.errors import Internal, InvalidArg, TritonError, Unsupported
from tritonpy.frontends.dataplane import Dataplane
from tritonpy.frontends.header_forwarding import forwarded_parameters
from tritonpy.frontends.http.encoder import ResponseEncoder
from tritonpy.frontends.http.infer import OutputForm, RequestDecoder
from tritonpy.frontends.http.limits import INFER_HEADER_LENGTH
from tritonpy.frontends.http.message import BINARY, JSON, HttpRequest, error_response, response_head
from tritonpy.frontends.http.protocol import HttpConnection
from tritonpy.frontends.http.raw_request import parse_raw_request
from tritonpy.frontends.outputs import References
from tritonpy.frontends.services import FrontendServices
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse

_log = logging.getLogger("tritonpy.http")


class Inference:
    """Answers `infer`."""

    def __init__(self, dataplane: Dataplane, services: FrontendServices) -> None:
        self._dataplane = dataplane
        self._decoder = RequestDecoder(References(dataplane, services.regions))
        self._encoder = ResponseEncoder()

    def infer(self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]) -> None:
        """Answer one request; see `routing.Answer`."""
        arrival_ns = time.monotonic_ns()
        name, version = names
        dataplane = self._dataplane
        if dataplane.is_decoupled(name, version):
            raise Unsupported("HTTP end point doesn't support models with decoupled transaction policy")
        encoding = request.headers.get(b"content-encoding", b"identity")
        if encoding.lower() != b"identity":
            raise Unsupported("Unsupported compression type")
        header_length = _header_length(request)
        if header_length == 0 or not request.body:
            specs = dataplane.input_specs(name, version)
            is_batched = dataplane.model_config(name, version).get("max_batch_size", 0) > 0
            infer_request, form = parse_raw_request(request.body, specs, name, version, is_batched=is_batched)
        else:
            infer_request, form = self._decoder.decode(request.body, header_length, name, version)
        if request.forwarded is not None:
            forwarded = forwarded_parameters(request.forwarded)
            infer_request.parameters = {**infer_request.parameters, **forwarded}
        infer_request.arrival_ns = arrival_ns
        infer_request.sink = _Answer(connection, self._encoder, form)
        dataplane.infer(infer_request)
        if not infer_request.answered:
            connection.watch(Canceller(infer_request))


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


class Canceller:
    """Cancels a request whose client is gone, without keeping the request alive."""

    __slots__ = ("_request",)

    def __init__(self, request: InferRequest) -> None:
        self._request = weakref.ref(request)

    def __call__(self) -> None:
        """The client is gone; see `HttpConnection.watch`."""
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
