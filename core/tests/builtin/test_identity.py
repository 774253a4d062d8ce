from __future__ import annotations

import json
import threading

import numpy as np
import pytest
from tritonpy.buffers import MemoryType
from tritonpy.builtin.identity import Plan
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy.tensor import Tensor


def tensor_config(
    name: str, datatype: str = "TYPE_FP32", dims: tuple[int, ...] = (-1,), **more: object
) -> JsonObject:
    return {"name": name, "data_type": datatype, "dims": list(dims), **more}


def model_config(inputs: list[JsonObject], outputs: list[JsonObject], **parameters: str) -> JsonObject:
    return {
        "name": "echo",
        "max_batch_size": 8,
        "input": inputs,
        "output": outputs,
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }


ONE_PAIR = ([tensor_config("INPUT0")], [tensor_config("OUTPUT0")])


class UnopenedRegion:
    """A location that fails the test when somebody opens it."""

    memory_type = MemoryType.GPU
    device_id = 1
    byte_size = 8

    def host_view(self) -> memoryview:
        raise AssertionError("identity looked at the bytes")


@pytest.mark.parametrize("datatype", DATATYPES.values(), ids=lambda datatype: datatype.name)
def test_the_bytes_of_every_datatype_are_handed_on_untouched(start_slot, datatype):
    config = model_config(
        [tensor_config("INPUT0", datatype.config_name)], [tensor_config("OUTPUT0", datatype.config_name)]
    )
    slot = start_slot("identity", config)
    received = memoryview(b"\x02\x00\x00\x00hi\x00\x00")
    tensor = Tensor("INPUT0", datatype.name, (1, 8), received)

    [response] = slot.execute(slot.request(tensor))

    [output] = response.outputs
    assert (output.name, output.datatype, output.shape) == ("OUTPUT0", datatype.name, (1, 8))
    assert output.buffer is received


def test_a_location_is_passed_on_without_being_opened(start_slot):
    slot = start_slot("identity", model_config(*ONE_PAIR))
    region = UnopenedRegion()

    [response] = slot.execute(slot.request(Tensor("INPUT0", "FP32", (1, 2), region)))

    assert response.outputs[0].buffer is region


def test_each_request_of_a_batch_gets_its_own_inputs_back(start_slot):
    slot = start_slot("identity", model_config(*ONE_PAIR))
    arrays = [np.full((rows, 3), rows, np.float32) for rows in (1, 2, 4)]

    responses = slot.execute(*(slot.request(Tensor.from_numpy("INPUT0", array)) for array in arrays))

    for array, response in zip(arrays, responses, strict=True):
        assert response.outputs[0].numpy() is array


def test_pairs_are_matched_by_number_and_not_by_position(start_slot):
    config = model_config(
        [tensor_config("INPUT7", "TYPE_INT8"), tensor_config("INPUT_b")],
        [tensor_config("OUTPUT_b"), tensor_config("OUTPUT7", "TYPE_INT8")],
    )
    slot = start_slot("identity", config)

    [response] = slot.execute(
        slot.request(Tensor("INPUT_b", "FP32", (1, 1), b"abcd"), Tensor("INPUT7", "INT8", (1, 1), b"x"))
    )

    assert {output.name: output.wire() for output in response.outputs} == {
        "OUTPUT7": b"x",
        "OUTPUT_b": b"abcd",
    }


def test_outputs_nobody_asked_for_are_left_out(start_slot):
    config = model_config(
        [tensor_config("INPUT0"), tensor_config("INPUT1")],
        [tensor_config("OUTPUT0"), tensor_config("OUTPUT1")],
    )
    slot = start_slot("identity", config)
    inputs = [Tensor(name, "FP32", (1, 1), b"abcd") for name in ("INPUT0", "INPUT1")]

    [response] = slot.execute(slot.request(*inputs, requested_outputs=("OUTPUT1",)))

    assert [output.name for output in response.outputs] == ["OUTPUT1"]


@pytest.mark.parametrize(
    ("datatype", "zeros"),
    [("TYPE_INT16", bytes(2 * 2 * 3 * 2)), ("TYPE_STRING", bytes(2 * 2 * 3 * 4)), ("TYPE_BF16", bytes(24))],
)
def test_the_output_of_an_optional_input_that_was_left_out_is_zeros(start_slot, datatype, zeros):
    config = model_config(
        [tensor_config("INPUT0"), tensor_config("INPUT1", datatype, (2, -1, 3), optional=True)],
        [tensor_config("OUTPUT0"), tensor_config("OUTPUT1", datatype, (2, -1, 3))],
    )
    slot = start_slot("identity", config)

    [response] = slot.execute(slot.request(Tensor("INPUT0", "FP32", (2, 1), b"abcdefgh")))

    given, absent = response.outputs
    assert (given.name, given.wire()) == ("OUTPUT0", b"abcdefgh")
    assert (absent.name, absent.shape, bytes(absent.wire())) == ("OUTPUT1", (2, 2, 1, 3), zeros)


def test_a_model_without_batches_answers_zeros_of_its_own_shape(start_slot):
    config = {
        **model_config(
            [tensor_config("INPUT0", dims=(2,), optional=True)], [tensor_config("OUTPUT0", dims=(2,))]
        ),
        "max_batch_size": 0,
    }
    slot = start_slot("identity", config)

    [response] = slot.execute(slot.request())

    assert response.outputs[0].numpy().tolist() == [0, 0]


def test_the_creation_of_a_model_takes_as_long_as_it_says(start_slot, monkeypatch):
    slept_s: list[float] = []
    monkeypatch.setattr("tritonpy.builtin.identity.time.sleep", slept_s.append)

    start_slot("identity", model_config(*ONE_PAIR, creation_delay_sec="10"))

    assert slept_s == [10]


def test_models_that_take_their_time_load_beside_each_other(tmp_path, monkeypatch):
    both = threading.Barrier(2)
    monkeypatch.setattr("tritonpy.builtin.identity.time.sleep", lambda _: both.wait(60))
    for name in ("one", "two"):
        (tmp_path / name / "1").mkdir(parents=True)
        config = {**model_config(*ONE_PAIR, creation_delay_sec="10"), "name": name, "backend": "identity"}
        (tmp_path / name / "config.json").write_text(json.dumps(config))

    with Server(ServerOptions((str(tmp_path),), allow_http=False, allow_grpc=False, allow_metrics=False)):
        assert not both.broken


def test_shapes_are_compared_as_the_backend_sees_them(start_slot):
    reshaped = tensor_config("INPUT0", dims=(4,), reshape={"shape": [2, 2]})

    slot = start_slot("identity", model_config([reshaped], [tensor_config("OUTPUT0", dims=(2, 2))]))

    assert slot.handle.model.state.pairs == (("INPUT0", "OUTPUT0"),)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            model_config([tensor_config("INPUT0")], []),
            r"expects an OUTPUT<i> for every INPUT<i> .* got inputs \['INPUT0'\] and outputs \[\]",
        ),
        (
            model_config([tensor_config("INPUT0")], [tensor_config("OUTPUT1")]),
            r"got inputs \['INPUT0'\] and outputs \['OUTPUT1'\]",
        ),
        (
            model_config([tensor_config("X")], [tensor_config("OUTPUT0")]),
            "expects names of inputs of the form INPUT<i>, got 'X'",
        ),
        (
            model_config([tensor_config("INPUT0")], [tensor_config("Y")]),
            "expects names of outputs of the form OUTPUT<i>, got 'Y'",
        ),
        (
            model_config([tensor_config("INPUT0")], [tensor_config("OUTPUT0", "TYPE_INT32")]),
            "output 'OUTPUT0' to have the data_type of input 'INPUT0', TYPE_FP32, got TYPE_INT32",
        ),
        (
            model_config([tensor_config("INPUT0", dims=(2, 3))], [tensor_config("OUTPUT0", dims=(3, 2))]),
            r"output 'OUTPUT0' to have the shape of input 'INPUT0', \[2, 3\], got \[3, 2\]",
        ),
        (
            model_config(*ONE_PAIR, execute_delay_ms="soon"),
            "parameter 'execute_delay_ms' of model 'echo': got 'soon', expected a whole number, 0 or more",
        ),
        (
            model_config(*ONE_PAIR, creation_delay_sec="soon"),
            "parameter 'creation_delay_sec' of model 'echo': got 'soon'",
        ),
        (
            model_config(*ONE_PAIR, instance_wise_delay_multiplier="-1"),
            "parameter 'instance_wise_delay_multiplier' of model 'echo': got '-1'",
        ),
    ],
)
def test_a_model_it_is_not_for_is_refused_with_the_reason(start_slot, config, reason):
    with pytest.raises(InvalidArg, match=reason):
        start_slot("identity", config)


@pytest.mark.parametrize(
    ("multiplier", "delays_s"),
    [(0, [0.1, 0.1, 0.1, 0.1]), (1, [0.1, 0.1, 0.2, 0.3]), (10, [0.1, 1.0, 2.0, 3.0])],
)
def test_the_multiplier_makes_later_instances_slower(multiplier, delays_s):
    plan = Plan((), delay_ms=100, multiplier=multiplier)

    assert [plan.delay_s(index) for index in range(4)] == pytest.approx(delays_s)


def test_a_batch_is_delayed_once_and_not_once_per_request(start_slot, monkeypatch):
    slept_s: list[float] = []
    monkeypatch.setattr("tritonpy.builtin.identity.time.sleep", slept_s.append)
    config = model_config(*ONE_PAIR, execute_delay_ms="20", instance_wise_delay_multiplier="2")
    slot = start_slot("identity", config, index=3)

    slot.execute(*(slot.request(Tensor("INPUT0", "FP32", (1, 1), b"abcd")) for _ in range(8)))

    assert slept_s == [0.12]


def test_a_model_without_delay_never_sleeps(start_slot, monkeypatch):
    monkeypatch.setattr("tritonpy.builtin.identity.time.sleep", None)
    slot = start_slot("identity", model_config(*ONE_PAIR, instance_wise_delay_multiplier="2"), index=3)

    assert len(slot.execute(slot.request(Tensor("INPUT0", "FP32", (1, 1), b"abcd")))) == 1
