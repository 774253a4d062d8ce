"""Between frames and the objects of this module; for the worker, and the hot path of every request.

The forms are those of the server's `ipc` package (`frame.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Union

import numpy as np

from ._request import InferenceRequest, Wire
from ._response import InferenceResponse
from ._sender import InferenceResponseSender, Server
from ._strings import printable, serialize_byte_tensor
from ._tensor import Received, Tensor

Location = tuple[int, int]
TensorData = Union[bytes, Location]  # noqa: UP007 (evaluated, also by Python 3.9)
Output = tuple[str, str, "Sequence[int]", TensorData]
Answer = tuple[list[Output], Any, Any]
"""Outputs, parameters or None, error or None. Any: see `frame.py`."""

_SMALL = 16 * 1024  # what the endpoint would inline anyway: `tobytes` is the cheapest way there

_CLOSED = InferenceResponseSender(None, -1, "", None)
_CLOSED._close()


class Endpoint(Protocol):
    """The part of `ipc.channel.Endpoint` that tensors pass through."""

    arena: Any  # Any: gives back blocks that were never sent

    def export(self, data: bytes | memoryview) -> TensorData:
        """Make bytes fit for a frame."""

    def adopt(self, data: TensorData) -> Any:  # Any: bytes, or an array of bytes
        """Received bytes, without a copy."""


def decode_request(wire: Wire, server: Server, endpoint: Endpoint) -> InferenceRequest:
    """Wrap a request as it came; its tensors are views until somebody asks for an array."""
    inputs = []
    for name, datatype, shape, data in wire[8]:
        tensor = Tensor.__new__(Tensor)
        tensor._name = name
        tensor._datatype = datatype
        tensor._shape = shape
        tensor._received = data if type(data) is bytes else endpoint.adopt(data)
        tensor._array = None
        inputs.append(tensor)
    request = InferenceRequest.__new__(InferenceRequest)
    request._wire = wire
    request._inputs = inputs
    request._server = server
    request._sender = None
    return request


def encode_response(
    response: InferenceResponse,
    requested: tuple[str, ...] | None,
    outputs: dict[str, bool],
    endpoint: Endpoint,
) -> Answer:
    """Turn a response into what travels; large outputs are copied into shared memory here, once.

    Args:
        response: what the model answered.
        requested: the outputs the client wants; None for all.
        outputs: the outputs of the configuration, and whether it says BF16. Others are dropped.
        endpoint: where the bytes go.
    """
    error = response._error
    if error is not None:
        return [], None, (int(error._code), printable(error._message))
    encoded: list[Output] = []
    try:
        for tensor in response._outputs:
            name = tensor._name
            if name not in outputs or (requested is not None and name not in requested):
                continue
            datatype = tensor._datatype
            if datatype == "UINT16" and outputs[name]:
                datatype = "BF16"  # numpy has no type for it, so the raw bits come as integers
            array = tensor._array
            if array is None:
                encoded.append((name, datatype, tensor._shape, _passed_on(tensor._received, endpoint)))
                continue
            if datatype == "BYTES":
                data = endpoint.export(serialize_byte_tensor(array))
            elif array.nbytes <= _SMALL:
                data = array.tobytes()
            else:
                data = endpoint.export(array.reshape(-1).view(np.uint8).data)
            encoded.append((name, datatype, array.shape, data))
    except BaseException:
        discard([(encoded, None, None)], endpoint)
        raise
    return encoded, response._parameters, None


def _passed_on(received: Received, endpoint: Endpoint) -> TensorData:
    return received if isinstance(received, bytes) else endpoint.export(received.data)


def discard(answers: Sequence[Answer], endpoint: Endpoint) -> None:
    """Give back the shared memory of answers that will not be sent."""
    for outputs, _, _ in answers:
        for _, _, _, data in outputs:
            if not isinstance(data, bytes):
                endpoint.arena.release(data[0])


def has_sender(request: InferenceRequest) -> bool:
    """Whether the model asked for the request's response sender."""
    return request._sender is not None


def finish(request: InferenceRequest) -> None:
    """The request has its one response; nothing can be sent to it any more."""
    request._sender = _CLOSED


def close(request: InferenceRequest) -> bool:
    """Let nothing more be sent; returns whether the client still waits for its final response."""
    sender = request._sender
    if sender is not None:
        return sender._close()
    request._sender = _CLOSED
    return True


def slot_of(request: InferenceRequest) -> int:
    """What names the request between server and worker."""
    return request._wire[0]  # type: ignore[no-any-return]


def requested_of(request: InferenceRequest) -> tuple[str, ...] | None:
    """The outputs the client wants; None for all."""
    return request._wire[7]  # type: ignore[no-any-return]
