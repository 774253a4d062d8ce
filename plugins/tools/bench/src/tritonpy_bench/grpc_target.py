"""The server that is measured, asked over gRPC."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from tritonpy.protos import messages
from tritonpy.protos.pool import SERVICE_NAME

from tritonpy_bench.errors import BenchError
from tritonpy_bench.load import Load
from tritonpy_bench.target import HttpTarget, JsonObject
from tritonpy_bench.tls import TlsFiles

_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class GrpcTarget:
    """A server asked over gRPC; satisfies `Target`."""

    def __init__(self, load: Load) -> None:
        scheme, _, self._address = load.url.rpartition("://")
        self._timeout_s = load.timeout_s
        self._metadata = tuple((name.lower(), value) for name, value in load.headers.items())
        if scheme in ("grpcs", "https") or load.tls:
            credentials = grpc.ssl_channel_credentials(*load.tls.contents())
            self._channel = grpc.secure_channel(self._address, credentials, _UNLIMITED)
        else:
            self._channel = grpc.insecure_channel(self._address, _UNLIMITED)
        self._http = _http_of(load)

    def close(self) -> None:
        self._channel.close()
        if self._http:
            self._http.close()

    def metadata(self, model: str, version: str) -> JsonObject:
        return self._ask("ModelMetadata", messages.ModelMetadataRequest(name=model, version=version))

    def config(self, model: str, version: str) -> JsonObject:
        request = messages.ModelConfigRequest(name=model, version=version)
        config: JsonObject = self._ask("ModelConfig", request, {}).get("config", {})
        return config

    def statistics(self, model: str, version: str) -> list[JsonObject]:
        request = messages.ModelStatisticsRequest(name=model, version=version)
        return list(self._ask("ModelStatistics", request, {}).get("model_stats", ()))

    def reasons(self, model: str, version: str) -> list[JsonObject]:
        return self._http.reasons(model, version) if self._http else []

    def register(self, region: str, key: str, byte_size: int) -> None:
        self._ask(
            "SystemSharedMemoryRegister",
            messages.SystemSharedMemoryRegisterRequest(name=region, key=key, byte_size=byte_size),
        )

    def unregister(self, region: str) -> None:
        with suppress(BenchError):
            self._ask(
                "SystemSharedMemoryUnregister", messages.SystemSharedMemoryUnregisterRequest(name=region)
            )

    def register_cuda(self, region: str, handle: bytes, device: int, byte_size: int) -> None:
        self._ask(
            "CudaSharedMemoryRegister",
            messages.CudaSharedMemoryRegisterRequest(
                name=region, raw_handle=handle, device_id=device, byte_size=byte_size
            ),
        )

    def unregister_cuda(self, region: str) -> None:
        with suppress(BenchError):
            self._ask("CudaSharedMemoryUnregister", messages.CudaSharedMemoryUnregisterRequest(name=region))

    def _ask(self, method: str, request: Any, instead: JsonObject | None = None) -> JsonObject:
        answers = getattr(messages, type(request).__name__.replace("Request", "Response"))
        call = self._channel.unary_unary(
            f"/{SERVICE_NAME}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answers.FromString,
        )
        try:
            answer = call(request, self._timeout_s, metadata=self._metadata, wait_for_ready=False)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            if code == grpc.StatusCode.UNAVAILABLE:
                raise BenchError(
                    f"no server answers at {self._address}: {details}. Start one with "
                    f"`corectl serve --model-repository PATH`, or say with --url where it is"
                ) from None
            if instead is not None:
                return instead
            raise BenchError(f"{details} ({code.name} from {self._address})") from None
        found: JsonObject = MessageToDict(answer, preserving_proto_field_name=True)
        return found


def _http_of(load: Load) -> HttpTarget | None:
    """The HTTP side of the server of a load; files for TLS are for it, too, unless its URL says http."""
    if not load.http_url:
        return None
    is_tls = not load.http_url.startswith("http://")
    return HttpTarget(load.http_url, load.timeout_s, None, load.tls if is_tls else TlsFiles())
