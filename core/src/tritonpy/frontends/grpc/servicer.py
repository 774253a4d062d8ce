"""What each call of the service does, without knowing how its bytes came and go.

Inference takes and gives serialized messages, so that tensors are copied no more than they must be; the other
calls take and give message objects.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias, cast

from google.protobuf import json_format
from google.protobuf.message import Message

from tritonpy import protos
from tritonpy.dataplane import Dataplane
from tritonpy.errors import Internal, TritonError, Unavailable, Unsupported
from tritonpy.flow import flow_limits
from tritonpy.frontends.grpc.convert import parse_infer_request, to_infer_request
from tritonpy.frontends.grpc.encoder import ResponseEncoder
from tritonpy.frontends.grpc.errors import as_triton_error
from tritonpy.frontends.grpc.forwarding import Metadata, MetadataForwarding
from tritonpy.frontends.grpc.logging import log_settings
from tritonpy.frontends.grpc.repository import RepositoryCalls
from tritonpy.frontends.grpc.shared_memory import SharedMemoryCalls
from tritonpy.frontends.grpc.stream import STOPPING, InferStream, Read, StreamPort, Write
from tritonpy.frontends.grpc.tracing import TraceCalls, WhenDone, begin_trace, note_sending
from tritonpy.frontends.outputs import UNTREATED, References, of_model
from tritonpy.frontends.services import FrontendServices
from tritonpy.frontends.trace_settings import TraceSettings
from tritonpy.handles import JsonObject
from tritonpy.options import ServerOptions
from tritonpy.request import InferRequest
from tritonpy.request_trace import RequestTrace
from tritonpy.response import InferResponse

_log = logging.getLogger("tritonpy.grpc")

_MOST_HELD_BYTES = 268_435_456
"""Bytes of open requests that one stream may have; no more are read above it."""

DescribedCall: TypeAlias = "Callable[[Message], Message | Awaitable[Message]]"
"""A call that takes one message and gives one, at once or later."""


class Servicer:
    """The calls of `inference.GRPCInferenceService`; on the loop only.

    Args:
        dataplane: what calls are answered with.
        services: what is shared with other frontends.
        options: of the server.

    Attributes:
        reads_metadata: metadata may become parameters of requests, or bring a trace.

    Raises:
        InvalidArg: the options are not in order.
    """

    def __init__(self, dataplane: Dataplane, services: FrontendServices, options: ServerOptions) -> None:
        self._dataplane = dataplane
        self._services = services
        self._admission = services.admission
        self._encoder = ResponseEncoder()
        self._references = References(services.regions)
        self._tracing = services.tracing
        self._trace_settings = TraceSettings(dataplane, services.tracing)
        self._stream_port = StreamPort(
            dataplane,
            self._encoder,
            self._references,
            services.admission,
            services.tracing,
            _MOST_HELD_BYTES,
            flow_limits(options),
        )
        self._forwarding = MetadataForwarding.of(options.grpc_header_forward_pattern)
        self.reads_metadata = self._forwarding is not None or services.tracing.takes_context
        self._streams: set[InferStream] = set()
        self._unary_count = 0
        self._is_stopping = False
        self._drained: asyncio.Future[None] | None = None

    async def drain(self) -> None:
        """Refuse new inference requests, and return when every accepted one is answered."""
        self._is_stopping = True
        for stream in self._streams:
            stream.stop()
        if self._unary_count or self._streams:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    async def model_infer(
        self, body: bytes | memoryview, metadata: Metadata = (), when_done: WhenDone | None = None
    ) -> bytes | TritonError:
        """Run one serialized `ModelInferRequest` and return the serialized response, or the model's error.

        The error is returned, not raised: it may be shared by a whole batch, and raising would tie each
        call's frame, and the tensors in it, to it.

        Args:
            body: the request.
            metadata: what the client sent along, if `reads_metadata`.
            when_done: has a function called when the call is over.

        Raises:
            TritonError: the request was refused.
        """
        if self._is_stopping:
            raise Unavailable(STOPPING)
        admission = self._admission
        byte_size = len(body)
        if not admission.admits(byte_size):
            raise admission.refusal(byte_size)
        sink = _UnarySink(self._encoder, asyncio.get_running_loop().create_future())
        request = self._start(body, metadata, sink)
        admission.hold(byte_size)
        self._unary_count += 1
        try:
            outcome = await sink.outcome
            if sink.trace is not None and when_done is not None:
                note_sending(sink.trace, when_done)
            return outcome
        except asyncio.CancelledError:  # the client went away, or its deadline passed
            alive = request()
            if alive is not None and not alive.ticket.answered:
                admission.hold(byte_size)  # until the model, which has the tensors, is done with them
                sink.on_end = partial(admission.release, byte_size)
                _log.debug("Cancellation notification received for ModelInferHandler", extra=alive.about)
                alive.cancel()
            raise
        finally:
            admission.release(byte_size)
            self._unary_count -= 1
            self._call_ended()

    def _start(
        self, body: bytes | memoryview, metadata: Metadata, sink: _UnarySink
    ) -> weakref.ref[InferRequest]:
        """Hand a request to the data plane; after this the model alone keeps it alive.

        A backend that drops a request without an answer is found out by the request's death.
        """
        arrival_ns = time.monotonic_ns()
        message, raw_contents = parse_infer_request(body)
        model = self._dataplane.find(message.model_name, message.model_version)
        if model.is_decoupled:
            raise Unsupported("ModelInfer RPC doesn't support models with decoupled transaction policy")
        request, _, treatments = to_infer_request(message, raw_contents, self._references)
        if treatments:
            sink.treatments = of_model(treatments, model)
        if self._forwarding is not None:
            request.parameters = {**request.parameters, **self._forwarding.parameters(metadata)}
        request.arrival_ns = arrival_ns
        if self._tracing.is_on:
            request.ticket.trace = sink.trace = begin_trace(
                self._tracing, metadata, request.model_name, arrival_ns
            )
        model.infer(request, sink)
        return weakref.ref(request)

    async def model_stream_infer(self, read: Read, write: Write, metadata: Metadata) -> None:
        """Run serialized requests as they come, and send serialized responses.

        Args:
            read: gives the client's messages.
            write: sends one to the client.
            metadata: what the client sent along; `triton_grpc_error: true` asks that the first error of a
                model ends the call with that error's status.

        Raises:
            TritonError: what the call ends with instead of OK.
        """
        stream = InferStream(
            self._stream_port,
            ends_on_error=("triton_grpc_error", "true") in metadata,
            forwarding=partial(self._forwarding.parameters, metadata) if self._forwarding else None,
            metadata=metadata,
        )
        if self._is_stopping:
            raise Unavailable(STOPPING)
        self._streams.add(stream)
        try:
            await stream.run(read, write)
        finally:
            self._streams.discard(stream)
            self._call_ended()

    def described_calls(self) -> dict[str, DescribedCall]:
        """The calls that take one message and give one, by name."""
        described = {
            name: cast("DescribedCall", call)  # each is called with its own request type
            for name, call in {
                "ServerLive": self._server_live,
                "ServerReady": self._server_ready,
                "ModelReady": self._model_ready,
                "ServerMetadata": self._server_metadata,
                "ModelMetadata": self._model_metadata,
                "ModelConfig": self._model_config,
                "ModelStatistics": self._model_statistics,
                "TraceSetting": TraceCalls(self._trace_settings).trace_setting,
                "LogSettings": log_settings,
            }.items()
        }
        return {
            **described,
            **RepositoryCalls(self._dataplane).by_name(),
            **SharedMemoryCalls(self._services.regions).by_name(),
        }

    def _call_ended(self) -> None:
        if self._drained is not None and not (self._unary_count or self._streams or self._drained.done()):
            self._drained.set_result(None)

    def _server_live(self, request: protos.ServerLiveRequest) -> Message:
        return protos.ServerLiveResponse(live=self._dataplane.is_live())

    def _server_ready(self, request: protos.ServerReadyRequest) -> Message:
        return protos.ServerReadyResponse(ready=self._dataplane.is_ready())

    async def _model_ready(self, request: protos.ModelReadyRequest) -> Message:
        ready = await self._dataplane.model_ready(request.name, request.version)
        return protos.ModelReadyResponse(ready=ready)

    def _server_metadata(self, request: protos.ServerMetadataRequest) -> Message:
        return _filled(protos.ServerMetadataResponse(), self._dataplane.server_metadata())

    def _model_metadata(self, request: protos.ModelMetadataRequest) -> Message:
        metadata = self._dataplane.model_metadata(request.name, request.version)
        return _filled(protos.ModelMetadataResponse(), metadata)

    def _model_config(self, request: protos.ModelConfigRequest) -> Message:
        config = self._dataplane.find(request.name, request.version).config
        return _filled(protos.ModelConfigResponse(), {"config": config})

    def _model_statistics(self, request: protos.ModelStatisticsRequest) -> Message:
        statistics = self._dataplane.model_statistics(request.name, request.version)
        return _filled(protos.ModelStatisticsResponse(), statistics)


def _filled(message: Message, document: JsonObject) -> Message:
    return json_format.ParseDict(document, message, descriptor_pool=protos.POOL)


class _UnarySink:
    """Turns the one response of a request into what its call returns; satisfies `ResponseSink`.

    Attributes:
        outcome: what the call returns.
        treatments: what is wanted with outputs beside their bytes.
        on_end: called when the model is done with a request whose client has gone away.
        trace: takes notes of the request, when it is traced.
    """

    __slots__ = ("_encoder", "_response", "on_end", "outcome", "trace", "treatments")

    def __init__(self, encoder: ResponseEncoder, outcome: asyncio.Future[bytes | TritonError]) -> None:
        self._encoder = encoder
        self._response: InferResponse | None = None
        self.outcome = outcome
        self.treatments = UNTREATED
        self.on_end: Callable[[], None] | None = None
        self.trace: RequestTrace | None = None

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        if self.outcome.done():  # answered, or the client is gone
            if final and self.on_end is not None:
                self.on_end()
            return
        if response is None:
            response = self._response
        elif self._response is not None:
            self._finish(Internal(f"{request.label}expected a single response, got 2"))
            return
        if not final:
            self._response = response
        elif response is None:
            self._finish(Internal(f"{request.label}model '{request.model_name}' sent no response"))
        elif response.error is not None:
            self._finish(response.error)
        else:
            try:
                self._finish(self._encoder.encode(request, response, self.treatments))
            except Exception as exc:
                where = f"{request.label}writing the response of model '{request.model_name}'"
                self._finish(as_triton_error(exc, where, request.id))

    def _finish(self, outcome: bytes | TritonError) -> None:
        self._response = None
        self.outcome.set_result(outcome)
