"""Requests taken apart and put together again are the requests they were."""

from __future__ import annotations

import json
import marshal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import Internal, InvalidArg, TritonError
from tritonpy.frontends.http.codec.json_body import parse_json
from tritonpy.frontends.http.codec.json_data import data_json
from tritonpy.frontends.http.codec.large_json import (
    Parts,
    ReadData,
    json_byte_size,
    put_together,
    take_apart,
    write_data,
)
from tritonpy.frontends.http.infer import read_document
from tritonpy.frontends.outputs import References
from tritonpy.tensor import Tensor

integers = st.integers(-(2**63), 2**63 - 1)
names = st.sampled_from(["A", "B"]) | integers
shapes = st.lists(st.integers(-1, 3) | st.none(), max_size=3) | st.none()
datas = (
    st.lists(st.integers(0, 9) | st.text(max_size=2) | st.lists(st.integers(0, 9)), max_size=4) | st.none()
)
inputs = st.fixed_dictionaries(
    {},
    optional={
        "name": names,
        "datatype": st.sampled_from(["INT32", "BYTES", "FP32", "FP16", "no"]) | st.none(),
        "shape": shapes,
        "data": datas,
        "parameters": st.dictionaries(st.text(max_size=3), integers, max_size=2) | st.none(),
        "unknown": st.just([1, 2]),
    },
)
documents = (
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.text(max_size=3) | st.none(),
            "inputs": st.lists(inputs | integers | st.none(), max_size=3) | integers,
            "outputs": st.lists(st.dictionaries(st.text(max_size=3), integers), max_size=2),
            "parameters": st.dictionaries(st.text(max_size=3), integers) | st.none(),
            "other": st.lists(integers),
        },
    )
    | integers
    | st.lists(integers)
)


@given(documents)
def test_what_is_left_travels_and_nothing_that_is_read_is_lost(document: Any) -> None:
    parts = take_apart(json.dumps(document).encode())
    rest = marshal.loads(marshal.dumps(parts.rest, 2))

    again = put_together(Parts(rest, parts.data))

    if not isinstance(document, dict):
        assert again is None
        return
    assert set(again) == set(document) - {"other"}
    for key in ("id", "outputs", "parameters"):
        assert again.get(key) == document.get(key)
    if not isinstance(document.get("inputs"), list):
        assert again.get("inputs") == document.get("inputs")
        return
    for item, original in zip(again["inputs"], document["inputs"], strict=True):
        if isinstance(original, dict):
            assert set(item) == set(original) - {"unknown"}
            assert all(item[key] == original[key] for key in set(item) - {"data"})
            assert isinstance(item.get("data"), ReadData) == ("data" in original)
        else:
            assert item == original


def test_data_becomes_a_tensor_or_the_error_that_it_would_have_been() -> None:
    document = put_together(
        take_apart(
            b'{"inputs":[{"name":"A","datatype":"INT32","shape":[2],"data":[[1],2]},'
            b'{"name":"B","datatype":"INT32","shape":[3],"data":[1]},{"name":"C","data":[1]}]}'
        )
    )
    first, second, third = (item["data"] for item in document["inputs"])

    assert first.tensor().numpy().tolist() == [1, 2]
    with pytest.raises(Internal, match="Shape does not match true shape"):
        second.tensor()
    assert third.outcome is None


@pytest.mark.parametrize("data", ["{}", "[]", "7"])
def test_data_of_a_datatype_that_does_not_exist_is_refused_as_in_a_small_request(data: str) -> None:
    body = b'{"inputs":[{"name":"A","datatype":"FQ32","shape":[1],"data":%b}]}' % data.encode()
    references = References(None)  # type: ignore[arg-type]  # not asked
    messages = []
    for document in (parse_json(body), put_together(take_apart(body))):
        with pytest.raises(TritonError) as refused:
            read_document(document, None, "m", "", references)
        messages.append(refused.value.message)

    assert messages[0] == messages[1]
    assert messages[0].startswith("invalid datatype" if data == "[]" else "Unable to parse 'data'")


@pytest.mark.parametrize(
    "body",
    [
        b'{"inputs":[' + b"{}," * 70_000 + b"{}]}",
        b'{"inputs":[],"parameters":{"a":[' + b"{}," * 70_000 + b"0]}}",
        b'{"inputs":[{"name":"A","datatype":"INT8","shape":[' + b"1," * 70_000 + b'1],"data":[1]}]}',
    ],
)
def test_a_request_that_names_more_than_anybody_would_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArg, match="names more than 65536 inputs, outputs, dimensions and parameters"):
        take_apart(body)


@pytest.mark.parametrize("datatype", ["FP32", "FP64", "INT8", "INT32", "INT64", "UINT8", "BOOL", "BYTES"])
def test_the_size_of_an_answer_is_guessed_within_a_factor_of_four(datatype: str) -> None:
    generator = np.random.default_rng(1)
    if datatype == "BYTES":
        array = np.array([b"x" * 50] * 1000, object)
    elif datatype == "BOOL":
        array = generator.random(10_000) > 0.5
    elif datatype.startswith("FP"):
        array = generator.random(10_000).astype("f4" if datatype == "FP32" else "f8")
    else:
        info = np.iinfo(datatype.lower())
        array = generator.integers(info.min, info.max, 10_000, dtype=datatype.lower())
    tensor = Tensor.from_numpy("A", array, datatype)

    text = write_data([tensor])[0]

    assert text == data_json(tensor)
    assert len(text) / 4 < json_byte_size(tensor) < len(text) * 4
