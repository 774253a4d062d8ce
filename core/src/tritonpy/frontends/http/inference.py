"""Inference over HTTP: from a request to the data plane."""

from __future__ import annotations

import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from tritonpy.dataplane import Dataplane, ServedModel
from tritonpy.errors import InvalidArg, Unavailable, Unsupported
from tritonpy.frontends.header_forwarding import forwarded_parameters
from tritonpy.frontends.http.answer import AnswerWriter, InferAnswer, unless_lost
from tritonpy.frontends.http.codec.json_body import NotQuick
from tritonpy.frontends.http.codec.json_codec import JsonCodec
from tritonpy.frontends.http.codec.large_json import LARGE
from tritonpy.frontends.http.compression import ACCEPT_ENCODING, accepted_coding, content_coding
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.limits import INFER_HEADER_LENGTH
from tritonpy.frontends.http.connection.message import RETRY_AFTER, HttpRequest, refusal
from tritonpy.frontends.http.infer import Body, OutputForm, RequestDecoder, split_body
from tritonpy.frontends.http.raw_request import parse_raw_request
from tritonpy.frontends.http.settings import HttpSettings
from tritonpy.frontends.http.tracing import begin_trace
from tritonpy.frontends.inflation import inflated
from tritonpy.frontends.outputs import References, of_model
from tritonpy.frontends.services import FrontendServices
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.tracing.tracing import Tracing

_MOST_DIGITS = 20  # of a size; so many are more than any body has, and `int` refuses thousands

OnDone = Callable[[], None]


class Inference:
    """Answers `infer`.

    Args:
        dataplane: what requests are answered with.
        services: what HTTP shares with other frontends.
        settings: of the HTTP port.
        codec: reads and writes JSON that is large.
    """

    def __init__(
        self, dataplane: Dataplane, services: FrontendServices, settings: HttpSettings, codec: JsonCodec
    ) -> None:
        self._dataplane = dataplane
        self._tracing = services.tracing
        self._admission = services.admission
        self._limit = settings.max_input_byte_size
        self._codec = codec
        self._decoder = RequestDecoder(References(services.regions, settings.max_input_byte_size))
        self._writer = AnswerWriter(codec)

    def infer(
        self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]
    ) -> Awaitable[None] | None:
        """Answer one request; see `routing.Answer`."""
        arrival_ns = time.monotonic_ns()
        model = self._find(names)
        encoding = request.headers.get(b"content-encoding")
        if encoding is not None:
            try:
                coding = content_coding(encoding)
            except Unsupported as error:
                connection.write(refusal(501, error.message, connection.keep_alive, (ACCEPT_ENCODING,)))
                return None
            if coding is not None:
                return self._infer_compressed(request, coding, connection, names, arrival_ns)
        return self._infer_body(model, request, request.body, connection, names, arrival_ns, None)

    def _find(self, names: tuple[str, ...]) -> ServedModel:
        model = self._dataplane.find(*names)
        if model.is_decoupled:
            raise Unsupported("HTTP end point doesn't support models with decoupled transaction policy")
        return model

    async def _infer_compressed(
        self,
        request: HttpRequest,
        coding: bytes,
        connection: HttpConnection,
        names: tuple[str, ...],
        arrival_ns: int,
    ) -> None:
        admission = self._admission
        inflating = inflated(request.body, coding, self._limit, "--http-max-input-size", admission)
        try:
            body = await unless_lost(connection, inflating)
        except Unavailable as error:
            connection.write(refusal(503, error.message, connection.keep_alive, (RETRY_AFTER,)))
            return
        admission.hold(len(body))
        release = partial(admission.release, len(body))
        try:
            rest = self._infer_body(self._find(names), request, body, connection, names, arrival_ns, release)
            if rest is not None:
                await rest
        except BaseException:  # it never got so far that its answer would release it
            release()
            raise

    def _infer_body(
        self,
        model: ServedModel,
        request: HttpRequest,
        body: Body,
        connection: HttpConnection,
        names: tuple[str, ...],
        arrival_ns: int,
        on_done: OnDone | None,
    ) -> Awaitable[None] | None:
        """Answer a request whose body is as the client wrote it."""
        name, version = names
        header_length = _header_length(request, len(body))
        if header_length == 0 or not body:
            is_batched = model.max_batch_size > 0
            infer_request, form = parse_raw_request(body, model.inputs, name, version, is_batched=is_batched)
        elif (len(body) if header_length is None else header_length) > LARGE:
            return self._infer_large(request, body, header_length, connection, names, arrival_ns, on_done)
        else:
            try:
                infer_request, form = self._decoder.decode(body, header_length, name, version)
            except NotQuick:
                return self._infer_large(request, body, header_length, connection, names, arrival_ns, on_done)
        self._submit(model, request, infer_request, form, connection, arrival_ns, on_done)
        return None

    async def _infer_large(
        self,
        request: HttpRequest,
        body: Body,
        header_length: int | None,
        connection: HttpConnection,
        names: tuple[str, ...],
        arrival_ns: int,
        on_done: OnDone | None,
    ) -> None:
        text, tail = split_body(body, header_length)
        document = await unless_lost(connection, self._codec.read(text))
        request.body = b""  # so large a text need not be held while the model works
        infer_request, form = self._decoder.read(document, tail, *names)
        self._submit(self._find(names), request, infer_request, form, connection, arrival_ns, on_done)

    def _submit(
        self,
        model: ServedModel,
        request: HttpRequest,
        infer_request: InferRequest,
        form: OutputForm,
        connection: HttpConnection,
        arrival_ns: int,
        on_done: OnDone | None,
    ) -> None:
        if request.forwarded is not None:
            forwarded = forwarded_parameters(request.forwarded)
            infer_request.parameters = {**infer_request.parameters, **forwarded}
        infer_request.arrival_ns = arrival_ns
        accepts = request.headers.get(b"accept-encoding")
        coding = accepted_coding(accepts) if accepts is not None else None
        if form.treatments:
            form = replace(form, treatments=of_model(form.treatments, model))
        sink = InferAnswer(connection, self._writer, form, coding, on_done)
        hand_over(infer_request, sink, connection, model, self._tracing)


def _header_length(request: HttpRequest, body_size: int) -> int | None:
    value = request.headers.get(INFER_HEADER_LENGTH)
    if value is None:
        return None
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
        infer_request.ticket.trace = begin_trace(
            tracing, connection, infer_request.model_name, infer_request.arrival_ns
        )
    model.infer(infer_request, sink)
    if not infer_request.ticket.answered:
        connection.watch(Canceller(infer_request))


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
