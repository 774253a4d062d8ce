"""One input or output of a TensorFlow model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tritonpy.plugin import InvalidArg

Shape = tuple[int, ...]

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
    "string": "BYTES",
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One input or output as the model's files describe it.

    Attributes:
        name: what clients call it.
        tensor: the tensor of the graph, such as `StatefulPartitionedCall:0`.
        type_name: TensorFlow's word for its type, such as `float32`.
        datatype: the protocol's, or "" for what the protocol cannot carry.
        dims: -1 for a dimension of any size, empty for a scalar; None where not even their number is known.
        has_default: an input that the graph has a value for where none is given.
    """

    name: str
    tensor: str
    type_name: str
    datatype: str
    dims: Shape | None
    has_default: bool = False

    @property
    def shape(self) -> Shape:
        """The dims.

        Raises:
            InvalidArg: their number is not known.
        """
        if self.dims is None:
            raise InvalidArg(f"the rank of model tensor '{self.name}' is not known")
        return self.dims


def tensor_info(name: str, tensor: Any, dtype: Any, shape: Any) -> TensorInfo:  # Any: TensorFlow is untyped
    """Describe a tensor of a graph.

    Args:
        name: what clients call it.
        tensor: the tensor itself.
        dtype: its type as a signature says it, or its own.
        shape: likewise.
    """
    dims = None if shape.rank is None else tuple(-1 if dim is None else int(dim) for dim in shape.as_list())
    type_name: str = dtype.base_dtype.name
    has_default = tensor.op.type == "PlaceholderWithDefault"
    return TensorInfo(name, tensor.name, type_name, _DATATYPES.get(type_name, ""), dims, has_default)
