from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import InvalidArg
from tritonpy.frontends.grpc.convert import parse_infer_request
from tritonpy.frontends.grpc.wire import (
    RAW_INPUT_CONTENTS,
    encode_varint,
    field_head,
    has_more_fields,
    split_field,
)
from tritonpy.protos import ModelInferRequest, ModelInferResponse

PARAMETER = st.one_of(
    st.builds(lambda v: {"bool_param": v}, st.booleans()),
    st.builds(lambda v: {"int64_param": v}, st.integers(-(2**63), 2**63 - 1)),
    st.builds(lambda v: {"double_param": v}, st.floats(allow_nan=False)),
)
MESSAGES = st.builds(
    lambda **fields: ModelInferRequest(**fields),
    model_name=st.text(max_size=200),
    id=st.text(max_size=5),
    parameters=st.dictionaries(st.text(max_size=5), PARAMETER, max_size=3),
    inputs=st.lists(
        st.builds(
            lambda name, shape: {"name": name, "shape": shape},
            st.text(max_size=5),
            st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
        ),
        max_size=3,
    ),
    raw_input_contents=st.lists(st.binary(max_size=300), max_size=5),
)


@given(MESSAGES)
def test_rest_and_values_together_are_the_message(message: ModelInferRequest) -> None:
    split = split_field(message.SerializeToString(), RAW_INPUT_CONTENTS)

    assert split is not None
    rest, values = split
    put_back = ModelInferRequest.FromString(rest)
    assert not put_back.raw_input_contents
    put_back.raw_input_contents.extend(bytes(value) for value in values)
    assert put_back == message


@given(st.lists(MESSAGES, min_size=1, max_size=3))
def test_fields_are_found_wherever_they_stand(messages: list[ModelInferRequest]) -> None:
    # Messages one after the other are their merge, in which raw contents stand between other fields.
    serialized = b"".join(message.SerializeToString() for message in messages)

    split = split_field(serialized, RAW_INPUT_CONTENTS)

    assert split is not None
    merged = ModelInferRequest.FromString(serialized)
    assert [bytes(value) for value in split[1]] == list(merged.raw_input_contents)
    merged.ClearField("raw_input_contents")
    assert ModelInferRequest.FromString(split[0]) == merged


@given(st.binary(max_size=400))
def test_what_is_no_message_is_left_to_protobuf_or_split_without_loss(junk: bytes) -> None:
    split = split_field(junk, RAW_INPUT_CONTENTS)

    if split is not None:
        assert len(split[0]) + sum(map(len, split[1])) <= len(junk)


@given(MESSAGES.filter(lambda message: message.ByteSize() > 0))
def test_truncated_message_is_left_to_protobuf(message: ModelInferRequest) -> None:
    serialized = message.SerializeToString() + b"\x3a\x05abcde"

    for size in (len(serialized) - 1, len(serialized) - 5, len(serialized) - 6):
        assert split_field(serialized[:size], RAW_INPUT_CONTENTS) is None


def test_values_are_views_of_the_received_bytes() -> None:
    serialized = ModelInferRequest(model_name="m", raw_input_contents=[b"tensor"]).SerializeToString()

    split = split_field(serialized, RAW_INPUT_CONTENTS)

    assert split is not None
    assert split[1][0].obj is serialized


def test_unknown_fields_of_every_kind_are_kept() -> None:
    unknown = b"\x80\x01\x05" + b"\x85\x01abcd" + b"\x81\x01abcdefgh" + b"\x82\x01\x02hi"  # field 16

    split = split_field(unknown + b"\x3a\x01x" + unknown, RAW_INPUT_CONTENTS)

    assert split is not None
    assert split[0] == unknown * 2
    assert [bytes(value) for value in split[1]] == [b"x"]


@pytest.mark.parametrize(
    "message",
    [b"\x0b\x0c", b"\x80" * 11 + b"\x01", b"\x3a" + b"\xff" * 9 + b"\x01abc"],
    ids=["group", "varint without end", "length beyond the message"],
)
def test_odd_bytes_are_left_to_protobuf(message: bytes) -> None:
    assert split_field(message, RAW_INPUT_CONTENTS) is None


@pytest.mark.parametrize("filler", [b"\x08\x01", b"\xff", b"\x80"], ids=["tiny fields", "0xff", "0x80"])
def test_hostile_megabytes_are_given_up_at_once(filler: bytes) -> None:
    message = filler * (8 * 1024 * 1024 // len(filler))

    durations_s = []
    for _ in range(5):  # of which the machine may disturb some
        start = time.thread_time()
        split = split_field(message, RAW_INPUT_CONTENTS)
        durations_s.append(time.thread_time() - start)
        assert split is None

    assert min(durations_s) < 0.2


@given(st.integers(0, 2**40), st.integers(1, 15))
def test_field_head_is_what_protobuf_reads(byte_size: int, number: int) -> None:
    head = field_head(number, byte_size)

    assert head[0] == number << 3 | 2
    value = 0
    for position, byte in enumerate(head[1:]):
        value |= (byte & 0x7F) << 7 * position
        assert (byte >= 0x80) == (position < len(head) - 2)
    assert value == byte_size


@pytest.mark.parametrize("byte_size", [0, 1, 127, 128, 16383, 16384, 300_000])
def test_raw_contents_written_by_hand_are_read_by_protobuf(byte_size: int) -> None:
    data = bytes(byte_size)

    message = ModelInferResponse.FromString(field_head(6, byte_size) + data)

    assert list(message.raw_output_contents) == [data]


def test_varint_of_zero_is_one_byte() -> None:
    assert encode_varint(0) == b"\0"


@given(MESSAGES)
def test_fields_are_counted_where_they_cost_more_than_their_bytes(message: ModelInferRequest) -> None:
    serialized = message.SerializeToString()
    count = len(message.ListFields()) + sum(
        len(fields) - 1
        for fields in (message.inputs, message.parameters, message.raw_input_contents)
        if fields
    )
    for each in message.inputs:
        shape = ModelInferRequest.InferInputTensor(shape=each.shape).ByteSize() if each.shape else 0
        count += len(each.ListFields()) + (shape - 2 if shape else 0)

    assert not has_more_fields(serialized, count)
    assert count == 0 or has_more_fields(serialized, count - 1)


EMPTY = 200_000


@pytest.mark.parametrize(
    "body",
    [
        b"\x2a\x00" * EMPTY,
        b"\x32\x00" * EMPTY,
        b"\x22\x00" * EMPTY,
        b"\x3a\x00" * EMPTY,
        field_head(5, 2 * EMPTY) + b"\x22\x00" * EMPTY,
        field_head(6, 2 * EMPTY) + b"\x12\x00" * EMPTY,
        field_head(5, 2 * EMPTY) + b"\x18\x01" * EMPTY,
        field_head(5, EMPTY + 4) + field_head(3, EMPTY) + b"\x01" * EMPTY,
    ],
    ids=[
        "inputs",
        "outputs",
        "parameters",
        "tensors",
        "of inputs",
        "of outputs",
        "dimensions",
        "packed ones",
    ],
)
def test_a_message_of_nothing_but_fields_is_not_parsed(body: bytes) -> None:
    with pytest.raises(InvalidArg, match="names more than 65536 inputs, outputs, dimensions and parameters"):
        parse_infer_request(body)
