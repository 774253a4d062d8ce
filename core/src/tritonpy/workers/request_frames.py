"""Requests and responses between the objects of this process and the frames of workers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tritonpy.errors import ErrorCode, TritonError
from tritonpy.ipc.channel import Endpoint, TensorData
from tritonpy.ipc.frame import Message
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.shared_memory.region import RegionSlice
from tritonpy.tensor import Tensor


def encode_request(slot: int, request: InferRequest, endpoint: Endpoint) -> Message:
    """A request as it travels to a worker; large tensors are copied, or lent where another worker wrote them.

    Raises:
        SharedMemoryExhausted: there is no room for them; nothing is left behind.
    """
    requested = request.requested_outputs
    if requested is not None and request.ticket.states is not None:
        requested = tuple(dict.fromkeys((*requested, *request.ticket.states.output_names)))
    inputs = _encode_tensors(request.inputs.values(), endpoint)
    encoded = (
        slot,
        request.id,
        request.flags,
        request.correlation_id,
        request.timeout_us,
        request.priority,
        request.parameters or None,
        requested,
        inputs,
    )
    trace = request.ticket.trace
    return encoded if trace is None else (*encoded, (trace.id, trace.context, trace.parent_id))


def decode_call(model: str, version: int, encoded: Message, endpoint: Endpoint) -> InferRequest:
    """A request that a worker's model has made for another model."""
    _, id, flags, correlation_id, timeout_us, priority, parameters, requested, inputs = encoded[:9]
    return InferRequest(
        model,
        {name: Tensor(name, datatype, shape, endpoint.adopt(data)) for name, datatype, shape, data in inputs},
        model_version="" if version == -1 else str(version),
        id=id,
        requested_outputs=requested,
        parameters=parameters,
        flags=flags,
        correlation_id=correlation_id,
        priority=priority,
        timeout_us=timeout_us,
    )


def encode_call(request: InferRequest, endpoint: Endpoint) -> Message:
    """A request that a worker's backend makes for another model; see `decode_call`.

    Raises:
        SharedMemoryExhausted: there is no room for its inputs; nothing is left behind.
    """
    return (
        -1,
        request.id,
        request.flags,
        request.correlation_id,
        request.timeout_us,
        request.priority,
        request.parameters or None,
        request.requested_outputs,
        _encode_tensors(request.inputs.values(), endpoint),
    )


def encode_response(response: InferResponse, endpoint: Endpoint) -> Message:
    """A response as it travels to the worker whose model has called.

    Raises:
        SharedMemoryExhausted: there is no room for its outputs; nothing is left behind.
    """
    error = response.error
    if error is not None:
        return (), None, (int(error.code), error.message)
    return _encode_tensors(response.outputs, endpoint), response.parameters or None, None


def decode_response(encoded: Message, endpoint: Endpoint) -> InferResponse:
    """A worker's answer."""
    outputs, parameters, error = encoded
    return InferResponse(
        [Tensor(name, datatype, shape, endpoint.adopt(data)) for name, datatype, shape, data in outputs],
        TritonError(error[1], ErrorCode(error[0])) if error is not None else None,
        parameters,
    )


def _encode_tensors(tensors: Iterable[Tensor], endpoint: Endpoint) -> list[Message]:
    encoded: list[Message] = []
    try:
        for tensor in tensors:
            encoded.append((tensor.name, tensor.datatype, tensor.shape, _data(tensor, endpoint)))
    except BaseException:
        discard(encoded, endpoint)
        raise
    return encoded


def discard(tensors: Iterable[Message], endpoint: Endpoint) -> None:
    """Give back the shared memory of tensors that will not be sent."""
    for _, _, _, data in tensors:
        if not isinstance(data, bytes):
            endpoint.arena.release(data[0])


def _data(tensor: Tensor, endpoint: Endpoint) -> TensorData:
    buffer = tensor.buffer
    if isinstance(buffer, RegionSlice):
        return endpoint.export_from(buffer.byte_size, buffer.read_into)
    return endpoint.lend_or_export(buffer if isinstance(buffer, np.ndarray) else tensor.wire())
