"""What a model is told of each request: tensors of every kind and type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonpy.errors import InvalidArg
from tritonpy.request import InferRequest
from tritonpy.scheduler.sequences.controls import ControlInputs
from tritonpy.tensor import Tensor, unpack_bytes

from .simulation import config, control

START, END = 1, 2


def make(*controls: dict[str, Any], max_batch_size: int = 4) -> ControlInputs:
    return ControlInputs(config(max_batch_size, control_input=list(controls)))


def request(flags: int = 0, correlation_id: int | str = 7) -> InferRequest:
    tensor = Tensor.from_numpy("X", np.ones((1, 2), np.float32))
    return InferRequest("m", {"X": tensor}, flags=flags, correlation_id=correlation_id)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(START, (1, 0, 1)), (0, (0, 0, 1)), (END, (0, 1, 1)), (START | END, (1, 1, 1))],
    ids=["first", "middle", "last", "only"],
)
def test_each_place_in_a_sequence_has_its_values(flags: int, expected: tuple[int, int, int]) -> None:
    kinds = ("START", "END", "READY")
    controls = make(*(control(kind, kind, int32_false_true=[0, 1]) for kind in kinds))
    asked = request(flags)

    controls.attach(asked)

    assert tuple(asked.input(kind).numpy().item() for kind in kinds) == expected


@pytest.mark.parametrize(
    ("field", "pair", "datatype"),
    [
        ("int32_false_true", [-1, 5], "INT32"),
        ("fp32_false_true", [0.5, -2.0], "FP32"),
        ("bool_false_true", [True, False], "BOOL"),
    ],
)
@pytest.mark.parametrize(("max_batch_size", "shape"), [(0, (1,)), (4, (1, 1))])
def test_values_are_those_of_the_configuration(
    field: str, pair: list[Any], datatype: str, max_batch_size: int, shape: tuple[int, ...]
) -> None:
    controls = make(control("S", "START", **{field: pair}), max_batch_size=max_batch_size)
    for flags in (0, START):
        asked = request(flags)
        controls.attach(asked)

        tensor = asked.input("S")
        assert (tensor.datatype, tensor.shape, tensor.numpy().item()) == (datatype, shape, pair[flags])


@pytest.mark.parametrize(
    ("data_type", "correlation_id", "expected"),
    [
        ("UINT64", 2**64 - 1, 2**64 - 1),
        ("INT64", 2**64 - 1, -1),
        ("INT64", 5, 5),
        ("UINT32", 2**40 + 7, 7),
        ("INT32", 2**32 - 1, -1),
    ],
)
def test_a_correlation_id_has_the_type_that_the_model_wants(
    data_type: str, correlation_id: int, expected: int
) -> None:
    controls = make(control("ID", "CORRID", data_type=f"TYPE_{data_type}"))
    asked = request(correlation_id=correlation_id)

    controls.check(asked)
    controls.attach(asked)

    tensor = asked.input("ID")
    assert (tensor.datatype, tensor.shape, tensor.numpy().item()) == (data_type, (1, 1), expected)


def test_a_correlation_id_may_be_text() -> None:
    controls = make(control("ID", "CORRID", data_type="TYPE_STRING"))
    asked = request(correlation_id="größe")

    controls.check(asked)
    controls.attach(asked)

    tensor = asked.input("ID")
    assert (tensor.datatype, tensor.shape) == ("BYTES", (1, 1))
    assert [bytes(element) for element in unpack_bytes(memoryview(tensor.wire()), 1)] == ["größe".encode()]


@pytest.mark.parametrize(
    ("data_type", "correlation_id", "came", "expected"),
    [("UINT64", "a", "BYTES", "UINT64"), ("INT32", "a", "BYTES", "INT32"), ("STRING", 5, "UINT64", "BYTES")],
)
def test_a_correlation_id_of_the_wrong_type_is_refused(
    data_type: str, correlation_id: int | str, came: str, expected: str
) -> None:
    controls = make(control("ID", "CORRID", data_type=f"TYPE_{data_type}"))

    with pytest.raises(InvalidArg) as refused:
        controls.check(request(correlation_id=correlation_id))

    assert refused.value.message == (
        f"[request id: <id_unknown>] sequence batching control 'ID' data-type is '{came}', but model 'm' "
        f"expects '{expected}'"
    )


def test_controls_are_optional_and_then_ids_may_be_anything() -> None:
    controls = make()
    asked = request(START, "text")

    controls.check(asked)
    controls.attach(asked)

    assert list(asked.inputs) == ["X"]


def test_the_inputs_of_the_sender_stay_as_they_were() -> None:
    controls = make(control("S", "START", int32_false_true=[0, 1]))
    asked = request(START)
    sent = asked.inputs

    controls.attach(asked)

    assert list(sent) == ["X"]
    assert list(asked.inputs) == ["X", "S"]


def test_a_null_request_has_zeros_and_false() -> None:
    controls = make(
        control("START", "START", fp32_false_true=[0.25, 1]),
        control("READY", "READY", bool_false_true=[False, True]),
        control("ID", "CORRID", data_type="TYPE_STRING"),
    )
    like = request(START, "text")
    like.inputs["TEXT"] = Tensor.from_numpy("TEXT", np.array([[b"abc", b"d"]], np.object_))
    controls.attach(like)

    null = controls.null(like)

    assert null.is_null
    assert null.ticket.answered
    assert {name: tensor.numpy().tolist() for name, tensor in null.inputs.items()} == {
        "X": [[0.0, 0.0]],
        "TEXT": [[b"", b""]],
        "START": [[0.25]],
        "READY": [[False]],
        "ID": [[b""]],
    }
