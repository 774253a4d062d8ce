"""What a request says of where it goes, read from its bytes: the same as protobuf and JSON say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.frontends.grpc.native.call import Refused
from tritonpy.frontends.grpc.native.framing import PREFIX, BrokenFraming
from tritonpy.protos import ModelInferRequest
from tritonpy_router.grpc_forward.message import OneMessage
from tritonpy_router.scan import Asked, Pieces, Unreadable, scan_json, scan_message

NAMES = st.text(max_size=8)
SEQUENCES = st.one_of(st.integers(1, 2**64 - 1), st.text(min_size=1, max_size=6))


def message(asked: Asked, sizes: list[int]) -> bytes:
    request = ModelInferRequest(model_name=asked.model, model_version=asked.version, id=asked.id)
    if isinstance(asked.sequence, str):
        request.parameters["sequence_id"].string_param = asked.sequence
    elif asked.sequence < 2**63:
        request.parameters["sequence_id"].int64_param = asked.sequence
    else:
        request.parameters["sequence_id"].uint64_param = asked.sequence
    request.parameters["sequence_start"].bool_param = asked.is_start
    request.parameters["sequence_end"].bool_param = asked.is_end
    request.parameters["priority"].uint64_param = 3
    request.parameters["weight"].double_param = 0.5
    for size in sizes:
        request.inputs.add(name="INPUT0", datatype="FP32", shape=[size]).contents.fp32_contents.extend(
            [1.5] * size
        )
        request.raw_input_contents.append(bytes(size))
    return request.SerializeToString()


@given(
    st.builds(Asked, NAMES, NAMES, NAMES, SEQUENCES, st.booleans(), st.booleans()),
    st.lists(st.integers(0, 300), max_size=3),
)
def test_a_message_says_what_protobuf_says(asked: Asked, sizes: list[int]) -> None:
    body = message(asked, sizes)

    assert scan_message(body) == asked
    assert scan_message(memoryview(body)) == asked


def test_the_order_of_fields_does_not_matter_and_the_last_one_counts() -> None:
    tensors = ModelInferRequest(raw_input_contents=[b"12345"]).SerializeToString()
    first, second = (ModelInferRequest(model_name=name).SerializeToString() for name in ("one", "two"))

    assert scan_message(tensors + first + tensors + second).model == "two"


@given(st.binary(max_size=60))
def test_no_bytes_do_anything_but_be_read_or_refused(body: bytes) -> None:
    try:
        asked = scan_message(body)
    except Unreadable:
        return
    assert isinstance(asked.model, str)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"\x0a\x05abc", "longer than the message"),
        (b"\x0a", "ends within a number"),
        (b"\x0a" + b"\x80" * 11, "more than 64 bits"),
        (b"\x0a\x02\xff\xfe", "not UTF-8"),
        (b"\x0b", "unknown kind 3"),
        (b"\x22\x02\x0a\x05", "longer than its entry"),
    ],
)
def test_bytes_that_are_no_message_are_refused_with_the_reason(body: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        scan_message(body)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"sequence_id": 7, "sequence_start": True}, Asked("m", sequence=7, is_start=True)),
        ({"sequence_id": "a", "sequence_end": True}, Asked("m", sequence="a", is_end=True)),
        ({"sequence_id": 1.5, "sequence_start": "yes"}, Asked("m")),
        ({}, Asked("m")),
        ("no object", Asked("m")),
    ],
)
def test_json_says_which_sequence_it_belongs_to(parameters: Any, expected: Asked) -> None:
    header = json.dumps({"parameters": parameters}).encode()
    whole, part = Asked("m"), Asked("m")

    scan_json(header, None, whole)
    scan_json(header + b"\x00binary", len(header), part)

    assert whole == part == expected


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(Unreadable):
        scan_json(b"{", None, Asked())


@given(
    st.builds(Asked, NAMES, NAMES, NAMES, SEQUENCES, st.booleans(), st.booleans()),
    st.lists(st.integers(0, 300), max_size=3),
    st.lists(st.integers(1, 40), min_size=1, max_size=50),
)
def test_a_message_in_pieces_says_the_same(asked: Asked, sizes: list[int], cuts: list[int]) -> None:
    whole = b"\0" * 5 + message(asked, sizes)
    pieces, begin = [], 0
    for cut in cuts:
        pieces.append(whole[begin : begin + cut])
        begin += cut
    pieces = [piece for piece in [*pieces, whole[begin:]] if piece]

    assert scan_message(Pieces(pieces), 5) == scan_message(whole, 5) == asked


@pytest.mark.parametrize("size", [1, 3, 5, 4096, 70_000])
def test_a_message_is_kept_as_the_pieces_that_it_came_in(size: int) -> None:
    announced: list[int] = []
    arriving = OneMessage(announced.append)
    whole = PREFIX.pack(1, 200_000) + bytes(range(250)) * 800
    parts = [whole[begin : begin + size] for begin in range(0, len(whole), size)]
    for part in parts:
        arriving.add(part)
    arriving.end()

    assert (announced, arriving.flag, b"".join(arriving.pieces)) == ([200_000], 1, whole)
    if size >= 4096:
        large = [part for part in parts if len(part) >= 4096]
        assert [id(piece) for piece in arriving.pieces][: len(large)] == [id(part) for part in large]
    else:
        assert len(arriving.pieces) < len(whole) / 4000


@pytest.mark.parametrize(
    ("parts", "error", "text"),
    [
        ([], Refused, "got none"),
        ([b"\0\0\0"], BrokenFraming, "incomplete"),
        ([PREFIX.pack(0, 3), b"ab"], BrokenFraming, "incomplete"),
        ([PREFIX.pack(0, 3), b"abcd"], Refused, "got more"),
        ([PREFIX.pack(2, 3)], BrokenFraming, "flag 2"),
    ],
)
def test_what_is_not_one_message_is_refused(parts: list[bytes], error: type[Exception], text: str) -> None:
    arriving = OneMessage(lambda size: None)

    def read() -> None:
        for part in parts:
            arriving.add(part)
        arriving.end()

    with pytest.raises(error, match=text):
        read()
