from __future__ import annotations

import numpy as np
import pytest
from tritonpy.datatypes import CONFIG_DATATYPES, DATATYPES, datatype_of

BYTE_SIZES = {
    "BOOL": 1,
    "UINT8": 1,
    "UINT16": 2,
    "UINT32": 4,
    "UINT64": 8,
    "INT8": 1,
    "INT16": 2,
    "INT32": 4,
    "INT64": 8,
    "FP16": 2,
    "FP32": 4,
    "FP64": 8,
    "BYTES": 0,
    "BF16": 2,
}


def test_every_datatype_has_the_number_and_size_of_the_protocol():
    assert {name: datatype.byte_size for name, datatype in DATATYPES.items()} == BYTE_SIZES
    assert [datatype.number for datatype in DATATYPES.values()] == list(range(1, 15))
    assert all(name == datatype.name for name, datatype in DATATYPES.items())


def test_numpy_elements_are_as_wide_as_wire_elements_and_little_endian():
    for datatype in DATATYPES.values():
        if datatype.name != "BYTES":
            assert datatype.numpy.itemsize == datatype.byte_size
            assert datatype.numpy == datatype.numpy.newbyteorder("<")


def test_configurations_call_bytes_a_string():
    assert CONFIG_DATATYPES["TYPE_STRING"] is DATATYPES["BYTES"]
    assert "TYPE_BYTES" not in CONFIG_DATATYPES
    assert CONFIG_DATATYPES["TYPE_BF16"] is DATATYPES["BF16"]
    assert len(CONFIG_DATATYPES) == len(DATATYPES)


@pytest.mark.parametrize("name", [name for name in DATATYPES if name != "BF16"])
def test_a_numpy_dtype_names_its_datatype(name):
    dtype = DATATYPES[name].numpy

    assert datatype_of(dtype) == name
    assert datatype_of(dtype.newbyteorder(">")) == name


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("q", "INT64"), ("l", "INT64"), ("Q", "UINT64"), ("U7", "BYTES"), ("S3", "BYTES"), (">f8", "FP64")],
)
def test_other_spellings_of_a_dtype_are_understood(dtype, name):
    assert datatype_of(np.dtype(dtype)) == name


@pytest.mark.parametrize("dtype", ["c8", "M8[s]", "m8[s]", "V4", [("a", ">f4")], "g"])
def test_a_dtype_the_protocol_lacks_has_no_datatype(dtype):
    assert datatype_of(np.dtype(dtype)) is None


def test_raw_bits_are_never_taken_for_bf16():
    assert datatype_of(DATATYPES["BF16"].numpy) == "UINT16"
