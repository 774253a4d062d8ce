"""The check of a request against a model's inputs and outputs."""

from __future__ import annotations

import struct

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.model.signature import Signature
from tritonpy.request import InferRequest
from tritonpy.tensor import Tensor


def signature(datatype: str = "FP32", max_batch_size: int = 0, **more: object) -> Signature:
    tensor = {"name": "IN0", "data_type": f"TYPE_{datatype}", "dims": [-1], **more}
    return Signature({"name": "m", "max_batch_size": max_batch_size, "input": [tensor], "output": []})


def request(datatype: str, shape: tuple[int, ...], data: bytes) -> InferRequest:
    return InferRequest("m", {"IN0": Tensor("IN0", datatype, shape, data)})


def string(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


@pytest.mark.parametrize("data", [b"", bytes(8)])
def test_an_empty_batch_is_refused_with_and_without_data(data: bytes) -> None:
    with pytest.raises(InvalidArg, match=r"inference request batch-size must be >= 1 for 'm'$"):
        signature(max_batch_size=4).check(request("FP32", (0, 2), data))


def test_a_batch_may_hold_rows_without_elements() -> None:
    asked = request("FP32", (3, 0), b"")

    signature(max_batch_size=4).check(asked)

    assert asked.batch_size == 3


def test_a_model_of_optional_inputs_takes_none() -> None:
    asked = InferRequest("m", {})

    signature(max_batch_size=4, optional=True).check(asked)

    assert asked.batch_size == 1


def test_a_shape_tensor_has_no_dimension_for_the_batch() -> None:
    sizes = {"name": "SIZES", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True}
    rows = {"name": "ROWS", "data_type": "TYPE_FP32", "dims": [1]}
    check = Signature({"name": "m", "max_batch_size": 4, "input": [sizes, rows], "output": []}).check

    def asked(*shape: int) -> InferRequest:
        tensors = [Tensor("SIZES", "INT32", shape, bytes(8)), Tensor("ROWS", "FP32", (3, 1), bytes(12))]
        return InferRequest("m", {tensor.name: tensor for tensor in tensors})

    good = asked(2)
    check(good)

    assert good.batch_size == 3
    with pytest.raises(
        InvalidArg, match=r"unexpected shape for input 'SIZES' .* Expected \[2\], got \[3,2\]"
    ):
        check(asked(3, 2))


@pytest.mark.parametrize("shape", [(-1,), (-2,), (2, -1), (-1, 2), (-(2**63),)])
def test_a_negative_dimension_is_no_dimension(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArg, match=r"All input dimensions should be specified for input 'IN0'"):
        signature().check(request("FP32", shape, b""))


@pytest.mark.parametrize("shape", [(2**63,), (2**62,), (2**40, 2**40), (2**62, 2, 2**62)])
def test_an_astronomical_shape_is_refused_whatever_the_data(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        InvalidArg, match=r"exceed maximum size|byte size overflow|input byte size mismatch|unexpected shape"
    ):
        signature().check(request("FP32", shape, b""))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (string(b"a") + b"\0", "expecting 4 bytes but only 1 bytes available"),
        (string(b"a") + string(b"b"), "unexpected number of string elements 2 .* expecting 1"),
        (string(b"a") + struct.pack("<I", 9), "unexpected number of string elements 2 .* expecting 1"),
        (struct.pack("<I", 9) + b"a", "expecting string of length 9 but only 1 bytes available"),
        (b"", "expected 1 string elements .* got 0"),
    ],
)
def test_the_first_thing_wrong_with_strings_is_said(data: bytes, complaint: str) -> None:
    with pytest.raises(InvalidArg, match=complaint):
        signature("STRING").check(request("BYTES", (1,), data))


def test_strings_are_counted_before_the_last_one_is_looked_at() -> None:
    with pytest.raises(InvalidArg, match=r"expected 2 string elements .* got 1"):
        signature("STRING").check(request("BYTES", (2,), struct.pack("<I", 9) + b"a"))


def test_the_first_unknown_output_by_name_is_the_one_that_is_named() -> None:
    asked = InferRequest("m", {}, requested_outputs=("b", "a"))

    with pytest.raises(InvalidArg, match=r"^unexpected inference output 'a' for model 'm'$"):
        signature(optional=True).check(asked)


OUTPUTS = [
    {"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1, 4]},
    {"name": "SIZES", "data_type": "TYPE_INT32", "dims": [2], "is_shape_tensor": True},
]


@pytest.mark.parametrize(
    ("name", "datatype", "shape", "batch_size", "contradiction"),
    [
        ("OUT", "FP32", (3, 9, 4), 3, ""),
        ("OUT", "FP32", (5, 9, 4), 0, ""),
        ("OUT", "FP32", (5, 9, 4), 3, "output 'OUT' is FP32 [5,9,4] for 3 row(s), but the "),
        ("OUT", "FP64", (3, 9, 4), 3, "output 'OUT' is FP64 [3,9,4] for 3 row(s), but the "),
        ("OUT", "FP32", (3, 9, 5), 3, "output 'OUT' is FP32 [3,9,5] for 3 row(s), but the "),
        ("OUT", "FP32", (9, 4), 0, "output 'OUT' is FP32 [9,4], but the "),
        ("OUT", "FP32", (), 3, "output 'OUT' is FP32 [] for 3 row(s), but the "),
        ("SIZES", "INT32", (2,), 3, ""),
        ("OTHER", "BYTES", (), 3, ""),
    ],
)
def test_outputs_are_compared_with_the_configuration_each_time(
    name: str, datatype: str, shape: tuple[int, ...], batch_size: int, contradiction: str
) -> None:
    found = Signature({"name": "m", "max_batch_size": 8, "output": OUTPUTS})
    outputs = [Tensor("OUT", "FP32", (batch_size or 1, 1, 4), b""), Tensor(name, datatype, shape, b"")]
    expected = contradiction and f"{contradiction}configuration says FP32 [-1,-1,4]"

    assert [found.contradiction(outputs, batch_size) for _ in range(2)] == [expected, expected]


def test_a_model_without_batches_has_no_rows_to_count() -> None:
    outputs = [Tensor("OUT", "FP32", (7, 4), b"")]

    assert not Signature({"name": "m", "output": OUTPUTS}).contradiction(outputs, 1)
