"""Bodies without JSON: which shape they get, and which are refused; as seen on the real server."""

from __future__ import annotations

import pytest
from tritonpy.dataplane import TensorSpec
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.frontends.http.raw_request import parse_raw_request
from tritonpy.tensor import Tensor


def read(body: bytes, datatype: str, shape: tuple[int, ...], is_batched: bool = False) -> Tensor:
    specs = {"IN": TensorSpec("IN", datatype, shape)}
    request, form = parse_raw_request(body, specs, "m", "", is_batched=is_batched)
    assert form.binary_by_default
    return request.input("IN")


@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name != "BYTES"])
def test_the_variable_dimension_follows_from_the_size(datatype: str) -> None:
    body = bytes(3 * DATATYPES[datatype].byte_size)

    tensor = read(body, datatype, (-1,))

    assert (tensor.shape, tensor.datatype, bytes(tensor.wire())) == ((3,), datatype, body)


@pytest.mark.parametrize(
    ("shape", "is_batched", "size", "expected"),
    [
        ((2, 2), False, 16, (2, 2)),
        ((-1,), False, 0, (0,)),
        ((-1, -1), True, 8, (1, 2)),
        ((-1, 4), True, 16, (1, 4)),
        ((-1, -1, 2), True, 16, (1, 2, 2)),
    ],
)
def test_a_raw_request_is_one_row_of_a_batch(
    shape: tuple[int, ...], is_batched: bool, size: int, expected: tuple[int, ...]
) -> None:
    assert read(bytes(size), "FP32", shape, is_batched).shape == expected


@pytest.mark.parametrize(
    ("shape", "is_batched", "size", "wanted"),
    [
        ((2, 2), False, 4, 16),
        ((-1,), False, 3, 0),
        ((-1,), False, 67, 64),
        ((-1, -1, 2), True, 4, 0),
        ((-1, 4), True, 32, 16),
        ((-1, 4), True, 2, 16),
        ((-1, 0), False, 4, 0),
    ],
)
def test_a_size_that_makes_no_tensor_is_refused(
    shape: tuple[int, ...], is_batched: bool, size: int, wanted: int
) -> None:
    with pytest.raises(InvalidArg) as caught:
        read(bytes(size), "FP32", shape, is_batched)

    assert caught.value.message == (
        f"[request id: <id_unknown>] input byte size mismatch for input 'raw_input' for model 'm'. "
        f"Expected {wanted}, got {size}"
    )


def test_two_variable_dimensions_cannot_be_deduced() -> None:
    with pytest.raises(InvalidArg, match=r"more than one variable-sized dimension$"):
        read(b"1234", "FP32", (-1, -1))


def test_a_string_is_the_body_and_needs_a_model_that_takes_one() -> None:
    assert read(b"hi", "BYTES", (1,)).numpy().tolist() == [b"hi"]
    for shape, is_batched in (((-1,), False), ((2,), False), ((-1, -1), True)):
        with pytest.raises(InvalidArg, match=r"the model must have input shape \[1\]"):
            read(b"hi", "BYTES", shape, is_batched)
