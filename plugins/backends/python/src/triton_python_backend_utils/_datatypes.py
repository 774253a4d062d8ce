"""The datatypes of tensors: their protocol names, their numbers in Triton's C API, their numpy types."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = (
    "INVALID",
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BYTES",
    "BF16",
)
"""Protocol names; the index is the number of `TRITONSERVER_DataType`."""

NUMPY_TYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}
"""Numpy types by protocol name. BF16 has none."""

_NUMPY_TYPES = {number: NUMPY_TYPES.get(name) for number, name in enumerate(NAMES)}

DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(kind) for name, kind in NUMPY_TYPES.items()}
DTYPES["BF16"] = np.dtype(np.uint16)  # the raw bits

BY_DTYPE: dict[np.dtype[Any], str] = {np.dtype(kind): name for name, kind in NUMPY_TYPES.items()}

TRITON_STRING_TO_NUMPY: dict[str, type[Any]] = {
    "TYPE_STRING" if name == "BYTES" else f"TYPE_{name}": bool if name == "BOOL" else kind
    for name, kind in NUMPY_TYPES.items()
}
"""Numpy types by the names that `config.pbtxt` uses; BF16 has none."""


def triton_to_numpy_type(data_type: int) -> type[np.generic] | None:
    """The numpy type for a number of `TRITONSERVER_DataType`; None for BF16 and unknown numbers."""
    return _NUMPY_TYPES.get(data_type)


def numpy_to_triton_type(data_type: Any) -> int | None:  # Any: whatever numpy takes as a type
    """The number of `TRITONSERVER_DataType` for a numpy type; None when there is none."""
    if data_type == np.bytes_:
        return NAMES.index("BYTES")
    for name, kind in NUMPY_TYPES.items():
        if data_type == kind:
            return NAMES.index(name)
    return None


def triton_string_to_numpy(triton_type_string: str) -> type[Any]:
    """The numpy type for a name as in `config.pbtxt`, such as `TYPE_FP32`.

    Raises:
        KeyError: there is none, as for `TYPE_BF16`.
    """
    return TRITON_STRING_TO_NUMPY[triton_type_string]
