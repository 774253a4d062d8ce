"""Requests as bytes that are ready to be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

import orjson
from tritonpy.cli.http_client import model_path
from tritonpy.protos import messages
from tritonpy.tensor import Tensor

from tritonpy_bench.contents import Step, Stream, join_rows
from tritonpy_bench.errors import BenchError
from tritonpy_bench.load import Load
from tritonpy_bench.target import JsonObject, ModelFacts

_MOST_BYTES = 2 << 30  # of all prepared requests together
_MOST_INT64 = 2**63


def prepare(load: Load, facts: ModelFacts, streams: Sequence[Stream]) -> list[bytes]:
    """The requests that a load sends one after the other, again and again.

    Raises:
        BenchError: the model takes no such batch, or rows do not fit together.
    """
    check_batch_size(load, facts)
    steps = [step for stream in streams for step in stream]
    size = load.batch_size
    requests, total = [], 0
    # After so many requests the rows begin again with the first.
    for number in range(len(steps) // gcd(len(steps), size)):
        rows = [steps[(number * size + row) % len(steps)] for row in range(size)]
        requests.append(request_bytes(load, facts, rows))
        total += len(requests[-1])
        if total > _MOST_BYTES:
            raise BenchError(f"input data: all requests together have more than {_MOST_BYTES >> 30} GiB")
    return requests


def check_batch_size(load: Load, facts: ModelFacts) -> None:
    """Refuse a batch that the model would refuse."""
    most = max(1, facts.max_batch_size)
    if not 1 <= load.batch_size <= most:
        why = f"at most {most}" if facts.max_batch_size else "1, since the model has no batch dimension"
        raise BenchError(f"batch size {load.batch_size}: model '{facts.name}' takes {why}")


def request_bytes(load: Load, facts: ModelFacts, rows: Sequence[Step]) -> bytes:
    """One request, as it goes over the wire."""
    tensors, parameters = join_rows(rows, facts)
    parameters = {**load.parameters, **parameters}
    if load.protocol == "http":
        return _http(load, tensors, parameters)
    return _grpc(load, tensors, parameters)


def _http(load: Load, tensors: Sequence[Tensor], parameters: Mapping[str, object]) -> bytes:
    wires = [bytes(tensor.wire()) for tensor in tensors]
    head: JsonObject = {"parameters": {**parameters, "binary_data_output": True}}
    head["inputs"] = [
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
            "parameters": {"binary_data_size": len(wire)},
        }
        for tensor, wire in zip(tensors, wires, strict=True)
    ]
    document = orjson.dumps(head)
    body = b"".join((document, *wires))
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(document)),
    }
    return http_head(load, model_path(load.model, load.version) + "/infer", len(body), headers) + body


def http_head(load: Load, path: str, length: int, headers: Mapping[str, str]) -> bytes:
    """The head of a POST request."""
    _, _, host = load.url.rpartition("://")
    host, slash, prefix = host.partition("/")
    lines = [f"POST {(slash + prefix).rstrip('/')}{path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in {**headers, **load.headers}.items()]
    lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _grpc(load: Load, tensors: Sequence[Tensor], parameters: Mapping[str, object]) -> bytes:
    request = messages.ModelInferRequest(model_name=load.model, model_version=load.version)
    for name, value in parameters.items():
        set_parameter(request.parameters[name], value)
    for tensor in tensors:
        request.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        request.raw_input_contents.append(bytes(tensor.wire()))
    message = request.SerializeToString()
    return b"\0" + len(message).to_bytes(4, "big") + message


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
