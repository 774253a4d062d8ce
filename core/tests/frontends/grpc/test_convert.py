from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError
from tritonpy.frontends.grpc.convert import parse_infer_request, to_infer_request
from tritonpy.frontends.outputs import Classified, Placed, References
from tritonpy.protos import InferTensorContents, ModelInferRequest
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.shared_memory.registry import SharedMemoryRegions


def references() -> References:
    return References(SharedMemoryRegions(is_allowed=True))


REFERENCES = references()


def convert(message: ModelInferRequest) -> InferRequest:
    return to_infer_request(*parse_infer_request(message.SerializeToString()), REFERENCES)[0]


def one_input(
    datatype: str = "FP32",
    shape: tuple[int, ...] = (1,),
    contents: dict[str, list[Any]] | None = None,
    raw: tuple[bytes, ...] = (),
    **more: Any,
) -> ModelInferRequest:
    message = ModelInferRequest(model_name="m", raw_input_contents=raw, **more)
    tensor = message.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    if contents is not None:
        tensor.contents.CopyFrom(InferTensorContents(**contents))
    return message


def with_parameter(key: str, **value: Any) -> ModelInferRequest:
    return one_input(raw=(bytes(4),), parameters={key: value})


def test_names_version_id_and_shape_arrive() -> None:
    message = one_input(shape=(2, 3), raw=(bytes(24),), model_version="7", id="mine")
    message.outputs.add(name="A")
    message.outputs.add(name="B")

    request = convert(message)

    assert (request.model_name, request.model_version, request.id) == ("m", "7", "mine")
    assert request.inputs["INPUT0"].shape == (2, 3)
    assert request.requested_outputs == ("A", "B")


def test_no_outputs_asks_for_all() -> None:
    assert convert(one_input(raw=(b"1234",))).requested_outputs is None


@pytest.mark.parametrize("datatype", DATATYPES)
def test_raw_contents_are_taken_as_they_are(datatype: str) -> None:
    tensor = convert(one_input(datatype, raw=(b"anything",))).inputs["INPUT0"]

    assert tensor.datatype == datatype
    assert bytes(tensor.wire()) == b"anything"


@pytest.mark.parametrize("size", [16, 1024 * 1024])
def test_raw_contents_go_to_the_inputs_in_order(size: int) -> None:
    message = ModelInferRequest(model_name="m")
    for index in range(3):
        message.inputs.add(name=f"I{index}", datatype="UINT8", shape=[size])
        message.raw_input_contents.append(bytes([index]) * size)
    message.raw_input_contents.append(b"more than there are inputs is ignored")

    inputs = convert(message).inputs

    assert list(inputs) == ["I0", "I1", "I2"]
    for index, tensor in enumerate(inputs.values()):
        assert bytes(tensor.wire()) == bytes([index]) * size


def test_large_tensors_are_not_copied() -> None:
    body = one_input(raw=(bytes(1024 * 1024),)).SerializeToString()

    message, raw_contents = parse_infer_request(body)

    assert not message.raw_input_contents
    assert isinstance(raw_contents[0], memoryview)
    assert raw_contents[0].obj is body


@pytest.mark.parametrize(
    ("datatype", "field", "values", "expected"),
    [
        ("BOOL", "bool_contents", [True, False], b"\1\0"),
        ("INT8", "int_contents", [200, -1], b"\xc8\xff"),
        ("INT16", "int_contents", [70000, -2], struct.pack("<Hh", 70000 & 0xFFFF, -2)),
        ("INT32", "int_contents", [-5], struct.pack("<i", -5)),
        ("INT64", "int64_contents", [-(2**62)], struct.pack("<q", -(2**62))),
        ("UINT8", "uint_contents", [300, 1], b"\x2c\1"),
        ("UINT16", "uint_contents", [70000], struct.pack("<H", 70000 & 0xFFFF)),
        ("UINT32", "uint_contents", [4_000_000_000], struct.pack("<I", 4_000_000_000)),
        ("UINT64", "uint64_contents", [2**63], struct.pack("<Q", 2**63)),
        ("FP32", "fp32_contents", [1.5, float("inf")], struct.pack("<2f", 1.5, float("inf"))),
        ("FP64", "fp64_contents", [0.1], struct.pack("<d", 0.1)),
        ("BYTES", "bytes_contents", [b"a", b"", b"bcd"], b"\1\0\0\0a\0\0\0\0\3\0\0\0bcd"),
    ],
)
def test_typed_contents_become_the_wire_form(
    datatype: str, field: str, values: list[Any], expected: bytes
) -> None:
    tensor = convert(one_input(datatype, (len(values),), {field: values})).inputs["INPUT0"]

    assert bytes(tensor.wire()) == expected
    assert tensor.numpy().shape == (len(values),)


