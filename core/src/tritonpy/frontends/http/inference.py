"""Inference over HTTP: the steps of one request, and what all requests share."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from tritonpy.dataplane import Dataplane, ServedModel
from tritonpy.errors import Internal, InvalidArg, Unavailable, Unsupported
from tritonpy.frontends.header_forwarding import forwarded_parameters
from tritonpy.frontends.http.answer import AnswerWriter, refuse, unless_lost
from tritonpy.frontends.http.codec.json_codec import JsonCodec
from tritonpy.frontends.http.codec.large_json import LARGE
from tritonpy.frontends.http.compression import ACCEPT_ENCODING, accepted_coding, content_coding
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.limits import INFER_HEADER_LENGTH
from tritonpy.frontends.http.connection.message import RETRY_AFTER, HttpRequest, error_response, refusal
from tritonpy.frontends.http.encoder import ResponseEncoder
from tritonpy.frontends.http.infer import ALL_BINARY, Body, OutputForm, RequestDecoder, split_body
from tritonpy.frontends.http.raw_request import parse_raw_request
from tritonpy.frontends.inflation import inflated
from tritonpy.frontends.outputs import References, of_model
from tritonpy.frontends.services import FrontendServices
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse
from tritonpy.tracing.trace import Trace
from tritonpy.tracing.tracing import Tracing

_log = logging.getLogger("tritonpy.http")

_MOST_DIGITS = 20  # of a size: no body has more, and `int` refuses thousands


class Inference:
    """Answers `infer`, and holds what its requests share.

    Args:
        dataplane: finds the models.
        services: what HTTP shares with other frontends.
        max_input_byte_size: of a body that is JSON, and of one after decompression.
        codec: reads and writes JSON that is large.
    """

    def __init__(
        self, dataplane: Dataplane, services: FrontendServices, max_input_byte_size: int, codec: JsonCodec
    ) -> None:
        self.dataplane = dataplane
        self.tracing = services.tracing
        self.admission = services.admission
        self.limit = max_input_byte_size
        self.codec = codec
        self.decoder = RequestDecoder(References(services.regions, max_input_byte_size))
        self.encoder = ResponseEncoder()
        self.writer = AnswerWriter(codec)

    def infer(
        self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]
    ) -> Awaitable[None] | None:
        """Answer one request; see `router.Answer`."""
        return HttpInference(self, request, connection, names).start()


class HttpInference:
    """One request, from its arrival to its answer; satisfies `ResponseSink`. Its methods are the steps.

    Args:
        shared: what all requests share.
        request: as it was received.
        connection: whose current request it is.
        names: model and version, from the path.
    """

    __slots__ = (
        "_arrival_ns",
        "_coding",
        "_connection",
        "_form",
        "_is_answered",
        "_model",
        "_name",
        "_on_done",
        "_request",
        "_shared",
        "_version",
    )

    def __init__(
        self, shared: Inference, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]
    ) -> None:
        self._shared = shared
        self._request = request
        self._connection = connection
        self._name, self._version = names
        self._arrival_ns = time.monotonic_ns()
        self._form = ALL_BINARY
        self._coding: bytes | None = None
        self._on_done: Callable[[], None] | None = None
        self._is_answered = False

    def start(self) -> Awaitable[None] | None:
        """Find the model, and read the body as the client has coded it."""
        request = self._request
        self._find_model()
        encoding = request.headers.get(b"content-encoding")
        if encoding is not None:
            try:
                coding = content_coding(encoding)
            except Unsupported as error:
                connection = self._connection
                connection.write(refusal(501, error.message, connection.keep_alive, (ACCEPT_ENCODING,)))
                return None
            if coding is not None:
                return self._inflate(coding)
        return self._read(request.body)

    def _find_model(self) -> None:
        model: ServedModel = self._shared.dataplane.find(self._name, self._version)
        if model.is_decoupled:
            raise Unsupported("HTTP end point doesn't support models with decoupled transaction policy")
        self._model = model

    async def _inflate(self, coding: bytes) -> None:
        connection, admission = self._connection, self._shared.admission
        limit = self._shared.limit
        inflating = inflated(self._request.body, coding, limit, "--http-max-input-size", admission)
        try:
            body = await unless_lost(connection, inflating)
        except Unavailable as error:
            connection.write(refusal(503, error.message, connection.keep_alive, (RETRY_AFTER,)))
            return
        admission.hold(len(body))
        self._on_done = release = partial(admission.release, len(body))
        try:
            self._find_model()
            rest = self._read(body)
            if rest is not None:
                await rest
        except BaseException:  # it never got so far that its answer would release it
            release()
            raise

    def _read(self, body: Body) -> Awaitable[None] | None:
        """Read a body that is as the client wrote it: here, or elsewhere if that takes long."""
        header_length = _header_length(self._request, len(body))
        if header_length == 0 or not body:
            inputs, is_batched = self._model.inputs, self._model.max_batch_size > 0
            raw = parse_raw_request(body, inputs, self._name, self._version, is_batched=is_batched)
            self._submit(*raw)
            return None
        if (len(body) if header_length is None else header_length) > LARGE:
            return self._read_elsewhere(body, header_length)
        decoded = self._shared.decoder.decode(body, header_length, self._name, self._version)
        if decoded is None:
            return self._read_elsewhere(body, header_length)
        infer_request, form = decoded
        self._submit(infer_request, form)
        return None

    async def _read_elsewhere(self, body: Body, header_length: int | None) -> None:
        text, tail = split_body(body, header_length)
        document = await unless_lost(self._connection, self._shared.codec.read(text))
        self._request.body = b""  # so large a text need not be held while the model works
        self._find_model()
        self._submit(*self._shared.decoder.read(document, tail, self._name, self._version))

    def _submit(self, infer_request: InferRequest, form: OutputForm) -> None:
        """Give the request to its model, and note how the client wants the answer."""
        request = self._request
        if request.forwarded is not None:
            forwarded = forwarded_parameters(request.forwarded)
            infer_request.parameters = {**infer_request.parameters, **forwarded}
        infer_request.arrival_ns = self._arrival_ns
        accepts = request.headers.get(b"accept-encoding")
        if accepts is not None:
            self._coding = accepted_coding(accepts)
        if form.treatments:
            form = replace(form, treatments=of_model(form.treatments, self._model))
        self._form = form
        hand_over(infer_request, self, self._connection, self._model, self._shared.tracing)

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Write the answer; see `ResponseSink`."""
        if self._is_answered:  # by now the connection may be answering its next request
            if response is not None:
                text = "%sexpected a single response, got another one"
                _log.error(text, request.label, extra=request.about)
            return
        self._is_answered = True
        connection = self._connection
        if self._on_done is not None:
            self._on_done()
        if response is None:
            response = InferResponse(error=Internal(f"{request.label}the model sent no response"))
        if response.error is not None:
            # Not raised: its traceback would hold the frames below this one, and with them a worker that died
            # together with its shared memory, until the garbage collector happens to run.
            connection.write(error_response(response.error, connection.keep_alive))
            return
        try:
            encoded = self._shared.encoder.encode(request, response, self._form)
            self._shared.writer.send(connection, request, encoded, self._coding)
        except Exception as exc:
            refuse(connection, request.about, exc)


