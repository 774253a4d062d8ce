"""A request in parts, between which goes what differs from one time to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from tritonpy.protos import messages

_MOST_INT64 = 2**63
_HEAD_END = b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"


class Parts(Protocol):
    """A request."""

    def plain(self) -> bytes:
        """All of it, as it goes over the wire."""

    def of_sequence(self, correlation_id: int, starts: bool, ends: bool) -> bytes:
        """All of it, as a request of a sequence."""


@dataclass(frozen=True, slots=True)
class HttpParts:
    """A request over HTTP; satisfies `Parts`.

    Attributes:
        head: all but the last lines, which tell lengths.
        parameters: without a bracket at the end, and not empty.
        rest: of the JSON object, from behind the parameters.
        tensors: what follows the JSON.
    """

    head: bytes
    parameters: bytes
    rest: bytes
    tensors: bytes

    def plain(self) -> bytes:
        return self._joined(b"")

    def of_sequence(self, correlation_id: int, starts: bool, ends: bool) -> bytes:
        own = {"sequence_id": correlation_id, "sequence_start": starts, "sequence_end": ends}
        return self._joined(b"," + orjson.dumps(own)[1:-1])

    def _joined(self, own: bytes) -> bytes:
        size = len(self.parameters) + len(own) + len(self.rest)
        lengths = _HEAD_END % (size, size + len(self.tensors))
        return b"".join((self.head, lengths, self.parameters, own, self.rest, self.tensors))


@dataclass(frozen=True, slots=True)
class GrpcParts:
    """A request over gRPC; satisfies `Parts`. More fields of the message may follow behind it.

    Attributes:
        message: a `ModelInferRequest`.
    """

    message: bytes

    def plain(self) -> bytes:
        return b"\0" + len(self.message).to_bytes(4, "big") + self.message

    def of_sequence(self, correlation_id: int, starts: bool, ends: bool) -> bytes:
        own = messages.ModelInferRequest()
        own.parameters["sequence_id"].int64_param = correlation_id
        own.parameters["sequence_start"].bool_param = starts
        own.parameters["sequence_end"].bool_param = ends
        more = own.SerializeToString()
        return b"".join((b"\0", (len(self.message) + len(more)).to_bytes(4, "big"), self.message, more))


@dataclass(frozen=True, slots=True)
class WholeRequest:
    """A request that belongs to no sequence, as to generate endpoints; satisfies `Parts`."""

    data: bytes

    def plain(self) -> bytes:
        return self.data

    def of_sequence(self, correlation_id: int, starts: bool, ends: bool) -> bytes:
        raise AssertionError("generate endpoints have no sequences")


def set_parameter(parameter: Any, value: object) -> None:  # Any: a message `InferParameter`
    """Write a value into the field of its type."""
    match value:
        case bool():
            parameter.bool_param = value
        case int() if value < _MOST_INT64:
            parameter.int64_param = value
        case int():
            parameter.uint64_param = value
        case float():
            parameter.double_param = value
        case _:
            parameter.string_param = str(value)
