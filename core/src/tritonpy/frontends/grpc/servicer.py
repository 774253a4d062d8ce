"""The calls of the service, without knowledge of the transport that brings and takes their bytes.

Inference takes and gives serialized messages, so that tensors are copied no more than they must be; the other
calls take and give message objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias, cast

from google.protobuf import json_format
from google.protobuf.message import Message

from tritonpy import protos
from tritonpy.dataplane import Dataplane
from tritonpy.errors import Unavailable
from tritonpy.flow import flow_limits
from tritonpy.frontends.grpc.encoder import ResponseEncoder
from tritonpy.frontends.grpc.forwarding import Metadata, MetadataForwarding
from tritonpy.frontends.grpc.logging import log_settings
from tritonpy.frontends.grpc.repository import RepositoryCalls
from tritonpy.frontends.grpc.shared_memory import SharedMemoryCalls
from tritonpy.frontends.grpc.stream import STOPPING, InferStream, Read, Shortcut, StreamPort, Write
from tritonpy.frontends.grpc.tracing import TraceCalls
from tritonpy.frontends.grpc.unary import UnaryPort
from tritonpy.frontends.outputs import References
from tritonpy.frontends.services import FrontendServices
from tritonpy.frontends.trace_settings import TraceSettings
from tritonpy.handles import JsonObject
from tritonpy.options import ServerOptions

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
        unary: where calls of `ModelInfer` come in; see `UnaryInfer`.
        reads_metadata: metadata may become parameters of requests, or bring a trace.

    Raises:
        InvalidArg: the options are not in order.
    """

    def __init__(self, dataplane: Dataplane, services: FrontendServices, options: ServerOptions) -> None:
        self._dataplane = dataplane
        self._services = services
        encoder = ResponseEncoder()
        references = References(services.regions)
        self._trace_settings = TraceSettings(dataplane, services.tracing)
        self._stream_port = StreamPort(
            dataplane,
            encoder,
            references,
            services.admission,
            services.tracing,
            _MOST_HELD_BYTES,
            flow_limits(options),
        )
        self._forwarding = MetadataForwarding.of(options.grpc_header_forward_pattern)
        self.reads_metadata = self._forwarding is not None or services.tracing.takes_context
        self.unary = UnaryPort(
            dataplane,
            encoder,
            references,
            services.admission,
            services.tracing,
            self._forwarding,
            self._call_ended,
        )
        self._streams: set[InferStream] = set()
        self._drained: asyncio.Future[None] | None = None

    async def drain(self) -> None:
        """Refuse new inference requests, and return when every accepted one is answered."""
        self.unary.is_stopping = True
        for stream in self._streams:
            stream.stop()
        if self.unary.open_count or self._streams:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    async def model_stream_infer(
        self, read: Read, write: Write, metadata: Metadata, shortcut: Shortcut | None = None
    ) -> None:
        """Run serialized requests as they come, and send serialized responses.

        Args:
            read: gives the client's messages.
            write: sends one to the client.
            metadata: what the client sent along; `triton_grpc_error: true` asks that the first error of a
                model ends the call with that error's status.
            shortcut: of the transport, if it has one.

        Raises:
            TritonError: what the call ends with instead of OK.
        """
        stream = InferStream(
            self._stream_port,
            ends_on_error=("triton_grpc_error", "true") in metadata,
            forwarding=partial(self._forwarding.parameters, metadata) if self._forwarding else None,
            metadata=metadata,
        )
        if self.unary.is_stopping:
            raise Unavailable(STOPPING)
        self._streams.add(stream)
        try:
            await stream.run(read, write, shortcut)
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
        if self._drained is not None and not (self.unary.open_count or self._streams or self._drained.done()):
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
