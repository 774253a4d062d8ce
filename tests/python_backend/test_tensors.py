"""Tensors of every kind, on their way into a model, in it and out of it."""

from __future__ import annotations

import numpy as np
import pytest
from tritonpy.plugin import Tensor

NUMBERS = {
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
UNSUPPORTED = "TritonModelException: NumPy dtype is not supported."


def limits(datatype: str) -> np.ndarray:
    kind = NUMBERS[datatype]
    info = np.iinfo(kind) if np.dtype(kind).kind in "iu" else np.finfo(kind)
    return np.array([info.min, 0, 1, info.max], kind)


@pytest.mark.parametrize("datatype", NUMBERS)
def test_numbers_come_back_as_they_were(server, datatype):
    [sent] = server.stream("echo", {f"{datatype}_IN": limits(datatype)})

    assert sent.error == ""
    assert sent.outputs == {f"{datatype}_OUT": limits(datatype).tolist()}
    assert sent.types == {f"{datatype}_OUT": (datatype, [4])}


@pytest.mark.parametrize("datatype", [name for name in NUMBERS if name != "FP16"])
def test_numbers_come_back_as_they_were_as_json(server, datatype):
    answer = server.infer("echo", {f"{datatype}_IN": np.array([0, 1, 100], NUMBERS[datatype])})

    assert answer.outputs == {f"{datatype}_OUT": [0, 1, 100]}


def test_truth_values_come_back_as_they_were(server):
    sent = server.grpc_infer("echo", {"BOOL_IN": np.array([True, False])})

    assert sent.outputs == {"BOOL_OUT": [True, False]}


def test_strings_come_back_as_they_were(server):
    elements = [b"", b"a", "é".encode(), b"\xff\xfe", b"ends in zero\0", b"x" * 70_000]

    sent = server.grpc_infer("echo", {"BYTES_IN": np.array(elements, object)})

    assert sent.outputs == {"BYTES_OUT": elements}


def test_bf16_comes_back_as_it_was(server):
    bits = np.array([0x3F80, 0x4000, 0x7F80], np.uint16)

    sent = server.grpc_infer("echo", {"BF16_IN": Tensor.from_numpy("BF16_IN", bits, "BF16")})

    assert sent.outputs == {"BF16_OUT": bits.tolist()}
    assert sent.types == {"BF16_OUT": ("BF16", [3])}


@pytest.mark.parametrize("datatype", ["FP32", "BYTES", "BOOL", "INT64"])
def test_tensors_without_elements_come_back(server, datatype):
    kind = {"BYTES": object, "BOOL": bool}.get(datatype) or NUMBERS[datatype]

    sent = server.grpc_infer("echo", {f"{datatype}_IN": np.zeros(0, kind)})

    assert sent.types == {f"{datatype}_OUT": (datatype, [0])}


def test_many_tensors_come_back_together(server):
    inputs = {f"{datatype}_IN": limits(datatype) for datatype in NUMBERS}

    sent = server.grpc_infer("echo", inputs)

    assert sent.outputs == {f"{datatype}_OUT": limits(datatype).tolist() for datatype in NUMBERS}


@pytest.mark.parametrize(
    ("what", "shape", "elements"),
    [
        ("bytes objects", [2], [b"a", b"bc"]),
        ("str objects", [2], [b"a", "é".encode()]),
        ("number objects", [3], [b"1", b"2.5", b"None"]),
        ("mixed objects", [3], [b"a", b"b", b"3"]),
        ("byte strings", [2], [b"a", b"bc"]),
        ("byte strings with a final zero", [2], [b"a", b"\0b"]),  # numpy does not know of the zero
        ("empty strings", [2], [b"", b""]),
        ("no strings", [0], []),
        ("strings in two dimensions", [2, 1], [[b"a"], [b"b"]]),
        ("strings in Fortran order", [2, 2], [[b"a", b"b"], [b"c", b"d"]]),
        ("every second string", [2], [b"a", b"c"]),
        ("not UTF-8", [1], [b"\xff\xfe"]),
        ("a long string", [1], [b"x" * 100_000]),
    ],
)
def test_arrays_of_strings_become_outputs(server, what, shape, elements):
    sent = server.grpc_infer("echo", {"MAKE": [what]})

    assert sent.outputs == {"BYTES_OUT": elements}
    assert sent.types == {"BYTES_OUT": ("BYTES", shape)}


@pytest.mark.parametrize(
    ("what", "shape", "elements"),
    [
        ("floats", [2, 3], [[0, 1, 2], [3, 4, 5]]),
        ("no floats", [0], []),
        ("no rows", [0, 3], []),
        ("a scalar", [], 3),
        ("transposed", [3, 2], [[0, 3], [1, 4], [2, 5]]),
        ("Fortran order", [2, 3], [[0, 1, 2], [3, 4, 5]]),
        ("every second column", [2, 2], [[0, 2], [3, 5]]),
        ("reversed", [2, 3], [[3, 4, 5], [0, 1, 2]]),
        ("broadcast", [2, 2], [[2, 2], [2, 2]]),
        ("read-only", [2], [1, 2]),
        ("infinite", [3], [float("inf"), float("-inf"), float("nan")]),
        ("matrix", [1, 2], [[1, 2]]),
    ],
)
def test_arrays_of_numbers_become_outputs_whatever_their_memory_looks_like(server, what, shape, elements):
    sent = server.grpc_infer("echo", {"MAKE": [what]})

    np.testing.assert_array_equal(sent.outputs["FP32_OUT"], elements)
    assert sent.types == {"FP32_OUT": ("FP32", shape)}


def test_an_output_has_the_datatype_of_its_array(server):
    sent = server.grpc_infer("echo", {"MAKE": ["doubles"]})

    assert sent.types == {"FP32_OUT": ("FP64", [2])}


def test_truth_values_become_an_output(server):
    assert server.grpc_infer("echo", {"MAKE": ["flags"]}).outputs == {"BOOL_OUT": [True, False]}


@pytest.mark.parametrize("what", ["complex", "times", "records"])
def test_arrays_that_no_datatype_fits_are_refused(server, what):
    answer = server.infer("echo", {"MAKE": [what]})

    assert (answer.status, answer.error) == (500, UNSUPPORTED)


@pytest.mark.parametrize("what", ["a list", "None", "a number for a name"])
def test_what_is_no_array_and_no_name_is_refused(server, what):
    answer = server.infer("echo", {"MAKE": [what]})

    assert answer.status == 500
    assert answer.error.startswith("TypeError: ")


def test_a_tensor_must_have_a_name(server):
    answer = server.infer("echo", {"MAKE": ["no name"]})

    assert answer.error == "TritonModelException: Tensor name cannot be an empty string."


@pytest.mark.parametrize(
    ("what", "name", "elements"),
    [("str array", "BYTES_OUT", [b"a", b"bc"]), ("big-endian", "FP32_OUT", [1, 2])],
)
def test_arrays_of_str_and_of_another_byte_order_are_taken(server, what, name, elements):
    if server.is_ours:
        assert server.grpc_infer("echo", {"MAKE": [what]}).outputs == {name: elements}
    else:
        assert server.infer("echo", {"MAKE": [what]}).error == UNSUPPORTED


def test_raw_bits_make_a_bf16_output(server):
    sent = server.grpc_infer("echo", {"MAKE": ["integers for BF16"]})

    assert sent.outputs == {"BF16_OUT": [0x3F80]}
    assert sent.types == {"BF16_OUT": ("BF16" if server.is_ours else "UINT16", [1])}


def test_a_tensor_tells_its_name_shape_and_place(server):
    assert server.ask("tensors.accessors") == ["T", [2, 3], True, "float32"]


@pytest.mark.ours("2.51 raises TypeError: its number has no Python type")
def test_a_tensor_tells_its_datatype(server):
    assert server.ask("tensors.triton_dtype") == 11


def test_an_input_is_an_array_that_may_be_written_to(server):
    assert server.ask("tensors.input_is_writable") == [True, "object", [1], True]


def test_an_array_outlives_its_tensor(server):
    assert server.ask("tensors.array_of_a_dropped_tensor") == 3000


def test_an_input_keeps_its_name_in_a_response(server):
    assert server.ask("tensors.input_tensors_in_a_response") == ["CASE"]


def test_strings_are_packed_and_unpacked_by_hand(server):
    packed = [1, 0, 0, 0, 97, 2, 0, 0, 0, 195, 169, 1, 0, 0, 0, 51, 0, 0, 0, 0]

    assert server.ask("tensors.packed_texts") == [packed, ["a", "é", "3", ""]]


def test_names_and_numbers_of_datatypes_have_numpy_types(server):
    numpy_names = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 object"

    assert server.ask("tensors.names_of_types") == {
        "triton_to_numpy_type": numpy_names.split(),
        "BF16": "None",
        "numpy_to_triton_type": list(range(1, 14)),
        "of byte strings": 13,
        "triton_string_to_numpy": ["bool", "uint8", "int64", "float16", "float32", "float64", "object"],
        "unknown": ["KeyError", "'TYPE_NOPE'"],
        "string of BF16": ["KeyError", "'TYPE_BF16'"],
    }


class TestDLPack:
    def test_every_datatype_goes_out_and_in(self, server):
        kinds = ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8")
        values = [0, 1, 1]

        found = server.ask("tensors.dlpack_of_every_datatype")

        assert list(found.values()) == [[["U", kind, values], values, values] for kind in kinds]

    def test_a_tensor_of_another_framework_is_taken_whole_or_as_a_capsule(self, server):
        elements = [[0, 1, 2], [3, 4, 5]]

        assert server.ask("tensors.from_another_framework") == [
            ["T", [2, 3], elements],
            ["U", [2, 3], elements],
        ]

    def test_tensors_are_on_the_cpu(self, server):
        assert server.ask("tensors.dlpack_device") == [1, 0]

    @pytest.mark.parametrize("what", ["transposed", "every second column"])
    def test_only_contiguous_tensors_are_taken(self, server, what):
        assert server.ask("tensors.dlpack_refusals")[what] == [
            "TritonModelException",
            "DLPack tensor is not contiguous. Only contiguous DLPack tensors that are stored in C-Order are "
            "supported.",
        ]

    def test_the_stride_of_a_single_row_does_not_matter(self, server):
        assert server.ask("tensors.dlpack_refusals")["one row"] == [1, 3]

    @pytest.mark.parametrize("what", ["a list", "None"])
    def test_what_is_no_tensor_is_refused(self, server, what):
        kind, text = server.ask("tensors.dlpack_refusals")[what]

        assert kind == "TritonModelException"
        assert " ".join(text.split()) == (
            "Provided tensor is not supported. Tensor must be a DLPack capsule "
            "or have `__dlpack__` and `__dlpack_device__` attributes"
        )

    @pytest.mark.parametrize("what", ["complex", "four-bit", "two lanes", "on another device", "no name"])
    def test_other_datatypes_devices_and_empty_names_are_refused(self, server, what):
        kind, _ = server.ask("tensors.dlpack_refusals")[what]

        assert kind == "TritonModelException"

    def test_strings_do_not_go_through_dlpack(self, server):
        text = "DLPack does not have support for string tensors."

        assert server.ask("tensors.dlpack_of_texts") == ["TritonModelException", text]

    @pytest.mark.ours("2.51 dies of it")
    def test_a_capsule_is_taken_once(self, server):
        name, refused = server.ask("tensors.used_capsule")

        assert name == "T"
        assert refused[0] == "TritonModelException"

    @pytest.mark.ours("2.51 dies of it")
    def test_numpy_arrays_are_taken(self, server):
        assert server.ask("tensors.from_numpy_by_dlpack") == [0, 1, 2, 3]

    def test_bf16_goes_in_and_out(self, server):
        found = server.ask("tensors.brain_floats")

        assert found["shape"] == [2]
        assert found["given"] == [4, 16, 1, [0x3F80, 0x4000]]

    def test_bf16_has_no_numpy_type(self, server):
        text = (
            "Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead"
        )

        found = server.ask("tensors.brain_floats")["as_numpy"]

        assert found == ([0x3F80, 0x4000] if server.is_ours else ["TritonModelException", f"{text}."])
