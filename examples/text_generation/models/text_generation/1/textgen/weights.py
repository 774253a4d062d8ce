"""Arrays of numbers from a safetensors file, the form in which Hugging Face keeps a network's weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_DTYPES: dict[str, np.dtype[Any]] = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}  # Any: any float


def read_safetensors(path: Path) -> dict[str, Floats]:
    """Return the arrays of a safetensors file by name, as float32.

    The file is a header's size (uint64, little-endian), the header in JSON, and the arrays' bytes.

    Raises:
        ValueError: an array is neither F16 nor F32, or the file is cut short.
    """
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    arrays = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        dtype = _DTYPES.get(entry["dtype"])
        if dtype is None:
            raise ValueError(f"{path}: array {name} is {entry['dtype']}, expected {' or '.join(_DTYPES)}")
        begin, end = entry["data_offsets"]
        if start + end > len(data):
            raise ValueError(f"{path}: got {len(data)} bytes, expected {start + end} or more for {name}")
        array = np.frombuffer(data, dtype, count=(end - begin) // dtype.itemsize, offset=start + begin)
        arrays[name] = array.astype(np.float32).reshape(entry["shape"])
    return arrays
