"""Answers `generate` and `generate_stream`: the responses of a model as one JSON object, or as events.

Events leave as they come into being. A sink is called on the loop and must not wait, so what a client has
not read yet is held here. Beyond a limit the sender of its request waits; a client that takes nothing for
long has its request cancelled. The other requests of the batch never notice.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tritonpy.dataplane import Dataplane, ServedModel, TensorSpec
from tritonpy.errors import InvalidArg
from tritonpy.flow import Backlog, FlowLimits
from tritonpy.frontends.http.answer import AnswerWriter, unless_lost, unwritable
from tritonpy.frontends.http.codec.json_codec import JsonCodec
from tritonpy.frontends.http.codec.large_json import LARGE
from tritonpy.frontends.http.connection.answering import HttpConnection
from tritonpy.frontends.http.connection.message import STATUS, HttpRequest, error_body
from tritonpy.frontends.http.connection.stream import ResponseStream
from tritonpy.frontends.http.encoder import Encoded
from tritonpy.frontends.http.generate import (
    encode_event,
    encode_generated,
    parse_generate_request,
    read_generate_request,
)
from tritonpy.frontends.http.inference import hand_over
from tritonpy.frontends.http.orca import FAMILY, REQUEST_HEADER, Series, load_header
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse
from tritonpy.tracing.tracing import Tracing

_log = logging.getLogger("tritonpy.http")

_EVENTS = b"text/event-stream; charset=utf-8"
_EVENT_OVERHEAD_BYTES = 100
"""Bytes of an event that waits, beside its text."""

_EXPANSION = 6
"""The largest ratio of a tensor as JSON to its bytes: the longest form of a character is \\u0000."""

_NOT_ONE = (
    b'{"error":"generate expects model to produce exactly 1 response, use generate stream for model that '
    b'generates various number of responses"}'
)

Headers = Callable[[], Sequence[bytes]]
"""Header lines of a response, made when it begins."""


class Generation:
    """Answers both paths, and holds what their requests share; see `router.Answer`.

    Args:
        dataplane: takes the requests.
        load: the series of a family of metrics, for clients that ask for the load.
        tracing: says which requests are traced.
        codec: reads and writes JSON that is large.
        flow_limits: how far a client may fall behind.
    """

    def __init__(
        self,
        dataplane: Dataplane,
        load: Callable[[str], Series],
        tracing: Tracing,
        codec: JsonCodec,
        *,
        flow_limits: FlowLimits,
    ) -> None:
        self.dataplane = dataplane
        self.tracing = tracing
        self.codec = codec
        self._load = load
        self._writer = AnswerWriter(codec)
        self._flow_limits = flow_limits

    def generate(
        self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]
    ) -> Awaitable[None] | None:
        """Answer with the one response of the model."""
        sink = _OneAnswer(connection, self._writer, self._headers(request))
        return HttpGeneration(self, request, connection, names, sink).start()

    def generate_stream(
        self, request: HttpRequest, connection: HttpConnection, names: tuple[str, ...]
    ) -> Awaitable[None] | None:
        """Answer with every response of the model as it comes."""
        sink = _EventStream(connection, self._headers(request), self._flow_limits)
        return HttpGeneration(self, request, connection, names, sink).start()

    def _headers(self, request: HttpRequest) -> Headers:
        wanted = request.headers.get(REQUEST_HEADER)
        if wanted is None:
            return tuple
        load = self._load

        def headers() -> Sequence[bytes]:
            line = load_header(wanted, load(FAMILY))
            return () if line is None else (line,)

        return headers


class HttpGeneration:
    """One request on its way to its model; its methods are the steps.

    Args:
        shared: what all requests share.
        request: as it was received.
        connection: whose current request it is.
        names: model and version, from the path.
        sink: answers it.
    """

    __slots__ = ("_arrival_ns", "_connection", "_names", "_request", "_shared", "_sink")

    def __init__(
        self,
        shared: Generation,
        request: HttpRequest,
        connection: HttpConnection,
        names: tuple[str, ...],
        sink: ResponseSink,
    ) -> None:
        self._shared = shared
        self._request = request
        self._connection = connection
        self._names = names
        self._sink = sink
        self._arrival_ns = time.monotonic_ns()

    def start(self) -> Awaitable[None] | None:
        """Find the model, and read the body: here, or elsewhere if that takes long."""
        request = self._request
        model = self._shared.dataplane.find(*self._names)
        if request.headers.get(b"content-encoding", b"identity") != b"identity":
            raise InvalidArg("Unsupported content-encoding, only 'identity' is supported.")
        if len(request.body) > LARGE:
            return self._read_elsewhere(model.inputs)
        infer_request = parse_generate_request(request.body, model.inputs, *self._names)
        if infer_request is None:
            return self._read_elsewhere(model.inputs)
        self._submit(model, infer_request)
        return None

    async def _read_elsewhere(self, specs: Mapping[str, TensorSpec]) -> None:
        forms = {name: (spec.datatype, spec.shape) for name, spec in specs.items()}
        reading = self._shared.codec.read_flat(self._request.body, forms)
        document = await unless_lost(self._connection, reading)
        self._request.body = b""  # so large a text need not be held while the model works
        infer_request = read_generate_request(document, specs, *self._names)
        self._submit(self._shared.dataplane.find(*self._names), infer_request)

    def _submit(self, model: ServedModel, infer_request: InferRequest) -> None:
        infer_request.arrival_ns = self._arrival_ns
        hand_over(infer_request, self._sink, self._connection, model, self._shared.tracing)


def _encoded(
    request: InferRequest, response: InferResponse, encode: Callable[[InferRequest, InferResponse], Encoded]
) -> Encoded:
    """One response, or the error in its place."""
    error = response.error
    if error is None:
        try:
            return encode(request, response)
        except Exception as exc:
            error = unwritable(request.about, exc)
    encoded = Encoded(error_body(error.message))
    encoded.status = STATUS[error.code]
    return encoded


class _OneAnswer:
    """Waits for the one response; satisfies `ResponseSink`. Of several the first decides the status."""

    __slots__ = ("_connection", "_count", "_encoded", "_headers", "_writer")

    def __init__(self, connection: HttpConnection, writer: AnswerWriter, headers: Headers) -> None:
        self._connection = connection
        self._writer = writer
        self._headers = headers
        self._count = 0
        self._encoded = Encoded(_NOT_ONE)

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if response is not None:
            self._count += 1
            if self._count == 1:
                self._encoded = _encoded(request, response, encode_generated)
            elif self._count == 2:
                status = self._encoded.status
                self._encoded = Encoded(_NOT_ONE)
                self._encoded.status = status
        if final:
            self._encoded.headers = self._headers()
            self._writer.send(self._connection, request, self._encoded)


class _EventStream:
    """Writes responses as server-sent events; satisfies `ResponseSink`."""

    __slots__ = ("_backlog", "_connection", "_headers", "_held", "_is_complete", "_request", "_stream")

    def __init__(self, connection: HttpConnection, headers: Headers, limits: FlowLimits) -> None:
        self._connection = connection
        self._headers = headers
        self._stream: ResponseStream | None = None
        self._held: deque[bytes] = deque()
        self._backlog = Backlog(limits, self._give_up, _EXPANSION)
        # Only weakly: a request that its backend dropped must be able to die, which is how it gets an answer.
        self._request: weakref.ref[InferRequest] | None = None
        self._is_complete = False

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if self._is_complete:  # by now the connection may be answering its next request
            return
        if response is not None:
            self._take(request, response)
        elif self._stream is None:
            self._begin(200)
        if final and not self._is_complete:
            self._is_complete = True
            self._end_if_sent()

    def _take(self, request: InferRequest, response: InferResponse) -> None:
        stream = self._stream
        if stream is not None and not stream.is_open:  # the client is gone
            return
        encoded = _encoded(request, response, encode_event)
        if stream is None:
            stream = self._begin(encoded.status)
        event = b"data: %b\n\n" % encoded.header
        if not self._held and not stream.is_paused:
            self._write(stream, event)
            return
        if self._request is None:
            self._request = weakref.ref(request)
        if self._backlog.add(len(event) + _EVENT_OVERHEAD_BYTES, request.response_flow):
            self._held.append(event)

    def _begin(self, status: int) -> ResponseStream:
        self._stream = stream = self._connection.start_stream(status, _EVENTS, self._headers())
        stream.on_caught_up = self._send_held
        return stream

    def _send_held(self) -> None:
        stream = self._stream
        assert stream is not None  # it has caught up
        held = self._held
        while held and not stream.is_paused:
            event = held.popleft()
            self._write(stream, event)
            self._backlog.take(len(event) + _EVENT_OVERHEAD_BYTES)
        self._end_if_sent()

    def _write(self, stream: ResponseStream, event: bytes) -> None:
        trace = self._connection.trace
        if trace is None:
            stream.write(event)
            return
        trace.report_activity("HTTP_SEND_START")
        stream.write(event)
        trace.report_activity("HTTP_SEND_END")

    def _end_if_sent(self) -> None:
        if self._is_complete and not self._held and self._stream is not None:
            self._stream.end()

    def _give_up(self, reason: str) -> None:
        """The client reads too slowly: it gets an error in place of what waits, and no more is made."""
        stream = self._stream
        request = self._request() if self._request is not None else None
        label, about = (request.label, request.about) if request is not None else ("", {})
        _log.warning("%scancelled: %s", label, reason, extra=about)
        self._held.clear()
        self._backlog.close()
        self._is_complete = True
        if stream is not None:
            stream.write(b"data: %b\n\n" % error_body(reason))
            stream.end()
        if request is not None:
            request.give_up()
