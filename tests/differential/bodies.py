"""Making requests: bodies of HTTP inference requests, and messages of the gRPC service."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tritonclient.grpc import service_pb2

from .comparison import Case
from .servers import Grpc, Http

LENGTH = "Inference-Header-Content-Length"
PAIR = struct.pack("<2f", 1, 2)
ONE = struct.pack("<i", 1)
LEFT_OUT: Any = object()


def tensor(
    name: Any = "IN0", datatype: Any = "FP32", shape: Any = LEFT_OUT, data: Any = LEFT_OUT, **more: Any
) -> dict[str, Any]:
    """An input; by default that of the model `nob`. With `data=None` it has none."""
    made = {"name": name, "datatype": datatype, "shape": [2] if shape is LEFT_OUT else shape, **more}
    if data is not None:
        made["data"] = [1, 2] if data is LEFT_OUT else data
    return made


def body(*inputs: Any, **more: Any) -> bytes:
    """The JSON of a request with these inputs."""
    return json.dumps({"inputs": list(inputs), **more}).encode()


def infer(model: str, document: bytes, *headers: tuple[str, str], version: str = "") -> Http:
    """An inference request over HTTP."""
    where = f"/versions/{version}" if version else ""
    return Http("POST", f"/v2/models/{model}{where}/infer", document, headers)


def binary(model: str, document: bytes, tail: bytes, length: object = None) -> Http:
    """An inference request whose JSON is followed by tensors; `length` when the header is to lie."""
    said = len(document) if length is None else length
    return infer(model, document + tail, (LENGTH, str(said)))


def sized(model: str, size: Any, tail: bytes, **more: Any) -> Http:
    """A request of one input that says how large its tensor behind the JSON is."""
    return binary(model, body(tensor(data=None, parameters={"binary_data_size": size}, **more)), tail)


def strings(*values: bytes) -> bytes:
    """The wire form of a BYTES tensor."""
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def http_case(name: str, *steps: Http) -> Case:
    """A case over HTTP."""
    return Case(f"http {name}", steps)


def message(
    model: str,
    *inputs: tuple[str, str, Sequence[int]],
    raw: Sequence[bytes] = (),
    contents: Sequence[Mapping[str, Any] | None] = (),
    outputs: Sequence[str | tuple[str, Mapping[str, Any]]] = (),
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    version: str = "",
    id: str = "",
) -> Any:
    """A `ModelInferRequest`; `contents` are those of the inputs in their order."""
    made = service_pb2.ModelInferRequest(
        model_name=model, model_version=version, id=id, raw_input_contents=raw, parameters=parameters
    )
    for name, datatype, shape in inputs:
        made.inputs.add(name=name, datatype=datatype, shape=shape)
    for filled, typed in zip(made.inputs, contents, strict=False):
        if typed is not None:
            filled.contents.CopyFrom(service_pb2.InferTensorContents(**typed))
    for output in outputs:
        name, wanted = (output, {}) if isinstance(output, str) else output
        made.outputs.add(name=name, parameters=wanted)
    return made


def unary(made: Any) -> Grpc:
    """A call of `ModelInfer`."""
    return Grpc("ModelInfer", (made.SerializeToString(),))


def stream(*made: Any) -> Grpc:
    """A call of `ModelStreamInfer` that sends these."""
    return Grpc("ModelStreamInfer", tuple(one.SerializeToString() for one in made))


def call(which: str, **fields: Any) -> Grpc:
    """Any other call, of a request with these fields."""
    kind = getattr(service_pb2, f"{which}Request")
    return Grpc(which, (kind(**fields).SerializeToString(),))


def grpc_case(name: str, *steps: Grpc) -> Case:
    """A case over gRPC."""
    return Case(f"grpc {name}", steps)
