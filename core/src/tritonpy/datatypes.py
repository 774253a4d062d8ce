"""The wire types of the v2 protocol and their numpy partners.

BF16 has no numpy type of its own: its arrays are `uint16` holding the raw bits, and the datatype has to be
said by name. BYTES elements are Python `bytes` in arrays of dtype `object`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class DataType:
    """One wire type.

    Attributes:
        name: the protocol's word for it, such as `FP32`.
        byte_size: bytes per element; 0 for BYTES, whose elements differ in length.
        numpy: the dtype of `Tensor.numpy()`, little endian.
        number: the value of `TRITONSERVER_DataType` and of the `DataType` enum in the configuration.
    """

    name: str
    byte_size: int
    numpy: np.dtype[np.generic]
    number: int

    @property
    def config_name(self) -> str:
        """The name used in `config.pbtxt`, such as `TYPE_FP32` (`TYPE_STRING` for BYTES)."""
        return "TYPE_STRING" if self.name == "BYTES" else f"TYPE_{self.name}"


DATATYPES: dict[str, DataType] = {
    name: DataType(name, byte_size, np.dtype(code), number)
    for number, (name, byte_size, code) in enumerate(
        [
            ("BOOL", 1, "?"),
            ("UINT8", 1, "u1"),
            ("UINT16", 2, "<u2"),
            ("UINT32", 4, "<u4"),
            ("UINT64", 8, "<u8"),
            ("INT8", 1, "i1"),
            ("INT16", 2, "<i2"),
            ("INT32", 4, "<i4"),
            ("INT64", 8, "<i8"),
            ("FP16", 2, "<f2"),
            ("FP32", 4, "<f4"),
            ("FP64", 8, "<f8"),
            ("BYTES", 0, "O"),
            ("BF16", 2, "<u2"),
        ],
        start=1,
    )
}
"""Every datatype by its protocol name."""

CONFIG_DATATYPES: dict[str, DataType] = {datatype.config_name: datatype for datatype in DATATYPES.values()}
"""Every datatype by its `TYPE_*` name."""

_BY_NUMPY: dict[np.dtype[np.generic], str] = {
    datatype.numpy: datatype.name for datatype in DATATYPES.values() if datatype.name != "BF16"
}


def datatype_of(dtype: np.dtype[np.generic]) -> str | None:
    """The protocol name for a numpy dtype, or None when the protocol has no such type.

    Text and byte strings (`U`, `S`) travel as BYTES. BF16 is never the answer: `uint16` means UINT16.
    """
    name = _BY_NUMPY.get(dtype)
    if name is None:
        if dtype.kind in "US":
            return "BYTES"
        if dtype.byteorder == ">":
            return _BY_NUMPY.get(dtype.newbyteorder("<"))
    return name
