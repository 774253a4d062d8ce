"""Inputs and outputs of a TensorFlow Lite model, as one of its signatures names them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonpy.plugin import InvalidArg, Unsupported

_log = logging.getLogger("tritonpy.backend.litert")

Interpreter = Any  # Any: LiteRT is untyped
Shape = tuple[int, ...]

_USUAL = "serving_default"
_DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    "bytes": "BYTES",
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output as the model file describes it.

    Attributes:
        name: in the signature; where a file has none, that of the tensor.
        index: of the tensor in its graph.
        type_name: numpy's word for its type, such as `float32`.
        datatype: the protocol's, or "" for what the protocol cannot carry.
        shape: -1 for a dimension of any size; empty for a scalar.
        scale, zero_point: of a quantised tensor, whose numbers stand for scale * (number - zero_point);
            others have a scale of 0.
    """

    name: str
    index: int
    type_name: str
    datatype: str
    shape: Shape
    scale: float = 0.0
    zero_point: int = 0


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a model.

    Attributes:
        key: of the signature, "" for a file without any.
        inputs, outputs: by name.
        is_first_graph: they are those of the first graph of the file, whose tensors can be set and read one
            by one; a further signature has a graph of its own.
    """

    key: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    is_first_graph: bool


def read_signature(interpreter: Interpreter, wanted: str, model_name: str) -> Signature:
    """Read a signature; without `wanted` the usual one, else the first.

    Raises:
        InvalidArg: there is no such signature.
        Unsupported: LiteRT has no arrays for the type of an input or output.
    """
    keys = list(interpreter.get_signature_list())
    if wanted and wanted not in keys:
        found = f"it has {', '.join(sorted(keys))}" if keys else "it has none"
        raise InvalidArg(f"unable to load model '{model_name}', expected '{wanted}' signature; {found}")
    key = wanted or (_USUAL if _USUAL in keys else next(iter(keys), ""))
    if key and len(keys) > 1 and not wanted and key != _USUAL:
        _log.warning("model '%s': signature '%s' is taken, of %s", model_name, key, ", ".join(sorted(keys)))
    try:
        first = [
            {info["name"]: info for info in infos}
            for infos in (interpreter.get_input_details(), interpreter.get_output_details())
        ]
        own = first
        if key:
            runner = interpreter.get_signature_runner(key)
            own = [runner.get_input_details(), runner.get_output_details()]
    except ValueError as exc:
        raise Unsupported(
            f"model '{model_name}': an input or output is of a type that LiteRT has no arrays for; if it is "
            f"bfloat16: pip install ml_dtypes ({exc})"
        ) from exc
    places, own_places = (
        {(info["name"], info["index"]) for infos in both for info in infos.values()} for both in (first, own)
    )
    inputs, outputs = ({name: _described(name, info) for name, info in infos.items()} for infos in own)
    return Signature(key, inputs, outputs, is_first_graph=own_places <= places)


def _described(name: str, details: Mapping[str, Any]) -> TensorInfo:  # Any: see above
    dtype = details["dtype"]
    type_name = "bytes" if dtype is np.bytes_ else np.dtype(dtype).name
    scale, zero_point = details["quantization"]
    return TensorInfo(
        name,
        int(details["index"]),
        type_name,
        _DATATYPES.get(type_name, ""),
        tuple(int(size) for size in details["shape_signature"]),
        float(scale),
        int(zero_point),
    )
