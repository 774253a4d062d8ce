"""Inputs and outputs of functions that are served as models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from tritonpy.datatypes import DATATYPES, datatype_of
from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.tensor import Array


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of a function.

    Attributes:
        shape: without the dimension of the batch where the model batches; -1 for a dimension of any size.
        dtype: numpy's; `bytes`, `str` and `object` are strings of any bytes. Or the name of one of the
            protocol's datatypes, such as `BF16`.
        name: None stands for `INPUT_1`, `OUTPUT_2` and so on, by its place among the inputs or outputs.
        optional: requests may leave the input out.
    """

    shape: Sequence[int]
    dtype: npt.DTypeLike
    name: str | None = None
    optional: bool = False

    @property
    def datatype(self) -> str:
        """The protocol's word for its type, such as `FP32`.

        Raises:
            InvalidArg: the protocol has none.
        """
        if isinstance(self.dtype, str) and self.dtype in DATATYPES:
            return self.dtype
        dtype = np.dtype(self.dtype)
        found = datatype_of(dtype)
        if found is None:
            raise InvalidArg(
                f"tensor '{self.name or ''}': got dtype '{dtype}', expected one of {', '.join(DATATYPES)} or "
                "a dtype of numpy that stands for one of them"
            )
        return found

    def fault(self, array: Array, *leading: int) -> str:
        """The reason why an array cannot be this tensor; "" if it can.

        Args:
            array: of numpy.
            *leading: sizes of dimensions before those of `shape`, such as the rows of a batch.
        """
        wanted = DATATYPES[self.datatype].numpy
        shape = (*leading, *map(int, self.shape))
        is_shaped = len(shape) == array.ndim and all(
            want in (-1, got) for want, got in zip(shape, array.shape, strict=True)
        )
        is_text = self.datatype == "BYTES" and array.dtype.kind in "OSU"
        if is_shaped and (is_text or array.dtype == wanted):
            return ""
        return f"got dtype {array.dtype} and shape {list(array.shape)}, expected {wanted} and {list(shape)}"

    def config(self) -> JsonObject:
        """The entry of a model's configuration."""
        entry: JsonObject = {
            "name": self.name,
            "data_type": DATATYPES[self.datatype].config_name,
            "dims": [int(dim) for dim in self.shape],
        }
        if self.optional:
            entry["optional"] = True
        return entry


def named(tensors: Sequence[Tensor], prefix: str) -> tuple[Tensor, ...]:
    """The tensors, each with a name.

    Args:
        tensors: inputs, or outputs.
        prefix: `INPUT` or `OUTPUT`, for those without a name.

    Raises:
        InvalidArg: two have the same name.
    """
    found = tuple(
        tensor if tensor.name else replace(tensor, name=f"{prefix}_{index}")
        for index, tensor in enumerate(tensors, 1)
    )
    names = [tensor.name for tensor in found]
    if twice := sorted({str(name) for name in names if names.count(name) > 1}):
        raise InvalidArg(f"{prefix.lower()}s: got {', '.join(twice)} twice, expected different names")
    return found
