"""Elements of tensors as JSON: what comes in comes out, and what cannot be is refused in Triton's words."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import Internal, InvalidArg
from tritonpy.frontends.http.codec.json_body import parse_json
from tritonpy.frontends.http.codec.json_data import NESTING_LIMIT, data_json, tensor_from_data
from tritonpy.tensor import Tensor

INTEGERS = ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")


def from_text(datatype: str, text: bytes | str, shape: tuple[int, ...] = (1,)) -> Tensor:
    return tensor_from_data(
        "IN", datatype, shape, parse_json(text if isinstance(text, bytes) else text.encode())
    )


def limits(datatype: str) -> tuple[int, int]:
    info = np.iinfo(DATATYPES[datatype].numpy)
    return int(info.min), int(info.max)


@st.composite
def tensors(draw: st.DrawFn) -> tuple[str, list[Any]]:
    datatype = draw(st.sampled_from([*INTEGERS, "BOOL", "FP32", "FP64", "BYTES"]))
    if datatype == "BOOL":
        elements: st.SearchStrategy[Any] = st.booleans()
    elif datatype in ("FP32", "FP64"):
        elements = st.floats(width=32 if datatype == "FP32" else 64)
    elif datatype == "BYTES":
        elements = st.binary(max_size=20)
    else:
        elements = st.integers(*limits(datatype))
    return datatype, draw(st.lists(elements, max_size=30))


@given(tensors())
def test_what_goes_out_as_json_comes_in_as_the_same_bytes(drawn: tuple[str, list[Any]]) -> None:
    datatype, values = drawn
    array = np.array(values, object if datatype == "BYTES" else DATATYPES[datatype].numpy)
    tensor = Tensor.from_numpy("OUT", array, datatype)

    text = data_json(tensor)
    back = from_text(datatype, text, (len(values),))

    if datatype in ("FP32", "FP64"):  # of the many bit patterns that are no number one is left
        np.testing.assert_array_equal(back.numpy(), tensor.numpy())
    else:
        assert bytes(back.wire()) == bytes(tensor.wire())


def nested(draw: st.DrawFn, values: list[Any], depth: int) -> list[Any]:
    if depth == 0 or draw(st.booleans()):
        return values
    cut = draw(st.integers(0, len(values)))
    parts: list[Any] = [nested(draw, values[:cut], depth - 1)]
    rest = values[cut:]
    return [*parts, nested(draw, rest, depth - 1)] if draw(st.booleans()) else parts + rest


@given(st.data())
def test_data_may_be_nested_in_any_way(data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(-5, 5), max_size=12))
    shape = data.draw(st.composite(nested)(values, 4))

    tensor = tensor_from_data("IN", "INT32", (len(values),), shape)

    assert tensor.numpy().tolist() == values


@pytest.mark.parametrize(
    ("datatype", "values", "expected"),
    [
        ("FP32", [0.1, 1, 1e20, 1e21, 1e-5, 1e-7, -0.0], None),
        ("FP32", [0.1], "[0.10000000149011612]"),
        ("FP32", [1.0], "[1.0]"),
        ("FP32", [1e20], "[100000002004087730000.0]"),
        ("FP32", [1e16], "[10000000272564224.0]"),
        ("FP32", [1e-5], "[0.000009999999747378752]"),
        ("FP32", [1e-7], "[1.0000000116860974e-7]"),
        ("FP32", [123456789.125], "[123456792.0]"),
        ("FP64", [0.1], "[0.1]"),
        ("FP64", [1e20], "[100000000000000000000.0]"),
        ("FP64", [1e21], "[1e21]"),
        ("FP64", [1e22], "[1e22]"),
        ("FP64", [1e300], "[1e300]"),
        ("FP64", [1.5e300], "[1.5e300]"),
        ("FP64", [123456789012345680.0], "[123456789012345680.0]"),
        ("FP64", [1e-5, 1e-6, 1e-7, -9.5e-6], "[0.00001,0.000001,1e-7,-0.0000095]"),
        ("FP64", [5e-324], "[5e-324]"),
        ("FP64", [-0.0], "[-0.0]"),
        ("FP64", [math.nan, math.inf, -math.inf, 1.0], "[NaN,Infinity,-Infinity,1.0]"),
        ("FP64", [math.nan], "[NaN]"),
        ("FP64", [], "[]"),
        ("BOOL", [True, False], "[true,false]"),
        ("UINT64", [2**64 - 1], "[18446744073709551615]"),
        ("INT64", [-(2**63)], "[-9223372036854775808]"),
    ],
)
def test_numbers_are_written_as_triton_writes_them(
    datatype: str, values: list[Any], expected: str | None
) -> None:
    tensor = Tensor.from_numpy("OUT", np.array(values, DATATYPES[datatype].numpy), datatype)

    text = data_json(tensor).decode()

    if expected is not None:
        assert text == expected
    assert np.array_equal(np.array(json.loads(text), np.float64), tensor.numpy().astype(np.float64), True)


@given(st.lists(st.floats(), max_size=20))
def test_every_number_reads_as_the_number_it_was(values: list[float]) -> None:
    text = data_json(Tensor.from_numpy("OUT", np.array(values, np.float64), "FP64"))

    np.testing.assert_array_equal(np.array(json.loads(text), np.float64), np.array(values, np.float64))


@pytest.mark.parametrize(
    ("element", "text"),
    [
        (b"\xff\xfe", b'["\xff\xfe"]'),
        (b'\xff"\\\n\x00', b'["\xff\\"\\\\\\n\\u0000"]'),
        (b"\xed\xb8\x80", b'["\xed\xb8\x80"]'),
        (b"\xf4\x90\x80\x80", b'["\xf4\x90\x80\x80"]'),
        ("é😀".encode(), '["é😀"]'.encode()),
    ],
)
def test_bytes_that_are_no_text_stand_in_json_as_they_are_both_ways(element: bytes, text: bytes) -> None:
    tensor = Tensor.from_numpy("OUT", np.array([element], object), "BYTES")

    assert data_json(tensor) == text
    assert from_text("BYTES", text).numpy().tolist() == [element]


def test_half_of_a_pair_that_is_written_as_an_escape_becomes_its_three_bytes() -> None:
    assert from_text("BYTES", b'["\\ude00"]').numpy().tolist() == [b"\xed\xb8\x80"]


@pytest.mark.parametrize("datatype", ["INT8", "INT16", "INT32", "UINT8", "UINT16", "UINT32"])
def test_an_integer_that_does_not_fit_is_refused_and_not_cut(datatype: str) -> None:
    low, high = limits(datatype)
    assert from_text(datatype, f"[{low},{high}]", (2,)).numpy().tolist() == [low, high]

    with pytest.raises(InvalidArg) as caught:
        from_text(datatype, f"[0,{high + 1}]", (2,))

    assert caught.value.message == (
        f"Unable to parse 'data': {high + 1} in input 'IN' does not fit into {datatype}, "
        f"which holds {low} to {high}"
    )


SIGNED = "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"
UNSIGNED = "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer"
NUMBER = "Unable to parse 'data': attempt to access JSON non-number as double"
BOOLEAN = "Unable to parse 'data': attempt to access JSON non-boolean as boolean"
SHAPE = "Unable to parse 'data': Shape does not match true shape of 'data' field"
ARRAY = "Unable to parse 'data': attempt to access JSON non-array as array"


@pytest.mark.parametrize(
    ("datatype", "text", "message"),
    [
        ("UINT8", "[-1]", UNSIGNED),
        ("UINT64", "[18446744073709551616]", UNSIGNED),
        ("UINT64", "[1e3]", UNSIGNED),
        ("UINT64", "[NaN]", UNSIGNED),
        ("INT64", "[9223372036854775808]", SIGNED),
        ("INT64", "[-9223372036854775809]", SIGNED),
        ("INT64", "[123456789012345678901234567890]", SIGNED),
        ("INT8", "[1.0]", SIGNED),
        ("INT8", "[true]", SIGNED),
        ("INT64", "[null]", SIGNED),
        ("FP32", "[true]", NUMBER),
        ("FP32", '["1"]', NUMBER),
        ("FP32", "[{}]", NUMBER),
        ("BOOL", "[1]", BOOLEAN),
        ("BOOL", "[null]", BOOLEAN),
        ("FP32", "[]", SHAPE),
        ("FP32", "[[]]", SHAPE),
        ("FP32", '[1,"a"]', SHAPE),
        ("FP32", '["a",1]', NUMBER),
        ("FP32", "1", ARRAY),
        ("FP32", "null", ARRAY),
        ("FP16", "1", ARRAY),
        ("BYTES", "[1]", "Unable to parse JSON bytes array: attempt to access JSON non-string as string"),
    ],
)
def test_elements_of_another_kind_are_refused_in_tritons_words(
    datatype: str, text: str, message: str
) -> None:
    with pytest.raises(Internal) as caught:
        from_text(datatype, text)

    assert caught.value.message == message


@pytest.mark.parametrize("text", ["[1e39]", "[3.5e38]", "[Infinity]", "[-1e39]"])
def test_beyond_the_largest_float_is_infinity(text: str) -> None:
    assert math.isinf(from_text("FP32", text).numpy()[0])


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_floats_do_not_travel_as_json_except_in_empty_tensors(datatype: str) -> None:
    with pytest.raises(InvalidArg, match=f"receiving {datatype} data via JSON is not supported"):
        from_text(datatype, "[1.0]")
    with pytest.raises(InvalidArg, match=f"sending {datatype} data via JSON is not supported"):
        data_json(Tensor("OUT", datatype, (1,), b"ab"))

    assert from_text(datatype, "[]", (0,)).byte_size == 0


def test_an_empty_tensor_has_no_elements_whatever_its_other_dimensions_say() -> None:
    tensor = from_text("FP32", "[]", (0, 2**62))

    assert (tensor.byte_size, tensor.shape) == (0, (0, 2**62))


def test_data_is_nested_at_most_a_hundred_levels() -> None:
    for depth in (1, NESTING_LIMIT):
        assert from_text("INT32", "[" * depth + "7" + "]" * depth).numpy().tolist() == [7]
    with pytest.raises(InvalidArg, match=r"JSON nesting depth exceeds maximum allowed limit \(100\)"):
        from_text("INT32", "[" * 101 + "7" + "]" * 101)


def test_as_many_strings_as_came_are_kept_for_the_check_against_the_model() -> None:
    tensor = from_text("BYTES", '["a","b"]', (1,))

    assert orjson.loads(data_json(Tensor("IN", "BYTES", (2,), tensor.wire()))) == ["a", "b"]
