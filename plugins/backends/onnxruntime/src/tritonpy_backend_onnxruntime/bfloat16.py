"""BF16 tensors, for which numpy has no type: they go in and out as raw 16-bit patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tritonpy.plugin import Array

_ONNX_BFLOAT16 = 16
"""`TensorProto.BFLOAT16`."""


class _Bits:
    """Lets numpy look at an OrtValue's memory and keeps the OrtValue alive meanwhile."""

    def __init__(self, value: Any) -> None:  # Any: onnxruntime is untyped
        self._value = value
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<u2",
            "shape": tuple(value.shape()),
            "data": (value.data_ptr(), True),
        }


def run_with_bfloat16(
    ort: Any,  # Any: onnxruntime is untyped, here and below
    session: Any,
    output_names: Sequence[str],
    feeds: Mapping[str, Array],
    bfloat16_names: frozenset[str],
    options: Any,
) -> list[Array]:
    """Run a session as `session.run` would, with the named tensors as `uint16` arrays of raw bits."""
    values = {}
    for name, array in feeds.items():
        if name in bfloat16_names:
            values[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _ONNX_BFLOAT16)
        else:
            values[name] = ort.OrtValue.ortvalue_from_numpy(array)
    results = session.run_with_ort_values(list(output_names), values, options)
    return [
        _raw_bits(value) if name in bfloat16_names else value.numpy()
        for name, value in zip(output_names, results, strict=True)
    ]


def _raw_bits(value: Any) -> Array:
    shape = tuple(value.shape())
    if 0 in shape:  # no memory to look at
        return np.empty(shape, "<u2")
    return np.asarray(_Bits(value))
