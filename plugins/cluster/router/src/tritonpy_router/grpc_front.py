"""The calls of the router's gRPC port: most go to a replica as they are, some concern all of them."""

from __future__ import annotations

import base64
import functools
from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import quote

import orjson
from google.protobuf import json_format
from google.protobuf.message import Message
from tritonpy import protos
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.frontends.grpc.guard import INFERENCE_SERVICE
from tritonpy.frontends.grpc.health import CHECK
from tritonpy.frontends.grpc.native.connection import CallFactory
from tritonpy.frontends.grpc.native.streaming import StreamingCall
from tritonpy.frontends.grpc.native.unary import AnsweredCall, described
from tritonpy.frontends.grpc.reflection import HEALTH_SERVICE, REFLECTION_CALLS, reflection_answer
from tritonpy.frontends.grpc.servicer import DescribedCall
from tritonpy.frontends.grpc.stream import STOPPING
from tritonpy.protos import HealthCheckRequest, HealthCheckResponse, rpc_methods

from tritonpy_router.control import Control
from tritonpy_router.grpc_forward.stream import ForwardedStream
from tritonpy_router.grpc_forward.unary import ForwardedUnary
from tritonpy_router.http_front import NOT_SHARED
from tritonpy_router.traffic import Traffic
from tritonpy_router.watching import Readiness

_TO_MODEL = frozenset(("ModelInfer", "ModelMetadata", "ModelConfig"))


def make_calls(
    traffic: Traffic, control: Control, readiness: Readiness, shares_host: bool
) -> dict[str, CallFactory]:
    """What answers each call of the port.

    Args:
        traffic: the way to replicas.
        control: all replicas as one.
        readiness: tells who watches.
        shares_host: replicas are on the router's machine, so that clients' shared memory can be theirs.
    """
    whole = _WholeCalls(traffic, control, shares_host).by_name()
    forwarded = functools.partial(ForwardedUnary, traffic=traffic)
    calls: dict[str, CallFactory] = {}
    for method in rpc_methods():
        name = method.name
        call: CallFactory
        if name == "ModelStreamInfer":
            call = functools.partial(ForwardedStream, traffic=traffic)
        elif name in whole:
            call = functools.partial(AnsweredCall, answer=described(method, whole[name]))
        else:
            call = functools.partial(
                forwarded, needs_model=name in _TO_MODEL, is_inference=name == "ModelInfer"
            )
        calls[INFERENCE_SERVICE + name] = call

    def check(request: HealthCheckRequest) -> HealthCheckResponse:
        return HealthCheckResponse(status=readiness.status)

    async def watch(call: StreamingCall) -> None:
        await call.read()
        async for status in readiness.changes():
            await call.write(HealthCheckResponse(status=status).SerializeToString())
        raise Unavailable(STOPPING)

    async def reflect(call: StreamingCall) -> None:
        while (body := await call.read()) is not None:
            await call.write(reflection_answer(bytes(body)))

    answer = described(CHECK, cast("DescribedCall", check))
    calls[f"/{HEALTH_SERVICE}/Check"] = functools.partial(AnsweredCall, answer=answer)
    calls[f"/{HEALTH_SERVICE}/Watch"] = functools.partial(StreamingCall, serve=watch)
    return {**calls, **dict.fromkeys(REFLECTION_CALLS, functools.partial(StreamingCall, serve=reflect))}


