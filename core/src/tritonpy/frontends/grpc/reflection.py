"""The standard reflection service, which tells clients such as grpcurl what they can call and with what.

Two versions of it are in use. They differ in nothing but the name of their package: grpcio brings
`grpc.reflection.v1alpha`, clients ask for `grpc.reflection.v1` first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection, reflection_pb2

from tritonpy.protos import POOL
from tritonpy.protos.pool import SERVICE_NAME

_Found = TypeVar("_Found")

HEALTH_SERVICE = "grpc.health.v1.Health"
_ALPHA = "grpc.reflection.v1alpha"
_STABLE = "grpc.reflection.v1"
_SERVICES = (SERVICE_NAME, HEALTH_SERVICE, f"{_ALPHA}.ServerReflection", f"{_STABLE}.ServerReflection")


class _Pools:
    """Several descriptor pools that are searched as one; methods are named as those of a pool.

    Ours comes first: another package in this process may have put messages with our names into the default
    pool.
    """

    def __init__(self, *pools: DescriptorPool) -> None:
        self._pools = pools

    def FindFileByName(self, name: str) -> FileDescriptor:
        return self._first(lambda pool: pool.FindFileByName(name), name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        try:
            return self._first(lambda pool: pool.FindFileContainingSymbol(symbol), symbol)
        except KeyError:  # not all forms of protobuf look for calls there
            call = self._first(lambda pool: pool.FindMethodByName(symbol), symbol)
            return call.containing_service.file

    def FindMessageTypeByName(self, name: str) -> Descriptor:
        return self._first(lambda pool: pool.FindMessageTypeByName(name), name)

    def FindExtensionByNumber(self, message: Descriptor, number: int) -> FieldDescriptor:
        return message.file.pool.FindExtensionByNumber(message, number)

    def FindAllExtensions(self, message: Descriptor) -> list[FieldDescriptor]:
        return message.file.pool.FindAllExtensions(message)

    def _first(self, find: Callable[[DescriptorPool], _Found], wanted: str) -> _Found:
        for pool in self._pools:
            try:
                return find(pool)
            except KeyError:
                continue
        raise KeyError(wanted)


def reflection_handlers() -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """What answers the calls of both versions of the service, by their full names."""
    pools = _Pools(POOL, _stable_pool(), descriptor_pool.Default())
    servicer = reflection.aio.ReflectionServicer(_SERVICES, pool=pools)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return {f"/{package}.ServerReflection/ServerReflectionInfo": handler for package in (_ALPHA, _STABLE)}


def _stable_pool() -> DescriptorPool:
    """A pool that describes `grpc.reflection.v1`, made of what grpcio says of its predecessor."""
    serialized = reflection_pb2.DESCRIPTOR.serialized_pb
    file = descriptor_pb2.FileDescriptorProto.FromString(serialized)
    file.package = _STABLE
    file.name = file.name.replace("v1alpha", "v1")
    fields = (field for message in file.message_type for field in message.field if field.type_name)
    calls = (call for service in file.service for call in service.method)
    for field in fields:
        field.type_name = field.type_name.replace(_ALPHA, _STABLE)
    for call in calls:
        call.input_type = call.input_type.replace(_ALPHA, _STABLE)
        call.output_type = call.output_type.replace(_ALPHA, _STABLE)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool
