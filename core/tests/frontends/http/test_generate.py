"""Shapes that generate deduces, and keys of its answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.dataplane import TensorSpec
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.frontends.http.codec.flat_json import put_together_flat, take_apart_flat
from tritonpy.frontends.http.codec.json_data import data_json
from tritonpy.frontends.http.generate import (
    encode_event,
    encode_generated,
    parse_generate_request,
    read_generate_request,
)
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse


def _spec(*shape: int, datatype: str = "INT64") -> dict[str, TensorSpec]:
    return {"X": TensorSpec("X", datatype, shape)}


def _shape(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    body = json.dumps({"X": list(range(count))}).encode()
    return parse_generate_request(body, _spec(*shape), "m", "").inputs["X"].shape


@given(st.lists(st.sampled_from([-1, 1, 2, 3]), min_size=1, max_size=4), st.integers(0, 40))
def test_elements_fill_the_shape_or_are_refused(shape: list[int], count: int) -> None:
    fixed = prod(dim for dim in shape if dim != -1)
    fits = count == fixed if -1 not in shape else count % fixed == 0

    if not fits:
        with pytest.raises(InvalidArg, match="to tensor with proper shape"):
            _shape(tuple(shape), count)
        return
    got = _shape(tuple(shape), count)
    assert prod(got) == count
    assert all(wanted in (-1, dim) for wanted, dim in zip(shape, got, strict=True))
    free = [dim for wanted, dim in zip(shape, got, strict=True) if wanted == -1]
    assert all(dim == 1 for dim in free[:-1])


def test_a_dimension_of_0_takes_nothing() -> None:
    with pytest.raises(InvalidArg):
        _shape((0, -1), 4)


def test_a_model_with_an_input_called_parameters_takes_none() -> None:
    specs = {"parameters": TensorSpec("parameters", "INT64", (1,))}

    with pytest.raises(InvalidArg, match="Keyword 'parameters' for nested schema also given as input"):
        parse_generate_request(b'{"parameters": {}}', specs, "m", "")


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=5), st.floats(-1e9, 1e9)),
        max_size=6,
    )
)
def test_what_names_no_input_is_a_parameter_as_it_came(members: dict[str, object]) -> None:
    members.pop("parameters", None)
    members.pop("id", None)

    request = parse_generate_request(json.dumps(members).encode(), {}, "m", "7")

    assert dict(request.parameters) == members
    assert not request.inputs


def _json(response: InferResponse, request_id: str = "") -> bytes:
    request = InferRequest("m", {}, model_version="1", id=request_id)
    return encode_event(request, response).header


def test_keys_are_sorted_and_one_element_stands_alone() -> None:
    response = InferResponse().add("b", np.array([[7]], np.int32)).add("a", np.array([1.5, 2], np.float32))

    assert _json(response, "9") == (b'{"a":[1.5,2.0],"b":7,"id":"9","model_name":"m","model_version":"1"}')


def test_what_the_server_says_hides_parameters_and_parameters_hide_outputs() -> None:
    response = InferResponse(parameters={"model_name": "x", "a": "parameter", "id": "mine"})
    response.add("a", np.array([1])).add("model_version", np.array([2]))

    assert json.loads(_json(response)) == {
        "a": "parameter",
        "id": "mine",
        "model_name": "m",
        "model_version": "1",
    }


def test_an_output_that_cannot_be_json_is_refused_unless_it_is_hidden() -> None:
    half = np.array([1], np.float16)

    with pytest.raises(InvalidArg, match="sending FP16 data via JSON is not supported"):
        _json(InferResponse().add("a", half))
    assert b'"a":1' in _json(InferResponse(parameters={"a": 1}).add("a", half))


def test_large_arrays_are_left_to_others_to_write_in_their_places() -> None:
    response = InferResponse(parameters={"b": "\0", "hidden": 1})
    response.add("z", np.arange(60_000, dtype=np.float32)).add("a", np.arange(60_000, dtype=np.int64))
    response.add("hidden", np.zeros(60_000, np.float32)).add("m", np.array([1, 2]))
    request = InferRequest("m", {}, model_version="1")

    unfinished = encode_generated(request, response)

    assert [tensor.name for tensor in unfinished.missing] == ["a", "z"]
    written = b"".join(unfinished.filled([data_json(tensor) for tensor in unfinished.missing]))
    assert written == encode_event(request, response).header


MANY = st.one_of(
    st.lists(st.integers(-5, 5), max_size=4),
    st.integers(-5, 5),
    st.just("text"),
    st.lists(st.just([1])),
    st.none(),
)
MEMBERS = st.dictionaries(
    st.sampled_from(["X", "Y", "T", "id", "other", "parameters"]),
    st.one_of(MANY, st.text(max_size=3)),
    max_size=5,
)


@given(MEMBERS, st.one_of(st.none(), MEMBERS))
def test_a_body_read_apart_gives_the_same_request_or_the_same_error(
    members: dict[str, object], nested: dict[str, object] | None
) -> None:
    body = json.dumps({**members, **({} if nested is None else {"parameters": nested})}).encode()
    specs = {
        "X": TensorSpec("X", "INT64", (2,)),
        "Y": TensorSpec("Y", "FP32", (-1, -1)),
        "T": TensorSpec("T", "BYTES", (-1,)),
        "id": TensorSpec("id", "BYTES", (1,)),
    }

    def whole() -> InferRequest:
        return parse_generate_request(body, specs, "m", "")

    def apart() -> InferRequest:
        forms = {name: (spec.datatype, spec.shape) for name, spec in specs.items()}
        document = put_together_flat(take_apart_flat(body, forms))
        return read_generate_request(document, specs, "m", "")

    def outcome(make: Callable[[], InferRequest]) -> object:
        try:
            request = make()
        except TritonError as error:
            return error.code, error.message
        tensors = [(tensor.name, tensor.shape, bytes(tensor.wire())) for tensor in request.inputs.values()]
        return request.id, dict(request.parameters), tensors

    assert outcome(apart) == outcome(whole)