class _WholeCalls:
    """Calls that concern all replicas, or the router itself."""

    def __init__(self, traffic: Traffic, control: Control, shares_host: bool) -> None:
        self._view = traffic.view
        self._control = control
        self._shares_host = shares_host

    def by_name(self) -> dict[str, DescribedCall]:
        """The calls by their names."""
        calls: dict[str, Callable[[Any], Message | Awaitable[Message]]] = {  # Any: each its own request type
            "ServerLive": lambda _: protos.ServerLiveResponse(live=True),
            "ServerReady": lambda _: protos.ServerReadyResponse(ready=not self._view.why_not_ready()),
            "ModelReady": self._model_ready,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": functools.partial(
                self._change, "load", protos.RepositoryModelLoadResponse
            ),
            "RepositoryModelUnload": functools.partial(
                self._change, "unload", protos.RepositoryModelUnloadResponse
            ),
            "TraceSetting": self._trace,
            "LogSettings": self._log,
        }
        for kind in ("System", "Cuda"):
            for action in ("Register", "Unregister"):
                calls[f"{kind}SharedMemory{action}"] = functools.partial(self._memory, kind.lower(), action)
        return cast("dict[str, DescribedCall]", calls)

    def _model_ready(self, request: protos.ModelReadyRequest) -> Message:
        return protos.ModelReadyResponse(ready=self._view.is_model_ready(request.name, request.version))

    async def _statistics(self, request: protos.ModelStatisticsRequest) -> Message:
        statistics = await self._control.statistics(request.name, request.version)
        return _filled(protos.ModelStatisticsResponse(), statistics)

    async def _index(self, request: protos.RepositoryIndexRequest) -> Message:
        rows = await self._control.index(orjson.dumps({"ready": request.ready}))
        return protos.RepositoryIndexResponse(
            models=[protos.RepositoryIndexResponse.ModelIndex(**row) for row in rows]
        )

    async def _change(
        self, action: str, response: type[Message], request: Any
    ) -> Message:  # Any: load or unload
        parameters: dict[str, Any] = {}  # Any: JSON
        for key, value in request.parameters.items():
            kind = value.WhichOneof("parameter_choice")
            if kind is None:
                raise InvalidArg(f"parameter '{key}' of model '{request.model_name}' has no value")
            found = getattr(value, kind)
            parameters[key] = base64.b64encode(found).decode() if isinstance(found, bytes) else found
        body = orjson.dumps({"parameters": parameters}) if parameters else b""
        await self._control.change(request.model_name, action, body)
        return response()

    async def _trace(self, request: protos.TraceSettingRequest) -> Message:
        name = request.model_name
        path = f"/v2/models/{quote(name, safe='')}/trace/setting" if name else "/v2/trace/setting"
        settings: dict[str, Any] = {}  # Any: JSON
        for key, setting in request.settings.items():
            values = list(setting.value)
            settings[key] = None if not values else values if key == "trace_level" else values[0]
        method = "POST" if settings else "GET"
        found = await self._control.everywhere(method, path, orjson.dumps(settings) if settings else b"")
        response = protos.TraceSettingResponse()
        for key, value in found.items():
            response.settings[key].value.extend(value if isinstance(value, list) else [str(value)])
        return response

    async def _log(self, request: protos.LogSettingsRequest) -> Message:
        settings = {
            key: getattr(value, kind)
            for key, value in request.settings.items()
            if (kind := value.WhichOneof("parameter_choice")) is not None
        }
        method = "POST" if settings else "GET"
        found = await self._control.everywhere(
            method, "/v2/logging", orjson.dumps(settings) if settings else b""
        )
        response = protos.LogSettingsResponse()
        for key, value in found.items():
            if isinstance(value, bool):
                response.settings[key].bool_param = value
            elif isinstance(value, int):
                response.settings[key].uint32_param = value
            else:
                response.settings[key].string_param = str(value)
        return response

    async def _memory(self, kind: str, action: str, request: Any) -> Message:  # Any: one of four
        if not self._shares_host:
            raise InvalidArg(NOT_SHARED)
        path = f"/v2/{kind}sharedmemory" + (f"/region/{quote(request.name, safe='')}" if request.name else "")
        document: dict[str, Any] = {}  # Any: JSON
        if action == "Register":
            document = {"byte_size": request.byte_size}
            if kind == "system":
                document |= {"key": request.key, "offset": request.offset}
            else:
                handle = base64.b64encode(request.raw_handle).decode()
                document |= {"device_id": request.device_id, "raw_handle": {"b64": handle}}
        await self._control.everywhere("POST", f"{path}/{action.lower()}", orjson.dumps(document))
        response: type[Message] = getattr(protos, f"{kind.title()}SharedMemory{action}Response")
        return response()


def _filled(message: Message, document: dict[str, Any]) -> Message:  # Any: JSON
    return json_format.ParseDict(document, message, descriptor_pool=protos.POOL)
