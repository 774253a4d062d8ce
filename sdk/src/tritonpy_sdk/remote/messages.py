"""Requests and responses in frames.

From the server to the program

    hello     versions, nonce, server           first of all
    welcome   proof, most_data_bytes, silence_s the program has proved itself
    refused   error                             it may not stay; the connection ends
    bound     binding                           the function is served
    failed    binding, code, error              it cannot be
    execute   binding, call, instance, requests a batch
    cancel    call, request                     the client of a request has given up
    took      call, count, byte_size            responses of a stream were dealt with
    ended     binding, reason, again            nothing more will be executed; whether to bind again
    ping      nothing                           the server lives

From the program to the server

    prove     version, nonce, proof, program
    bind      binding, name, version, config, files
    unbind    binding
    executed  call, responses, error, compute_ns, lost   ends a call
    response  call, request, response, final    one of a stream
    ping      nothing                           the program lives

A request is an object: `inputs`, a list of `[name, datatype, shape, byte size]` whose bytes lie in the frame
one after the other, and where they are not the usual ones `rows`, `id`, `flags`, `correlation_id`,
`timeout_us`, `priority`, `parameters` and `outputs`. A response has `outputs` likewise and `parameters`, or
`error`, a code of Triton and a text.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from tritonpy.plugin import (
    DATATYPES,
    InferRequest,
    InferResponse,
    JsonObject,
    Tensor,
    TritonError,
)

from tritonpy_sdk.remote.wire import BadFrame

Parts = list[bytes | bytearray | memoryview]

_USUAL: JsonObject = {"id": "", "flags": 0, "correlation_id": 0, "timeout_us": 0, "priority": 0}
_KINDS = {"id": str, "flags": int, "correlation_id": (int, str), "timeout_us": int, "priority": int}


def request_entry(request: InferRequest, outputs: Iterable[str], parts: Parts) -> JsonObject:
    """A request as it travels.

    Args:
        request: is being executed.
        outputs: all that the model has, with states.
        parts: takes the bytes of its inputs.
    """
    entry: JsonObject = {"inputs": _tensor_entries(request.inputs.values(), parts)}
    for key, usual in _USUAL.items():
        if (value := getattr(request, key)) != usual:
            entry[key] = value
    if request.batch_size != 1:
        entry["rows"] = request.batch_size
    if request.parameters:
        entry["parameters"] = dict(request.parameters)
    if request.requested_outputs is not None:
        entry["outputs"] = [name for name in outputs if request.wants(name)]
    return entry


def response_entry(response: InferResponse | None, parts: Parts) -> JsonObject | None:
    """A response as it travels; None is the final flag alone.

    Args:
        response: of a function.
        parts: takes the bytes of its outputs.
    """
    if response is None:
        return None
    if response.error is not None:
        return {"error": [int(response.error.code), response.error.message]}
    entry: JsonObject = {"outputs": _tensor_entries(response.outputs, parts)}
    if response.parameters:
        entry["parameters"] = response.parameters
    return entry


def read_requests(model: str, entries: Any, data: memoryview) -> list[InferRequest]:  # Any: from a stranger
    """The requests of a batch; their inputs may be written to.

    Raises:
        BadFrame: they are none.
    """
    tensors = _Tensors(data)
    requests = []
    for entry in _listed(entries, "requests"):
        if not isinstance(entry, dict):
            raise BadFrame("a request is no object")
        inputs = tensors.read(entry.get("inputs"))
        outputs = entry.get("outputs")
        given = {key: _checked(entry, key, kind) for key, kind in _KINDS.items() if key in entry}
        request = InferRequest(
            model,
            {tensor.name: tensor for tensor in inputs},
            requested_outputs=None if outputs is None else tuple(map(str, _listed(outputs, "outputs"))),
            parameters=_parameters(entry),
            **given,
        )
        request.batch_size = _checked(entry, "rows", int) if "rows" in entry else 1
        requests.append(request)
    tensors.end()
    return requests


def read_responses(entries: Any, data: memoryview) -> list[InferResponse | None]:  # Any: from a stranger
    """Responses, in their order.

    Raises:
        BadFrame: they are none.
    """
    tensors = _Tensors(data)
    responses = [_response(entry, tensors) for entry in _listed(entries, "responses")]
    tensors.end()
    return responses


def read_error(entry: Any) -> TritonError:  # Any: from a stranger
    """An error, a code and a text.

    Raises:
        BadFrame: it is none.
    """
    match entry:
        case [int() as code, str() as text]:
            return TritonError.with_code(code, text)
    raise BadFrame("an error is no code and text")


def _response(entry: Any, tensors: _Tensors) -> InferResponse | None:
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise BadFrame("a response is no object")
    if "error" in entry:
        return InferResponse(error=read_error(entry["error"]))
    return InferResponse(tensors.read(entry.get("outputs")), parameters=_parameters(entry))


def _tensor_entries(tensors: Iterable[Tensor], parts: Parts) -> list[Any]:
    entries = []
    for tensor in tensors:
        wire = tensor.wire()
        parts.append(wire)
        entries.append([tensor.name, tensor.datatype, list(tensor.shape), memoryview(wire).nbytes])
    return entries


class _Tensors:
    """Reads tensors whose bytes follow each other."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._start = 0

    def read(self, entries: Any) -> list[Tensor]:
        """The next tensors."""
        return [self._one(entry) for entry in _listed(entries, "tensors")]

    def end(self) -> None:
        """All bytes must have belonged to one."""
        if self._start != len(self._data):
            raise BadFrame(f"{len(self._data) - self._start} bytes of a frame belong to no tensor")

    def _one(self, entry: Any) -> Tensor:
        match entry:
            case [str() as name, str() as datatype, list() as shape, int() as size] if datatype in DATATYPES:
                pass
            case _:
                raise BadFrame("a tensor is no name, datatype, shape and byte size")
        if not all(type(dim) is int and dim >= 0 for dim in shape):
            raise BadFrame(f"tensor '{name[:64]}' has a shape that is none")
        end = self._start + size
        if size < 0 or end > len(self._data):
            raise BadFrame(f"tensor '{name[:64]}' has {size} bytes, which are not in the frame")
        if datatype != "BYTES" and prod(shape) * DATATYPES[datatype].numpy.itemsize != size:
            raise BadFrame(f"tensor '{name[:64]}' has {size} bytes, which do not hold {datatype} of {shape}")
        tensor = Tensor(name, datatype, shape, self._data[self._start : end])
        self._start = end
        return tensor


def _listed(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadFrame(f"{what} are no list")
    return value


def _checked(entry: JsonObject, key: str, kind: Any) -> Any:
    value = entry[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise BadFrame(f"'{key}' has a value of the wrong type")
    return value


def _parameters(entry: JsonObject) -> dict[str, Any]:
    parameters = entry.get("parameters", {})
    if not isinstance(parameters, dict) or not all(
        isinstance(value, bool | int | float | str) for value in parameters.values()
    ):
        raise BadFrame("parameters are no plain values by name")
    return parameters
