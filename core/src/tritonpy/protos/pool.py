"""Our message descriptors in a descriptor pool of their own.

Generated `_pb2` modules live in protobuf's default pool, where a second package that brings the names
`inference.*` (tritonclient, MLServer, KServe) fails at import, and they refuse older protobuf runtimes. A
serialized descriptor set in a private pool has neither problem. The price: our classes and tritonclient's are
different classes, so messages cross between them as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "inference"
SERVICE_NAME = "inference.GRPCInferenceService"


def split_descriptor_set(serialized: bytes) -> Iterator[bytes]:
    """Yield the files of a serialized `FileDescriptorSet`, each still serialized.

    The set is `repeated FileDescriptorProto file = 1` and nothing else. Read by hand because the pool wants
    the bytes of each file anyway, and importing `descriptor_pb2` costs more than the rest of this package.
    """
    position = 0
    while position < len(serialized):
        if serialized[position] != 0x0A:  # field 1, length-delimited
            raise ValueError(f"not a FileDescriptorSet: tag {serialized[position]} at offset {position}")
        position += 1
        size = shift = 0
        while True:
            byte = serialized[position]
            position += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield serialized[position : position + size]
        position += size


def load_pool(path: Path) -> tuple[DescriptorPool, tuple[str, ...]]:
    """Read a descriptor set into a new pool; also return the names of its files."""
    pool = DescriptorPool()
    names = []
    for file in split_descriptor_set(path.read_bytes()):
        names.append(pool.AddSerializedFile(file).name)
    return pool, tuple(names)


POOL, FILE_NAMES = load_pool(Path(__file__).with_name("descriptors.binpb"))
"""Give this pool to `text_format`, `json_format` and gRPC reflection wherever they take one."""


@dataclass(frozen=True, slots=True)
class RpcMethod:
    """One call of the gRPC service.

    Attributes:
        name: without service, such as `ModelInfer`.
        request: the class of what the client sends.
        response: the class of what the server sends.
        request_streaming: the client sends any number of messages.
        response_streaming: the server sends any number of messages.
    """

    name: str
    request: type[Message]
    response: type[Message]
    request_streaming: bool
    response_streaming: bool


def rpc_methods() -> tuple[RpcMethod, ...]:
    """All calls of `inference.GRPCInferenceService`, in the order of the .proto file."""
    return tuple(
        RpcMethod(
            method.name,
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            bool(method.client_streaming),
            bool(method.server_streaming),
        )
        for method in POOL.FindServiceByName(SERVICE_NAME).methods
    )