@given(st.lists(st.floats(width=32), max_size=50))
def test_typed_floats_keep_every_bit_that_a_float_has(values: list[float]) -> None:
    tensor = convert(one_input("FP32", (len(values),), {"fp32_contents": values})).inputs["INPUT0"]

    np.testing.assert_array_equal(tensor.numpy(), np.array(values, np.float32))


def test_empty_contents_are_an_empty_tensor() -> None:
    assert convert(one_input(shape=(0,), contents={})).inputs["INPUT0"].byte_size == 0


def test_unknown_datatype_is_left_to_the_check_against_the_model() -> None:
    assert convert(one_input("FP99", raw=(b"1234",))).inputs["INPUT0"].datatype == "<invalid>"


def both_sources() -> ModelInferRequest:
    return one_input(contents={"fp32_contents": [1.0]}, raw=(bytes(4),))


def second_input_without_data() -> ModelInferRequest:
    message = one_input(raw=(bytes(4),))
    message.inputs.add(name="INPUT1", datatype="INT32", shape=[1])
    return message


def duplicate_input() -> ModelInferRequest:
    message = one_input(raw=(bytes(4), bytes(4)), id="7")
    message.inputs.add(name="INPUT0", datatype="INT32", shape=[1])
    return message


def input_in_shared_memory(contents: bool = False, **parameters: dict[str, Any]) -> ModelInferRequest:
    message = one_input(contents={"fp32_contents": [1.0]} if contents else None)
    for key, value in parameters.items():
        for kind, content in value.items():
            setattr(message.inputs[0].parameters[key], kind, content)
    return message


def output(**parameters: dict[str, Any]) -> ModelInferRequest:
    message = one_input(raw=(bytes(4),))
    message.outputs.add(name="OUTPUT0", parameters=parameters)
    return message


NOT_TYPED = "unexpected explicit tensor data for input tensor 'INPUT0' for model 'm'"
REGION = {"string_param": "r"}
FOUR = {"int64_param": 4}


@pytest.mark.parametrize(
    ("message", "error", "text"),
    [
        (one_input(), InvalidArg, "unable to find data for input tensor 'INPUT0' for model 'm' in request."),
        (
            one_input(shape=(0,)),
            InvalidArg,
            "unable to find data for input tensor 'INPUT0' for model 'm' in request.",
        ),
        (
            second_input_without_data(),
            InvalidArg,
            "unable to find data for input tensor 'INPUT1' for model 'm' in request.",
        ),
        (
            both_sources(),
            InvalidArg,
            "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'm'",
        ),
        (
            one_input(contents={}, raw=(b"",)),
            InvalidArg,
            "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'm'",
        ),
        (duplicate_input(), InvalidArg, "[request id: 7] input 'INPUT0' already exists in request"),
        *(
            (
                one_input("FP32", contents={field: values}),
                InvalidArg,
                f"{NOT_TYPED} of type '{datatype}', expected datatype 'FP32'",
            )
            for field, values, datatype in [
                ("bool_contents", [True], "BOOL"),
                ("int_contents", [1], "INT32"),
                ("int64_contents", [1], "INT64"),
                ("uint_contents", [1], "UINT32"),
                ("uint64_contents", [1], "UINT64"),
                ("fp64_contents", [1.0], "FP64"),
                ("bytes_contents", [b"1"], "BYTES"),
            ]
        ),
        *(
            (
                one_input(datatype, contents={field: [1]}),
                InvalidArg,
                f"{NOT_TYPED} of type '{given}', expected datatype '{datatype}'",
            )
            for datatype, field, given in [
                ("INT8", "uint_contents", "UINT32"),
                ("UINT8", "int_contents", "INT32"),
                ("INT64", "int_contents", "INT32"),
                ("UINT64", "uint_contents", "UINT32"),
                ("BOOL", "int_contents", "INT32"),
                ("FP16", "fp32_contents", "FP32"),
                ("BF16", "uint_contents", "UINT32"),
            ]
        ),
        (
            one_input("FP99", contents={"fp32_contents": [1.0]}),
            InvalidArg,
            f"{NOT_TYPED} of type 'FP32', expected datatype '<invalid>'",
        ),
        (
            one_input("FP32", contents={"fp32_contents": [1.0], "int_contents": [1]}),
            InvalidArg,
            f"{NOT_TYPED} of type 'INT32', expected datatype 'FP32'",
        ),
        (
            one_input("INT8", contents={"int_contents": [1], "bytes_contents": [b"1"]}),
            InvalidArg,
            f"{NOT_TYPED}, binary data was already supplied.",
        ),
        (
            input_in_shared_memory(shared_memory_region=REGION, shared_memory_byte_size=FOUR),
            NotFound,
            "Unable to find shared memory region: 'r'",
        ),
        (
            input_in_shared_memory(True, shared_memory_region=REGION, shared_memory_byte_size=FOUR),
            InvalidArg,
            "unexpected 'content' provided when using shared memory for input tensor 'INPUT0' for model 'm'",
        ),
        (
            input_in_shared_memory(shared_memory_region=REGION),
            InvalidArg,
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for "
            "tensor 'INPUT0'",
        ),
        (
            input_in_shared_memory(shared_memory_region=FOUR),
            InvalidArg,
            "invalid value type for 'shared_memory_region' parameter for tensor 'INPUT0', expected "
            "string_param.",
        ),
        (
            input_in_shared_memory(shared_memory_region=REGION, shared_memory_byte_size=REGION),
            InvalidArg,
            "invalid value type for 'shared_memory_byte_size' parameter for tensor 'INPUT0', expected "
            "int64_param.",
        ),
        (
            output(shared_memory_region=REGION, shared_memory_byte_size=FOUR),
            NotFound,
            "Unable to find shared memory region: 'r'",
        ),
        (
            output(shared_memory_region=FOUR),
            InvalidArg,
            "invalid value type for 'shared_memory_region' parameter for tensor 'OUTPUT0', expected "
            "string_param.",
        ),
        (
            output(classification=REGION),
            InvalidArg,
            "invalid value type for 'classification' parameter, expected int64_param",
        ),
        (
            output(classification={"int64_param": 0}),
            InvalidArg,
            "invalid value for 'classification' parameter, expected >= 0",
        ),
        (
            output(shared_memory_region=REGION, shared_memory_byte_size=FOUR, classification=FOUR),
            InvalidArg,
            "output can't set both 'shared_memory_region' and 'classification'",
        ),
        *(
            (
                message(**{key: FOUR}),
                InvalidArg,
                f"'{key}' can not be specified without 'shared_memory_region' parameter for tensor "
                f"'{tensor}'",
            )
            for message, tensor in ((input_in_shared_memory, "INPUT0"), (output, "OUTPUT0"))
            for key in ("shared_memory_offset", "shared_memory_byte_size")
        ),
        *(
            (
                message(
                    shared_memory_region=REGION, shared_memory_byte_size=FOUR, shared_memory_offset=REGION
                ),
                InvalidArg,
                f"invalid value type for 'shared_memory_offset' parameter for tensor '{tensor}', expected "
                f"int64_param.",
            )
            for message, tensor in ((input_in_shared_memory, "INPUT0"), (output, "OUTPUT0"))
        ),
    ],
)
def test_messages_that_contradict_themselves_are_refused(
    message: ModelInferRequest, error: type[TritonError], text: str
) -> None:
    with pytest.raises(error) as refused:
        convert(message)

    assert str(refused.value) == text


@pytest.mark.parametrize("body", [b"\xff\xff\xff\xff", b"\x0a\x02\xff\xfe", b"\x3a\xff", b"\xff" * 1_000_000])
def test_bytes_that_are_no_message_are_refused(body: bytes) -> None:
    with pytest.raises(Internal, match=r"^Unable to parse request$"):
        parse_infer_request(body)


@pytest.mark.parametrize(
    ("key", "value", "attribute", "expected"),
    [
        ("sequence_id", {"int64_param": 5}, "correlation_id", 5),
        ("sequence_id", {"int64_param": -5}, "correlation_id", 2**64 - 5),
        ("sequence_id", {"string_param": "abc"}, "correlation_id", "abc"),
        ("sequence_start", {"bool_param": True}, "flags", SEQUENCE_START),
        ("sequence_start", {"bool_param": False}, "flags", 0),
        ("sequence_end", {"bool_param": True}, "flags", SEQUENCE_END),
        ("priority", {"int64_param": 2}, "priority", 2),
        ("priority", {"uint64_param": 2**63 + 1}, "priority", 2**63 + 1),
        ("timeout", {"int64_param": 5_000_000}, "timeout_us", 5_000_000),
        ("timeout", {"int64_param": -1}, "timeout_us", 2**64 - 1),
    ],
)
def test_parameters_with_a_meaning_become_attributes(
    key: str, value: dict[str, Any], attribute: str, expected: object
) -> None:
    request = convert(with_parameter(key, **value))

    assert getattr(request, attribute) == expected
    assert request.parameters == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"int64_param": -3}, -3),
        ({"bool_param": False}, False),
        ({"string_param": "s"}, "s"),
        ({"double_param": 1.5}, 1.5),
    ],
)
def test_other_parameters_are_handed_to_the_model(value: dict[str, Any], expected: object) -> None:
    for key in ("custom", "binary_data_output", "headers"):
        assert convert(with_parameter(key, **value)).parameters == {key: expected}


