"""Between frames and the objects of this module; for the worker, and the hot path of every request.

The forms are those of the server's `ipc` package (`frame.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Union

import numpy as np

from ._errors import TritonError
from ._link import Wire
from ._request import TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, InferenceRequest
from ._response import InferenceResponse
from ._sender import InferenceResponseSender, Server
from ._strings import printable, serialize_byte_tensor
from ._tensor import Received, Tensor

Location = tuple[int, int]
TensorData = Union[bytes, Location]  # noqa: UP007 (evaluated, also by Python 3.9)
Output = tuple[str, str, "tuple[int, ...]", TensorData]
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
    """Wrap a request as it came; its tensors are views until an array is asked for."""
    request = InferenceRequest.__new__(InferenceRequest)
    request._wire = wire
    request._inputs = [_decode_tensor(tensor, endpoint) for tensor in wire[8]]
    request._release_flags = 1
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
            encoded.append(_encode_tensor(tensor, endpoint, is_bf16=outputs[name]))
    except BaseException:
        discard([(encoded, None, None)], endpoint)
        raise
    return encoded, response._parameters, None


def encode_call(wire: Wire, inputs: Sequence[Tensor], endpoint: Endpoint) -> Wire:
    """Turn a request that a model has made into what travels.

    Args:
        wire: the request, but for its inputs.
        inputs: the request's inputs.
        endpoint: where their bytes go.
    """
    encoded: list[Output] = []
    try:
        for tensor in inputs:
            encoded.append(_encode_tensor(tensor, endpoint, is_bf16=False))
    except BaseException:
        discard([(encoded, None, None)], endpoint)
        raise
    call = (*wire[:7], wire[7] or None, encoded)
    if len(wire) > 9:
        call += ((wire[9]._slot, wire[9]._number),)
    return call


def decode_response(answer: Answer, endpoint: Endpoint) -> InferenceResponse:
    """Wrap another model's response as it came."""
    outputs, parameters, error = answer
    response = InferenceResponse.__new__(InferenceResponse)
    response._outputs = [_decode_tensor(output, endpoint) for output in outputs]
    response._parameters = parameters
    response._error = None if error is None else TritonError(error[1], error[0])
    return response


def _encode_tensor(tensor: Tensor, endpoint: Endpoint, *, is_bf16: bool) -> Output:
    datatype = tensor._datatype
    if is_bf16 and datatype == "UINT16":
        datatype = "BF16"  # numpy has no type for it, so the raw bits come as integers
    array = tensor._array
    if array is None:
        return tensor._name, datatype, tensor._shape, _passed_on(tensor._received, endpoint)
    if datatype == "BYTES":
        data = endpoint.export(serialize_byte_tensor(array))
    elif array.nbytes <= _SMALL:
        data = array.tobytes()
    else:
        data = endpoint.export(array.reshape(-1).view(np.uint8).data)
    return tensor._name, datatype, array.shape, data


def _decode_tensor(wire: Output, endpoint: Endpoint) -> Tensor:
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._datatype, tensor._shape, data = wire
    tensor._received = data if type(data) is bytes else endpoint.adopt(data)
    tensor._array = None
    return tensor


def _passed_on(received: Received, endpoint: Endpoint) -> TensorData:
    return received if isinstance(received, bytes) else endpoint.export(received.data)


def discard(answers: Sequence[Answer], endpoint: Endpoint) -> None:
    """Give back the shared memory of answers that will not be sent."""
    for outputs, _, _ in answers:
        for _, _, _, data in outputs:
            if not isinstance(data, bytes):
                endpoint.arena.release(data[0])


def has_sender(request: InferenceRequest) -> bool:
    """True if the model asked for the request's response sender."""
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


def is_rescheduled(request: InferenceRequest) -> bool:
    """True if the model wants to execute the request again."""
    return request._release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE


def slot_of(request: InferenceRequest) -> int:
    """The number that names the request between server and worker."""
    return request._wire[0]  # type: ignore[no-any-return]


def requested_of(request: InferenceRequest) -> tuple[str, ...] | None:
    """The outputs the client wants; None for all."""
    return request._wire[7]  # type: ignore[no-any-return]
