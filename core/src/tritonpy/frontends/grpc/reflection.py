"""The standard reflection service, which tells clients such as grpcurl what they can call and with what.

Two versions of it are in use, which differ in nothing but the name of their package: clients ask for
`grpc.reflection.v1` first, older ones for `grpc.reflection.v1alpha`.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

from tritonpy.frontends.grpc.compression import COMPRESSED, inflate_here
from tritonpy.frontends.grpc.status import Status
from tritonpy.protos import (
    POOL,
    ErrorResponse,
    ExtensionNumberResponse,
    FileDescriptorResponse,
    ListServiceResponse,
    ServerReflectionRequest,
    ServerReflectionResponse,
)
from tritonpy.protos.pool import SERVICE_NAME

HEALTH_SERVICE = "grpc.health.v1.Health"
_STABLE = "grpc.reflection.v1"
_ALPHA = "grpc.reflection.v1alpha"
_SERVICES = sorted(
    (SERVICE_NAME, HEALTH_SERVICE, f"{_ALPHA}.ServerReflection", f"{_STABLE}.ServerReflection")
)
REFLECTION_CALLS = tuple(f"/{package}.ServerReflection/ServerReflectionInfo" for package in (_ALPHA, _STABLE))
"""The calls of both versions of the service, by their full names; one answer for each message."""


def reflection_answer(body: bytes) -> bytes:
    """The serialized answer to one serialized request.

    Raises:
        InvalidArg: it came compressed, and is not small or broken.
        DecodeError: it is no request.
    """
    request = ServerReflectionRequest.FromString(inflate_here(body) if body.startswith(COMPRESSED) else body)
    try:
        answer = _answer(request)
    except KeyError:  # as pools say that they do not know a name
        answer = _error(Status.NOT_FOUND, "not found")
    answer.valid_host = request.host
    answer.original_request.CopyFrom(request)
    return answer.SerializeToString()


def _answer(request: ServerReflectionRequest) -> ServerReflectionResponse:
    match request.WhichOneof("message_request"):
        case "file_by_filename":
            return _files(POOL.FindFileByName(request.file_by_filename))
        case "file_containing_symbol":
            return _files(_file_of(request.file_containing_symbol))
        case "file_containing_extension":  # none of our files has any
            return _error(Status.NOT_FOUND, "not found")
        case "all_extension_numbers_of_type":
            message = POOL.FindMessageTypeByName(request.all_extension_numbers_of_type)
            none = ExtensionNumberResponse(base_type_name=message.full_name)
            return ServerReflectionResponse(all_extension_numbers_response=none)
        case "list_services":
            services = [{"name": name} for name in _SERVICES]
            return ServerReflectionResponse(list_services_response=ListServiceResponse(service=services))
        case None:
            return _error(Status.INVALID_ARGUMENT, "invalid argument")


def _error(code: Status, text: str) -> ServerReflectionResponse:
    return ServerReflectionResponse(error_response=ErrorResponse(error_code=code, error_message=text))


def _file_of(symbol: str) -> FileDescriptor:
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:  # not all forms of protobuf look for calls there
        return POOL.FindMethodByName(symbol).containing_service.file


def _files(file: FileDescriptor) -> ServerReflectionResponse:
    """Return a file and all that it imports, each once."""
    found: dict[str, bytes] = {}
    waiting = [file]
    while waiting:
        file = waiting.pop(0)
        if file.name not in found:
            found[file.name] = file.serialized_pb
            waiting += file.dependencies
    return ServerReflectionResponse(
        file_descriptor_response=FileDescriptorResponse(file_descriptor_proto=found.values())
    )


def _add_alpha() -> None:
    """Add a description of `grpc.reflection.v1alpha` to the pool, made of its successor's."""
    file = descriptor_pb2.FileDescriptorProto.FromString(
        POOL.FindFileContainingSymbol(f"{_STABLE}.ServerReflection").serialized_pb
    )
    file.package = _ALPHA
    file.name = "reflection_v1alpha.proto"
    for field in (field for message in file.message_type for field in message.field if field.type_name):
        field.type_name = field.type_name.replace(_STABLE, _ALPHA)
    for call in (call for service in file.service for call in service.method):
        call.input_type = call.input_type.replace(_STABLE, _ALPHA)
        call.output_type = call.output_type.replace(_STABLE, _ALPHA)
    POOL.AddSerializedFile(file.SerializeToString())


_add_alpha()
