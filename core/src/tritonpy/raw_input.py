"""An input of which there are only bytes: its datatype and shape are those in its model's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tritonpy.dataplane import TensorSpec
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.request import label_of
from tritonpy.tensor import Tensor

Bytes = bytes | bytearray | memoryview


def raw_tensor(
    data: Bytes, specs: Mapping[str, TensorSpec], model_name: str, *, is_batched: bool, request_id: str = ""
) -> Tensor:
    """The model's only input.

    Args:
        data: its bytes; of BYTES the one element, without its length.
        specs: the inputs of the model.
        model_name: for errors.
        is_batched: the first dimension of the input is the batch, which there is once.
        request_id: for errors.

    Raises:
        InvalidArg: the model has other than one input, or the bytes do not make a tensor of it.
    """
    label = label_of(request_id)
    if len(specs) != 1:
        raise InvalidArg(
            f"{label}Raw request must only have 1 input (found 1) to be deduced but got {len(specs)} "
            f"inputs in '{model_name}' model configuration"
        )
    spec = next(iter(specs.values()))
    dims = spec.shape[1:] if is_batched else spec.shape
    if spec.datatype == "BYTES":
        if dims != (1,):
            raise InvalidArg(
                f"{label}For BYTE datatype raw input '{spec.name}', the model must have input shape [1]"
            )
        data = len(data).to_bytes(4, "little") + bytes(data)
    else:
        dims = _deduce(spec, dims, len(data), model_name, label)
    return Tensor(spec.name, spec.datatype, (1, *dims) if is_batched else dims, data)


def _deduce(
    spec: TensorSpec, dims: tuple[int, ...], byte_size: int, model_name: str, label: str
) -> tuple[int, ...]:
    """The dimensions with the one that may vary worked out."""
    if dims.count(-1) > 1:
        raise InvalidArg(
            f"{label}The shape of the raw input '{spec.name}' can not be deduced because there are more "
            f"than one variable-sized dimension"
        )
    known = prod(dim for dim in dims if dim != -1) * DATATYPES[spec.datatype].byte_size
    variable = byte_size // known if known else 0
    expected = known * variable if -1 in dims else known
    if byte_size != expected:
        raise InvalidArg(
            f"{label}input byte size mismatch for input 'raw_input' for model '{model_name}'. "
            f"Expected {expected}, got {byte_size}"
        )
    return tuple(variable if dim == -1 else dim for dim in dims)
