from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tritonpy.cli.tensor_input import WantedInput, build_input
from tritonpy.errors import InvalidArg
from tritonpy.tensor import Tensor


def build(
    value: str, datatype: str = "FP32", shape: tuple[int, ...] = (-1,), forced: list[int] | None = None
) -> Tensor:
    return build_input(WantedInput("X", datatype, shape), value, forced)


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        ("[[1, 2], [3, 4]]", (-1, 2), (2, 2)),
        ("[1, 2]", (-1, 2), (1, 2)),  # the batch dimension is added
        ("[1, 2, 3, 4]", (-1, 2), (2, 2)),  # flat: the batch is as long as needed
        ("1 2 3 4", (-1, 2), (2, 2)),
        ("1,2,3,4", (2, 2), (2, 2)),
        ("[[1, 2]]", (2,), (2,)),  # dimensions of one do not matter
        ("[[1, 2], [3, 4]]", (-1, 1, 2, 2), (1, 1, 2, 2)),
        ("5", (-1, 1), (1, 1)),
        ("5", (1,), (1,)),
        ("5", (), ()),
        ("[1, 2, 3]", (-1, -1), (1, 3)),  # a flat list is one row of a batch
        ("[]", (-1,), (0,)),
    ],
)
def test_shape_is_fitted_to_what_the_model_wants(
    value: str, wanted: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert build(value, shape=wanted).shape == expected


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("[1, 2, 3]", (-1, 2)),
        ("[1, 2, 3]", (2,)),
        ("[[1, 2, 3], [4, 5, 6]]", (3, 2)),  # turning it over would be a guess
        ("[1, 2, 3, 4]", (-1, -1, -1)),
    ],
)
def test_shape_that_does_not_fit_is_refused_with_both_shapes(value: str, wanted: tuple[int, ...]) -> None:
    with pytest.raises(InvalidArg, match=r"input 'X': got shape \[.*\], expected \[.*\].* --shape X=") as got:
        build(value, shape=wanted)

    assert str(list(wanted)).replace(" ", "") in str(got.value)


def test_forced_shape_settles_what_is_not_clear() -> None:
    assert build("[1, 2, 3, 4, 5, 6]", shape=(-1, -1), forced=[2, 3]).shape == (2, 3)


def test_forced_shape_must_have_as_many_elements() -> None:
    with pytest.raises(InvalidArg, match=r"got 3 elements, which do not fill shape \[2,2\]"):
        build("[1, 2, 3]", forced=[2, 2])


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("UINT8", "[300]"),
        ("UINT8", "[-1]"),
        ("INT32", "[1.5]"),
        ("INT64", "[9223372036854775808]"),
        ("BOOL", "[2]"),
        ("FP32", "[true]"),
        ("FP32", '["a"]'),
        ("FP32", "one"),
        ("FP32", "[[1], [2, 3]]"),
        ("BYTES", '[["a"], ["b", "c"]]'),
        ("BYTES", "[1]"),
    ],
)
def test_values_the_datatype_does_not_have_are_refused(datatype: str, value: str) -> None:
    with pytest.raises(InvalidArg, match="input 'X': "):
        build(value, datatype)


@pytest.mark.parametrize(
    ("datatype", "value", "expected"),
    [
        ("BOOL", "[true, false]", [True, False]),
        ("BOOL", "1 0", [True, False]),
        ("UINT64", "[18446744073709551615]", [2**64 - 1]),
        ("INT8", "-128 127", [-128, 127]),
        ("FP16", "[0.5]", [0.5]),
        ("FP64", "[NaN]", [float("nan")]),
        ("FP32", "[1]", [1.0]),
        ("BYTES", "hello world", [b"hello world"]),
        ("BYTES", "5", [b"5"]),
        ("BYTES", '["a", "ü"]', [b"a", "ü".encode()]),
    ],
)
def test_values_become_the_datatype(datatype: str, value: str, expected: list[object]) -> None:
    tensor = build(value, datatype)

    assert tensor.datatype == datatype
    sent = Tensor("X", datatype, tensor.shape, tensor.wire()).numpy()
    np.testing.assert_array_equal(sent, np.array(expected, dtype=sent.dtype))


def test_bf16_is_rounded_to_the_nearest() -> None:
    tensor = build("[1.0, -2.0, 1.00390625, 1.01171875, NaN]", "BF16")

    bits = [f"{element:x}" for element in tensor.numpy()]
    assert bits == ["3f80", "c000", "3f80", "3f82", "7fc0"]


def test_npy_file_keeps_shape_and_is_cast_when_nothing_is_lost(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int64).reshape(2, 3))

    tensor = build(f"@{tmp_path / 'x.npy'}", "FP32", (-1, 3))

    assert tensor.shape == (2, 3)
    assert tensor.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_npy_file_with_fractions_is_refused_for_integers(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([0.5]))

    with pytest.raises(InvalidArg, match="got values of numpy float64"):
        build(f"@{tmp_path / 'x.npy'}", "INT32")


def test_npy_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([object()]), allow_pickle=True)

    with pytest.raises(InvalidArg, match=r"x\.npy cannot be used"):
        build(f"@{tmp_path / 'x.npy'}")


def test_json_file_is_read_as_json(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[[1, 2]]")

    assert build(f"@{tmp_path / 'x.json'}", shape=(-1, 2)).shape == (1, 2)


def test_raw_file_holds_elements_in_wire_form(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(np.array([1, 2, 3, 4], "<i2").tobytes())

    tensor = build(f"@{tmp_path / 'x.bin'}", "INT16", (-1, 2))

    assert tensor.numpy().tolist() == [[1, 2], [3, 4]]


def test_raw_file_of_an_odd_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"123")

    with pytest.raises(InvalidArg, match=r"has 3 bytes, expected a multiple of 2 \(INT16\)"):
        build(f"@{tmp_path / 'x.bin'}", "INT16")


def test_any_file_is_one_element_of_a_bytes_input(tmp_path: Path) -> None:
    (tmp_path / "x.jpg").write_bytes(b"\xff\xd8\x00 image")

    tensor = build(f"@{tmp_path / 'x.jpg'}", "BYTES", (-1, 1))

    assert tensor.shape == (1, 1)
    assert tensor.numpy()[0, 0] == b"\xff\xd8\x00 image"


def test_text_file_holds_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1 2\n3 4\n")

    assert build(f"@{tmp_path / 'x.txt'}", "INT32", (2, 2)).numpy().tolist() == [[1, 2], [3, 4]]


def test_missing_file_is_an_error_of_the_system() -> None:
    with pytest.raises(FileNotFoundError):
        build("@/nowhere/x.bin")
