"""Outputs as JSON: forms, types and what cannot be written."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tritonpy.plugin import InvalidArg
from tritonpy_frontend_tfserving.encoding import encode
from tritonpy_frontend_tfserving.predict import _values

F4 = np.array([[1, 0.1], [2, 3]], "f4")
TEXT = np.array([b"a", b"\xff"], object)


@pytest.mark.parametrize(
    ("outputs", "is_rows", "expected"),
    [
        ({"y": F4}, True, b'{"predictions":[[1.0,0.1],[2.0,3.0]]}'),
        ({"y": F4}, False, b'{"outputs":[[1.0,0.1],[2.0,3.0]]}'),
        ({"y": F4.T}, False, b'{"outputs":[[1.0,2.0],[0.1,3.0]]}'),
        ({"y": F4[:, 0]}, True, b'{"predictions":[1.0,2.0]}'),
        ({"y": np.array(5, "i8")}, False, b'{"outputs":5}'),
        ({"y": F4.astype("f2")[:1]}, True, b'{"predictions":[[1.0,0.099975586]]}'),
        ({"y": np.zeros((0, 2), "f4")}, True, b'{"predictions":[]}'),
        (
            {"y": F4, "n": np.array([7, 8], "longlong"), "b": np.array([True, False])},
            True,
            b'{"predictions":[{"y":[1.0,0.1],"n":7,"b":true},{"y":[2.0,3.0],"n":8,"b":false}]}',
        ),
        ({"y": F4, "n": np.array([7], "u1")}, False, b'{"outputs":{"y":[[1.0,0.1],[2.0,3.0]],"n":[7]}}'),
        ({"t": TEXT}, True, b'{"predictions":["a",{"b64":"/w=="}]}'),
        ({"t_bytes": TEXT}, True, b'{"predictions":[{"b64":"YQ=="},{"b64":"/w=="}]}'),
    ],
)
def test_outputs_have_the_form_that_is_asked_for(outputs, is_rows, expected):
    assert encode(outputs, is_rows) == expected


def test_numbers_that_are_not_finite_are_words_also_beside_others():
    outputs = {"y": np.array([np.nan, np.inf, 1], "f4"), "n": np.array([1, 2, 3], "i4")}

    got = encode(outputs, True)

    assert b"NaN" in got
    assert b"Infinity" in got
    assert [row["n"] for row in json.loads(got)["predictions"]] == [1, 2, 3]


def test_bits_of_bf16_are_numbers():
    bits = np.array([0x3F80, 0xC000], "u2")

    assert encode({"y": _values(bits, "BF16")}, False) == b'{"outputs":[1.0,-2.0]}'


@pytest.mark.parametrize(
    ("outputs", "error"),
    [
        ({"y": np.array(1.0)}, "Tensor name: y has no shape information"),
        (
            {"y": F4, "s": F4[:1]},
            "Tensor name: s has inconsistent batch size: 1 expecting: 2; ask by 'inputs'",
        ),
    ],
)
def test_outputs_without_rows_are_not_written_as_rows(outputs, error):
    with pytest.raises(InvalidArg, match=error):
        encode(outputs, True)
