"""One input or output of an ONNX model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]

_DATATYPES = {
    f"tensor({onnx})": name
    for onnx, name in {
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
        "float": "FP32",
        "double": "FP64",
        "string": "BYTES",
        "bfloat16": "BF16",
    }.items()
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output as the model file describes it.

    Attributes:
        name: its name.
        type_name: ONNX's word for its type, such as `tensor(float)`.
        datatype: the protocol's, or "" for what the protocol cannot carry (sequences, maps, complex numbers).
        shape: -1 for a dimension of any size; empty for a scalar.
    """

    name: str
    type_name: str
    datatype: str
    shape: Shape


def tensor_info(arg: Any) -> TensorInfo:  # Any: onnxruntime's NodeArg is untyped
    """Describe what `get_inputs` and the like of an `InferenceSession` have found."""
    # A symbolic dimension comes as text or None; a dimension of 0 in a file means "unknown" as well.
    shape = tuple(dim if isinstance(dim, int) and dim > 0 else -1 for dim in arg.shape or ())
    return TensorInfo(arg.name, arg.type, _DATATYPES.get(arg.type, ""), shape)
