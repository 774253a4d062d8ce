"""Request bodies: what a remembered header may and may not stand for."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import InvalidArg, NotFound
from tritonpy.frontends.http.infer import RequestDecoder, parse_infer_request
from tritonpy.frontends.outputs import Classified, Placed, References
from tritonpy.shared_memory.registry import SharedMemoryRegions


def references() -> References:
    return References(SharedMemoryRegions(is_allowed=True))


REFERENCES = references()


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
    decoder = RequestDecoder(REFERENCES)
    for start in (0, 100):  # the second one is read from memory
        tail = np.arange(start, start + sum(counts), dtype=np.float32).tobytes()
        expected, expected_form = parse_infer_request(head + tail, len(head), "m", "3", REFERENCES)

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
    decoder = RequestDecoder(REFERENCES)
    decoder.decode(head + struct.pack("<2f", 1, 2), len(head), "m", "")

    with pytest.raises(InvalidArg, match="additional"):
        decoder.decode(head + tail, len(head), "m", "")


def test_bytes_behind_data_in_the_json_are_refused_every_time() -> None:
    head = header({"name": "I", "datatype": "FP32", "shape": [2], "data": [1, 2]})
    decoder = RequestDecoder(REFERENCES)
    for _ in range(3):
        request, _ = decoder.decode(head, len(head), "m", "")
        assert request.input("I").numpy().tolist() == [1, 2]
        with pytest.raises(InvalidArg, match="unexpected additional input data"):
            decoder.decode(head + b"12345678", len(head), "m", "")


def test_what_differs_between_requests_is_read_each_time() -> None:
    decoder = RequestDecoder(REFERENCES)
    for value in ("a", "b"):
        head = header(binary("I", 1), id=value, parameters={"x": value, "priority": 2})
        for _ in range(2):
            request, _ = decoder.decode(head + b"1234", len(head), "m", "")
            assert (request.id, request.parameters, request.priority) == (value, {"x": value}, 2)


def test_memory_for_headers_is_bounded() -> None:
    decoder = RequestDecoder(REFERENCES)
    for count in range(3 * RequestDecoder.MOST_REMEMBERED):
        head = header(binary(f"I{count}", 1))
        decoder.decode(head + b"1234", len(head), "m", "")

    assert len(decoder._templates) <= RequestDecoder.MOST_REMEMBERED


def in_region(name: str, count: int, **parameters: Any) -> dict[str, Any]:
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": 4 * count, **parameters}
    return {"name": name, "datatype": "FP32", "shape": [count], "parameters": parameters}


def test_a_header_that_names_a_region_is_looked_up_each_time(shared_file: Any) -> None:
    known = references()
    decoder = RequestDecoder(known)
    head = header(in_region("A", 1, shared_memory_offset=4), binary("B", 1), in_region("Z", 0))

    for content in (b"....abcd", b"....efgh"):
        known.regions.register_system("r", shared_file(64, content).key, 0, 64)
        request, _ = decoder.decode(head + b"1234", len(head), "m", "")
        assert bytes(request.input("A").wire()) == content[4:]
        assert bytes(request.input("B").wire()) == b"1234"
        known.regions.unregister_system("r")
        del request  # which uses the region

    with pytest.raises(NotFound, match="Unable to find shared memory region: 'r'"):
        decoder.decode(head + b"1234", len(head), "m", "")


def test_a_header_that_wants_an_output_in_a_region_is_looked_up_each_time(shared_file: Any) -> None:
    known = references()
    decoder = RequestDecoder(known)
    wanted = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
    head = header(binary("I", 1), outputs=[{"name": "O", "parameters": wanted}])

    for _ in range(2):
        file = shared_file(64)
        known.regions.register_system("r", file.key, 0, 64)
        _, form = decoder.decode(head + b"1234", len(head), "m", "")
        placed = form.treatments["O"]
        assert isinstance(placed, Placed)
        placed.target.write("O", b"abcd")
        assert file.content.startswith(b"abcd")
        known.regions.unregister_system("r")
        del form, placed  # which use the region

    with pytest.raises(NotFound, match="Unable to find shared memory region: 'r'"):
        decoder.decode(head + b"1234", len(head), "m", "")


def test_a_header_that_wants_classes_says_how_many_each_time() -> None:
    decoder = RequestDecoder(REFERENCES)
    head = header(binary("I", 1), outputs=[{"name": "O", "parameters": {"classification": 2}}])

    for _ in range(2):
        _, form = decoder.decode(head + b"1234", len(head), "m", "3")
        assert form.treatments == {"O": Classified(2)}


def test_what_is_wanted_with_an_output_is_noted() -> None:
    def form_of(*wishes: dict[str, Any]) -> Any:
        head = header(binary("I", 1), outputs=[{"name": "O", "parameters": wish} for wish in wishes])
        return parse_infer_request(head + b"1234", len(head), "m", "", REFERENCES)[1]

    assert form_of({"binary_data": True}).binary == {"O": True}
    assert form_of({}).binary == {"O": False}
    assert form_of({"classification": 1}).treatments["O"].count == 1
    with pytest.raises(InvalidArg, match="output 'O' already exists in request"):
        form_of({"binary_data": True}, {})
    assert form_of({"classification": 0}).treatments == {}


@pytest.mark.parametrize("data", ["[]", '["x"]', "7"])
def test_a_datatype_that_does_not_exist_is_left_to_the_check_when_there_are_no_elements(data: str) -> None:
    body = f'{{"inputs":[{{"name":"I","datatype":"NO","shape":[0,2],"data":{data}}}]}}'.encode()

    request, _ = parse_infer_request(body, None, "m", "", REFERENCES)

    assert (request.input("I").datatype, request.input("I").byte_size) == ("<invalid>", 0)