def _header_length(request: HttpRequest, body_size: int) -> int | None:
    value = request.headers.get(INFER_HEADER_LENGTH)
    if value is None:
        return None
    if value.isdigit() and len(value) <= _MOST_DIGITS:
        return int(value)
    text = value.strip()
    if text.startswith(b"-") and text[1:].isdigit():
        raise InvalidArg(f"inference header size should be in range (0, {body_size}), got: {text.decode()}")
    if not text.isdigit():
        raise InvalidArg(f"Unable to parse Inference-Header-Content-Length, got: {text.decode('latin-1')}")
    return int(text.lstrip(b"0")[:_MOST_DIGITS] or b"0")


def hand_over(
    infer_request: InferRequest,
    sink: ResponseSink,
    connection: HttpConnection,
    model: ServedModel,
    tracing: Tracing,
) -> None:
    """Give a request to its model; it is cancelled if its client leaves."""
    connection.request_id = infer_request.id
    if tracing.is_on:
        infer_request.ticket.trace = _begin_trace(tracing, connection, model.name, infer_request.arrival_ns)
    model.infer(infer_request, sink)
    if not infer_request.ticket.answered:
        connection.watch(partial(_cancel, weakref.ref(infer_request)))


def _cancel(reference: weakref.ref[InferRequest]) -> None:
    """Cancel a request whose client is gone; the connection must not keep it alive."""
    request = reference()
    if request is not None:
        request.cancel()


def _begin_trace(tracing: Tracing, connection: HttpConnection, model: str, arrival_ns: int) -> Trace | None:
    """The trace of a connection's current request, which the connection goes on with; None for no trace.

    Args:
        tracing: says whether it is traced.
        connection: has received it.
        model: that it is for.
        arrival_ns: when it was complete.
    """
    request = connection.current
    if request is None:  # its client is gone already
        return None
    parent = state = None
    if tracing.takes_context:
        parent, state = (_header(request.headers.get(name)) for name in (b"traceparent", b"tracestate"))
    trace = tracing.begin(model, parent, state)
    if trace is not None:
        trace.report_activity("HTTP_RECV_START", request.begun_ns or arrival_ns)
        trace.report_activity("HTTP_RECV_END", arrival_ns)
        connection.follow(trace)
    return trace


def _header(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
