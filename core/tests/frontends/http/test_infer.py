"""Request bodies: what a remembered header may and may not stand for."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import InvalidArg
from tritonpy.frontends.http.infer import RequestDecoder, parse_infer_request


def header(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def binary(name: str, count: int) -> dict[str, Any]:
    return {
        "name": name,
        "datatype": "FP32",
        "shape": [count],
        "parameters": {"binary_data_size": 4 * count},
    }


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.booleans())
def test_a_remembered_header_gives_the_same_request_as_reading_it(
    counts: list[int], wants_binary: bool
) -> None:
    head = header(
        *(binary(f"I{index}", count) for index, count in enumerate(counts)),
        outputs=[{"name": "O", "parameters": {"binary_data": wants_binary}}],
    )
    decoder = RequestDecoder()
    for start in (0, 100):  # the second one is read from memory
        tail = np.arange(start, start + sum(counts), dtype=np.float32).tobytes()
        expected, expected_form = parse_infer_request(head + tail, len(head), "m", "3")

        request, form = decoder.decode(head + tail, len(head), "m", "3")

        assert list(request.inputs) == list(expected.inputs)
        for name, tensor in request.inputs.items():
            assert tensor.datatype == "FP32"
            np.testing.assert_array_equal(tensor.numpy(), expected.input(name).numpy())
        assert request.requested_outputs == expected.requested_outputs
        assert (request.model_name, request.model_version) == ("m", "3")
        assert form == expected_form


@pytest.mark.parametrize("tail", [b"", b"1234", b"123456789"])
def test_a_remembered_header_with_other_bytes_behind_it_is_refused_as_ever(tail: bytes) -> None:
    head = header(binary("I", 2))
    decoder = RequestDecoder()
    decoder.decode(head + struct.pack("<2f", 1, 2), len(head), "m", "")

    with pytest.raises(InvalidArg, match="additional"):
        decoder.decode(head + tail, len(head), "m", "")


def test_bytes_behind_data_in_the_json_are_refused_every_time() -> None:
    head = header({"name": "I", "datatype": "FP32", "shape": [2], "data": [1, 2]})
    decoder = RequestDecoder()
    for _ in range(3):
        request, _ = decoder.decode(head, len(head), "m", "")
        assert request.input("I").numpy().tolist() == [1, 2]
        with pytest.raises(InvalidArg, match="unexpected additional input data"):
            decoder.decode(head + b"12345678", len(head), "m", "")


def test_what_differs_between_requests_is_read_each_time() -> None:
    decoder = RequestDecoder()
    for value in ("a", "b"):
        head = header(binary("I", 1), id=value, parameters={"x": value, "priority": 2})
        for _ in range(2):
            request, _ = decoder.decode(head + b"1234", len(head), "m", "")
            assert (request.id, request.parameters, request.priority) == (value, {"x": value}, 2)


def test_memory_for_headers_is_bounded() -> None:
    decoder = RequestDecoder()
    for count in range(3 * RequestDecoder.MOST_REMEMBERED):
        head = header(binary(f"I{count}", 1))
        decoder.decode(head + b"1234", len(head), "m", "")

    assert len(decoder._templates) <= RequestDecoder.MOST_REMEMBERED