def test_wish_for_an_empty_final_response_is_told_apart() -> None:
    wished = with_parameter("triton_enable_empty_final_response", bool_param=True)

    assert to_infer_request(wished, wished.raw_input_contents, REFERENCES)[1] is True
    assert to_infer_request(one_input(raw=(b"1234",)), [b"1234"], REFERENCES)[1] is False


RESERVED = (
    "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys starting "
    "with 'triton_' are allowed: triton_enable_empty_final_response"
)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        *(
            ("sequence_id", value, "invalid value type for 'sequence_id' parameter, expected int64_param or "
             "string_param.")
            for value in ({"uint64_param": 7}, {"bool_param": True}, {"double_param": 1.0}, {})
        ),
        ("sequence_start", FOUR, "invalid value type for 'sequence_start' parameter, expected bool_param."),
        ("sequence_end", REGION, "invalid value type for 'sequence_end' parameter, expected bool_param."),
        ("priority", {"int64_param": -1}, "invalid value for 'priority', expected value >= 0."),
        *(
            ("priority", value, "invalid value type for 'priority' parameter, expected int64_param or "
             "uint64_param.")
            for value in (REGION, {"bool_param": True}, {})
        ),
        *(
            ("timeout", value, "invalid value type for 'timeout' parameter, expected int64_param.")
            for value in ({"uint64_param": 5}, REGION, {})
        ),
        (
            "triton_enable_empty_final_response",
            FOUR,
            "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param.",
        ),
        ("triton_anything", {"bool_param": True}, RESERVED),
        *(
            ("custom", value, "invalid value type for 'custom' parameter, expected int64_param, bool_param, "
             "or string_param.")
            for value in ({"uint64_param": 9}, {})
        ),
    ],
)  # fmt: skip
def test_parameters_of_a_wrong_type_are_refused(key: str, value: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArg) as refused:
        convert(with_parameter(key, **value))

    assert str(refused.value) == text


def test_an_input_in_a_region_is_where_the_client_put_it(shared_file: Any) -> None:
    known = references()
    known.regions.register_system("r", shared_file(64, b"12345678").key, 0, 64)
    message = input_in_shared_memory(
        shared_memory_region=REGION, shared_memory_byte_size=FOUR, shared_memory_offset=FOUR
    )
    message.inputs.add(name="INPUT1", datatype="FP32", shape=[1])

    request, _, treatments = to_infer_request(message, [b"abcd"], known)

    assert bytes(request.input("INPUT0").wire()) == b"5678"
    assert bytes(request.input("INPUT1").wire()) == b"abcd"  # raw contents are not used up by regions
    assert treatments == {}


def test_what_is_wanted_with_outputs_is_told_by_name(shared_file: Any) -> None:
    known = references()
    file = shared_file(64)
    known.regions.register_system("r", file.key, 0, 64)
    message = output(shared_memory_region=REGION, shared_memory_byte_size=FOUR)
    message.outputs.add(name="OUTPUT1", parameters={"classification": {"int64_param": 3}})
    message.outputs.add(name="OUTPUT2")

    request, _, treatments = to_infer_request(message, message.raw_input_contents, known)

    assert request.requested_outputs == ("OUTPUT0", "OUTPUT1", "OUTPUT2")
    assert sorted(treatments) == ["OUTPUT0", "OUTPUT1"]
    placed = treatments["OUTPUT0"]
    assert isinstance(placed, Placed)
    placed.target.write("OUTPUT0", b"abcd")
    assert file.content.startswith(b"abcd")
    assert treatments["OUTPUT1"] == Classified(3)
    message.outputs.add(name="OUTPUT1", parameters={"classification": {"int64_param": 5}})
    with pytest.raises(InvalidArg, match="output 'OUTPUT1' already exists in request"):
        to_infer_request(message, message.raw_input_contents, known)
