"""Predictions: one request of a client becomes one or several of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np
from tritonpy.plugin import (
    Array,
    Frontend,
    InferRequest,
    InferResponse,
    InvalidArg,
    ServedModel,
    Tensor,
    TritonError,
)

from tritonpy_frontend_tfserving.decoding import parse, read_inputs
from tritonpy_frontend_tfserving.encoding import encode
from tritonpy_frontend_tfserving.models import ModelName, check_signature, find, scalar_rows

_MOST_PARTS = (
    1024  # each is a request with memory of its own, of which a body of small numbers makes millions
)


async def predict(frontend: Frontend, wanted: ModelName, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Ask a model, and return the body of the answer.

    Raises:
        TritonError: what a client sent is wrong, or the model failed.
    """
    model = find(frontend.dataplane, wanted)
    document = parse(body)
    check_signature(model, document.get("signature_name", ""))
    arrays, is_rows = read_inputs(document, model.inputs)
    outputs = await infer(frontend, model, wanted, arrays, headers)
    return encode({name: _values(array, datatype) for name, (array, datatype) in outputs.items()}, is_rows)


async def infer(
    frontend: Frontend,
    model: ServedModel,
    wanted: ModelName,
    arrays: Mapping[str, Array],
    headers: Mapping[str, str],
    names: tuple[str, ...] = (),
) -> dict[str, tuple[Array, str]]:
    """Ask a model, and return its outputs with their datatypes, by name.

    Rows beyond the model's `max_batch_size` go in further requests: TensorFlow Serving takes any number of
    rows where it does not batch.

    Args:
        frontend: of the server.
        model: has just been found.
        wanted: names it.
        arrays: its inputs.
        headers: of the request, for traces.
        names: the outputs that are wanted; none for all.

    Raises:
        TritonError: a request is refused, or has failed.
    """
    requests = [_request(model, wanted, part, names) for part in _split(model, arrays)]
    for request in requests:
        frontend.trace(request, headers.get("traceparent"), headers.get("tracestate"))
    responses = await _infer(frontend, requests, wanted)
    datatypes = {output.name: output.datatype for output in responses[0].outputs}
    parts = [{output.name: output.numpy() for output in response.outputs} for response in responses]
    outputs = parts[0]
    if len(parts) > 1:
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in outputs}
    for name in outputs.keys() & scalar_rows(model):
        outputs[name] = outputs[name].reshape(outputs[name].shape[:-1])
    return {name: (array, datatypes[name]) for name, array in outputs.items()}


def _split(model: ServedModel, arrays: Mapping[str, Array]) -> list[Mapping[str, Array]]:
    """The inputs in as many parts as the model's batches need.

    Raises:
        InvalidArg: there would be very many.
    """
    most = model.max_batch_size
    counts = {
        len(array) if array.ndim else 0
        for name, array in arrays.items()
        if not model.inputs[name].is_shape_tensor
    }
    if not most or len(counts) != 1 or max(counts) <= most:
        return [arrays]
    (count,) = counts
    if count > most * _MOST_PARTS:
        raise InvalidArg(
            f"{count} rows are more than {_MOST_PARTS} batches of model '{model.name}' (max_batch_size "
            f"{most}); send fewer rows in a request, or let the batches be larger"
        )
    return [
        {
            name: array if model.inputs[name].is_shape_tensor else array[first : first + most]
            for name, array in arrays.items()
        }
        for first in range(0, count, most)
    ]


def _request(
    model: ServedModel, wanted: ModelName, arrays: Mapping[str, Array], names: tuple[str, ...]
) -> InferRequest:
    tensors = {
        name: Tensor.from_numpy(name, array, model.inputs[name].datatype) for name, array in arrays.items()
    }
    return InferRequest(model.name, tensors, model_version=wanted.version, requested_outputs=names or None)


async def _infer(frontend: Frontend, requests: list[InferRequest], wanted: ModelName) -> list[InferResponse]:
    async def ask(request: InferRequest) -> InferResponse:
        return await frontend.infer(find(frontend.dataplane, wanted), request)

    if len(requests) == 1:
        return [await ask(requests[0])]
    try:
        async with asyncio.TaskGroup() as group:  # the first that fails cancels the others
            tasks = [group.create_task(ask(request)) for request in requests]
    except* TritonError as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _values(array: Array, datatype: str) -> Array:
    """Numbers of what came as the bits of BF16."""
    return (array.astype("u4") << 16).view("f4") if datatype == "BF16" else array
