"""What a strategy sees of a request: names, numbers, places of bytes, as Triton shows them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.plugin import (
    DATATYPES,
    SEQUENCE_END,
    SEQUENCE_START,
    InferRequest,
    MemoryType,
    Tensor,
    pack_bytes,
)
from tritonpy_abi.shim import open_shim
from tritonpy_abi.strategies import request_blocks
from tritonpy_abi.strategies.request_blocks import RequestBlocks

from .conftest import Observer, Opener, make_model, make_request

Observe = Callable[..., Observer]
Seen = list[dict[str, Any]]


def of(seen: Seen, what: str) -> Seen:
    """The lines about one thing."""
    return [line for line in seen if line["what"] == what]


def bytes_of(line: dict[str, Any]) -> bytes:
    return str(line["bytes"]).encode("latin-1")


class File:
    """A location in a file; satisfies `BufferLocation`."""

    memory_type = MemoryType.CPU
    device_id = 0
    address = 0

    def __init__(self, descriptor: int, position: int, byte_size: int) -> None:
        self.file = (descriptor, position)
        self.byte_size = byte_size

    def host_view(self) -> memoryview:
        raise AssertionError("nobody opens it here")


class Elsewhere:
    """A location that a strategy cannot have the bytes of; satisfies `BufferLocation`."""

    memory_type = MemoryType.GPU
    device_id = 3
    byte_size = 64
    file = None

    def __init__(self, address: int = 0) -> None:
        self.address = address

    def host_view(self) -> memoryview:
        raise AssertionError("nobody opens it here")


@pytest.fixture
def observer(observe: Observe) -> Observer:
    """Sees the requests of a model with two outputs."""
    return observe(output=[{"name": "Y"}, {"name": "B"}])


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "region").write_bytes(b"." * 8 + b"tensor" + b"." * 8)
    descriptor = os.open(tmp_path / "region", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize("datatype", [name for name in DATATYPES if name != "BYTES"])
def test_inputs_of_every_datatype(observer: Observer, datatype: str) -> None:
    byte_size = 6 * DATATYPES[datatype].byte_size
    data = bytes(range(byte_size))

    seen = observer.see(InferRequest("m", {"X": Tensor("X", datatype, (2, 3), data)}))

    assert of(seen, "input") == [
        {
            "what": "input",
            "name": "X",
            "datatype": datatype,
            "shape": [2, 3],
            "byte_size": byte_size,
            "buffer_count": 1,
            "takes_null": True,
        }
    ]
    assert bytes_of(of(seen, "buffer")[0]) == data


def test_text_is_in_its_wire_form_whatever_bytes_it_has(observer: Observer) -> None:
    wire = pack_bytes(np.array([b"", b"a\0b", b"\xff\xfe"], object))

    seen = observer.see(InferRequest("m", {"S": Tensor("S", "BYTES", (1, 3), wire)}))

    assert of(seen, "input")[0]["byte_size"] == len(wire) == 17
    assert bytes_of(of(seen, "buffer")[0]) == wire


@pytest.mark.parametrize(
    "buffer",
    [
        b"12345678",
        bytearray(b"12345678"),
        memoryview(b"..12345678..")[2:10],
        memoryview(np.frombuffer(b"12345678", np.int32)),
        np.frombuffer(b"12345678", np.float32),
        np.frombuffer(b"12345678", np.uint8).reshape(2, 4),
    ],
    ids=["bytes", "bytearray", "part", "numbers", "array", "matrix"],
)
def test_bytes_are_found_wherever_they_are_held(observer: Observer, buffer: Any) -> None:
    seen = observer.see(InferRequest("m", {"X": Tensor("X", "FP32", (2,), buffer)}))

    assert bytes_of(of(seen, "buffer")[0]) == b"12345678"
    assert of(seen, "input")[0]["byte_size"] == 8


def test_arrays_of_any_order_are_seen_row_by_row(observer: Observer) -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)

    seen = observer.see(InferRequest("m", {"X": Tensor.from_numpy("X", np.asfortranarray(array))}))

    assert bytes_of(of(seen, "buffer")[0]) == array.tobytes()


def test_an_input_without_bytes_has_no_buffers(observer: Observer) -> None:
    seen = observer.see(InferRequest("m", {"X": Tensor("X", "FP32", (2, 0), b"")}))

    assert (of(seen, "input")[0]["byte_size"], of(seen, "input")[0]["buffer_count"]) == (0, 0)
    assert [line["is_null"] for line in of(seen, "buffer")] == [True]


def test_a_buffer_behind_the_last_is_none_and_no_error(observer: Observer) -> None:
    seen = observer.see(make_request())

    last = of(seen, "buffer")[-1]
    assert (last["is_null"], last["byte_size"], "error" in last) == (True, 0, False)


def test_the_bytes_that_came_are_counted_and_not_those_of_the_shape(observer: Observer) -> None:
    request = InferRequest("m", {"X": Tensor("X", "FP32", (2**40, 2**20), b"1234")})

    seen = observer.see(request)

    assert of(seen, "input")[0]["shape"] == [2**40, 2**20]
    assert of(seen, "input")[0]["byte_size"] == 4


def test_many_inputs_are_seen_in_the_order_in_which_they_came(observer: Observer) -> None:
    names = [f"input {index}" for index in range(200)]
    inputs = {name: Tensor(name, "UINT8", (1, 1), bytes([index])) for index, name in enumerate(names)}

    seen = observer.see(InferRequest("m", inputs))

    assert [line["name"] for line in of(seen, "input name")[:-1]] == names
    assert all(line["is_same"] for line in of(seen, "input name")[:-1])
    assert [bytes_of(line) for line in of(seen, "buffer")[::2]] == [bytes([index]) for index in range(200)]


def test_a_request_without_inputs(observer: Observer) -> None:
    seen = observer.see(InferRequest("m", {}))

    assert of(seen, "input") == []
    assert of(seen, "input of no name")[0]["error"] == (
        "[request id: <id_unknown>] unknown request input name NONE"
    )


def test_requests_of_one_kind_do_not_see_the_bytes_of_each_other(observer: Observer) -> None:
    requests = [InferRequest("m", {"X": Tensor("X", "UINT8", (3,), data)}) for data in (b"one", b"two")]

    seen = [bytes_of(of(observer.see(request), "buffer")[0]) for request in requests]

    assert seen == [b"one", b"two"]


def test_what_says_nothing_is_empty_or_zero(observer: Observer) -> None:
    seen = observer.see(make_request())

    assert of(seen, "request") == [
        {"what": "request", "id": "", "flags": 0, "is_cancelled": False, "timeout": 0}
    ]
    assert of(seen, "correlation id")[0]["id"] == 0
    assert of(seen, "parameters")[0]["count"] == 0


def test_id_flags_and_timeout(observer: Observer) -> None:
    flags = SEQUENCE_START | SEQUENCE_END

    seen = observer.see(make_request(id="gr\u00fc\u00dfe", flags=flags, timeout_us=2**40))

    told = of(seen, "request")[0]
    assert (told["flags"], told["timeout"]) == (3, 2**40)
    assert told["id"].encode("latin-1").decode() == "gr\u00fc\u00dfe"


@pytest.mark.parametrize(("request_id", "told"), [("a\0b", "a"), ("\ud800", "?")])
def test_an_id_that_is_no_text_of_c_does_no_harm(observer: Observer, request_id: str, told: str) -> None:
    assert of(observer.see(make_request(id=request_id)), "request")[0]["id"] == told


def test_a_correlation_id_that_is_a_number(observer: Observer) -> None:
    seen = observer.see(make_request(id="r", correlation_id=2**64 - 1))

    assert of(seen, "correlation id")[0]["id"] == 2**64 - 1
    assert of(seen, "correlation id as text")[0]["error"] == (
        "[request id: r] correlation ID in request is not a string"
    )


def test_a_correlation_id_that_is_text(observer: Observer) -> None:
    seen = observer.see(make_request(id="r", correlation_id="seven"))

    assert of(seen, "correlation id as text")[0]["id"] == "seven"
    assert of(seen, "correlation id")[0]["error"] == (
        "[request id: r] correlation ID in request is not an unsigned int"
    )


def test_parameters_of_every_type_in_their_order(observer: Observer) -> None:
    parameters = {"text": "a", "number": -(2**63), "flag": True, "half": 0.5, "huge": 2**63}

    seen = observer.see(make_request(parameters=parameters))

    told = [(line["name"], line["type"], line["value"]) for line in of(seen, "parameter")[:-1]]
    assert told == [
        ("text", "STRING", "a"),
        ("number", "INT", -(2**63)),
        ("flag", "BOOL", True),
        ("half", "DOUBLE", 0.5),
        ("huge", "DOUBLE", 2.0**63),
    ]
    assert of(seen, "parameter")[-1]["error"] == "out of bounds index 5: request has 5 parameters"


def test_every_output_is_wanted_by_a_client_that_names_none(observer: Observer) -> None:
    seen = observer.see(make_request())

    assert [line.get("name") for line in of(seen, "output")] == ["B", "Y", None]
    assert of(seen, "output")[-1]["error"] == (
        "[request id: <id_unknown>] out of bounds index 2: request has 2 requested outputs"
    )


@pytest.mark.parametrize(("wanted", "told"), [(("Y",), ["Y"]), (("Y", "B", "Y"), ["B", "Y"]), ((), [])])
def test_outputs_that_a_client_names(observer: Observer, wanted: tuple[str, ...], told: list[str]) -> None:
    seen = observer.see(make_request(requested_outputs=wanted))

    assert [line["name"] for line in of(seen, "output")[:-1]] == told


def test_a_file_is_read_when_a_strategy_asks_for_the_bytes(observer: Observer, file: int) -> None:
    seen = observer.see(InferRequest("m", {"X": Tensor("X", "UINT8", (6,), File(file, 8, 6))}))

    assert of(seen, "input")[0]["byte_size"] == 6
    assert bytes_of(of(seen, "buffer")[0]) == b"tensor"
    assert of(seen, "attributes")[0] | {"is_null": False, "byte_size": 6} == of(seen, "attributes")[0]


def test_a_file_is_not_read_for_a_strategy_that_wants_no_bytes(opened: Opener, file: int) -> None:
    strategy = opened("volume.c", MAX_BATCH_VOLUME_BYTES="20")
    os.ftruncate(file, 0)

    taken = strategy.run(InferRequest("m", {"X": Tensor("X", "UINT8", (6,), File(file, 8, 6))}))

    assert taken == 1


def test_a_file_that_has_become_smaller_is_an_error_of_the_call(observer: Observer, file: int) -> None:
    os.ftruncate(file, 10)

    seen = observer.see(InferRequest("m", {"X": Tensor("X", "UINT8", (6,), File(file, 8, 6))}))

    told = of(seen, "buffer")[0]
    assert (told["code"], told["is_null"]) == ("Unavailable", True)
    assert "input 'X'" in told["error"]
    assert "made smaller" in told["error"]


def test_bytes_on_a_device_are_said_to_be_there(observer: Observer) -> None:
    seen = observer.see(InferRequest("m", {"X": Tensor("X", "UINT8", (64,), Elsewhere())}))

    told = of(seen, "buffer")[0]
    assert (told["memory_type"], told["memory_type_id"], told["is_null"]) == ("GPU", 3, True)
    assert told["error"] == "the bytes of input 'X' are not in the memory of the server"


@pytest.mark.usefixtures("library")
def test_the_address_of_bytes_on_a_device_is_handed_on() -> None:
    blocks = RequestBlocks(open_shim().ffi, make_model())

    block = blocks.fill(InferRequest("m", {"X": Tensor("X", "UINT8", (64,), Elsewhere(0x7000))}))[0]

    told = block.inputs[0]
    assert int(open_shim().ffi.cast("uintptr_t", told.data)) == 0x7000
    assert (told.memory_type, told.memory_type_id) == (MemoryType.GPU, 3)


@pytest.mark.usefixtures("library")
def test_clients_that_ask_with_ever_new_shapes_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_blocks, "_MOST_KEPT", 4)
    blocks = RequestBlocks(open_shim().ffi, make_model())

    held = [
        blocks.fill(
            InferRequest("m", {"X": Tensor("X", "UINT8", (size,), b"")}, requested_outputs=(str(size),))
        )
        for size in range(100)
    ]

    assert len(blocks._templates) <= 4
    assert len(blocks._outputs) <= 4
    ffi = open_shim().ffi
    told = [(block[0].inputs[0].shape[0], ffi.string(block[0].outputs[0])) for block in held]
    assert told == [(size, str(size).encode()) for size in range(100)]
