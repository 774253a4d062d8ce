"""Ragged batches, batch inputs and outputs, controls and states of sequences, computed by PyTorch."""

from __future__ import annotations

from typing import Tuple  # noqa: UP035  # TorchScript reads it

import numpy as np
import pytest
from tritonpy.plugin import Tensor, TritonError
from tritonpy.states import StateSpecs
from tritonpy_sdk.testing import request_of

torch = pytest.importorskip("torch")
from torch.export import Dim  # noqa: E402


class Sums(torch.nn.Module):
    """Negates the elements of all requests, and sums those of each."""

    def forward(self, values: torch.Tensor, ends: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:  # noqa: UP006
        sums = [values[int(ends[i]) : int(ends[i + 1])].sum() for i in range(ends.size(0) - 1)]
        return -values, torch.stack(sums).unsqueeze(1)


class Accumulates(torch.nn.Module):
    """Gives the state as it came, and adds to it; begins anew at a start."""

    def forward(self, x, start, state):
        return {"y": state, "next": torch.where(start > 0, x, state + x)}


class AccumulatesByIndex(torch.nn.Module):
    def forward(
        self, x: torch.Tensor, start: torch.Tensor, state: torch.Tensor
    ) -> Tuple[torch.Tensor, torch.Tensor]:  # noqa: UP006
        return state, torch.where(start > 0, x, state + x)


class Table(torch.nn.Module):
    def forward(self, index: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return torch.take(torch.tensor([10, 20]), index)


def tensor(name, dims, datatype="TYPE_FP32", **more):
    return {"name": name, "data_type": datatype, "dims": dims, **more}


def outputs(answer):
    if answer.only.error is not None:
        raise answer.only.error
    return {output.name: output.numpy().tolist() for output in answer.only.outputs}


def ragged(name, kind, target, output, datatype="TYPE_FP32"):
    return {
        "max_batch_size": 8,
        "dynamic_batching": {},
        "input": [tensor(name, [-1], datatype, allow_ragged_batch=True)],
        "output": [output],
        "batch_input": [
            {"kind": kind, "target_name": [target], "data_type": "TYPE_INT32", "source_input": [name]}
        ],
        "batch_output": [
            {
                "target_name": [output["name"]],
                "kind": "BATCH_SCATTER_WITH_INPUT_SHAPE",
                "source_input": [name],
            }
        ],
    }


@pytest.mark.parametrize("names", [("values", "ends"), ("IN__0", "ENDS__1")])
def test_a_ragged_batch_is_one_call_and_everyone_gets_their_own(load, scripted, names):
    values, ends = names
    config = ragged(values, "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", ends, tensor("Y__0", [-1]))
    config["output"].append(tensor("SUM__1", [1]))
    model = load(scripted(Sums()), config)
    state, calls = model.instances[0].state, []
    call = state._call

    def counted(first, second):
        calls.append((first.tolist(), second.tolist()))
        return call(first, second)

    state._call = counted
    rows = [[1, 2, 3], [4, 5, 6, 7], [], [8]]

    answers = model.execute([request_of(named={values: np.array([row], "f4")}) for row in rows])

    assert calls == [([1, 2, 3, 4, 5, 6, 7, 8], [0, 3, 7, 7, 8])]
    assert [outputs(answer) for answer in answers] == [
        {"Y__0": [[-value for value in row]], "SUM__1": [[sum(row)]]} for row in rows
    ]


def test_a_ragged_batch_that_fails_is_tried_request_by_request(load, scripted):
    output = tensor("OUT__0", [-1], "TYPE_INT64")
    model = load(
        scripted(Table()), ragged("index", "BATCH_ELEMENT_COUNT", "counts", output, datatype="TYPE_INT64")
    )

    answers = model.execute([request_of(index=np.array([row])) for row in ([0, 1], [2], [1, 1, 0])])

    assert outputs(answers[0]) == {"OUT__0": [[10, 20]]}
    with pytest.raises(TritonError, match="PyTorch execute failure"):
        outputs(answers[1])
    assert outputs(answers[2]) == {"OUT__0": [[20, 20, 10]]}


def stateful(x="x", start="start", state="state", y="y", following="next"):
    return {
        "max_batch_size": 8,
        "input": [tensor(x, [1])],
        "output": [tensor(y, [1])],
        "sequence_batching": {
            "control_input": [
                {"name": start, "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}]}
            ],
            "state": [{"input_name": state, "output_name": following, "data_type": "TYPE_FP32", "dims": [1]}],
        },
    }


def step(model, sequences, values, config, begins):
    """One request of each sequence, all in one batch; the outputs that clients see."""
    x, y = config["input"][0]["name"], config["output"][0]["name"]
    start = config["sequence_batching"]["control_input"][0]["name"]
    requests = []
    for states, value in zip(sequences, values, strict=True):
        control = Tensor.from_numpy(start, np.array([[begins]], "f4"))
        request = request_of(outputs=(y,), named={x: np.array([[value]], "f4"), start: control})
        request.ticket.states = states
        request.inputs = states.enter(request.inputs)
        requests.append(request)
    answers = model.execute(requests)
    results = []
    for request, answer in zip(requests, answers, strict=True):
        request.ticket.states.own(answer.only)
        assert request.ticket.states.take(answer.only, True) is answer.only
        results.append(outputs(answer)[y])
    return results


@pytest.fixture(scope="module")
def accumulates(exported, scripted):
    batch = {0: Dim("batch")}
    rows = tuple(torch.ones(2, 1) for _ in range(3))  # an export takes the same tensor for the same argument
    return {
        "exported": exported(Accumulates(), rows, shapes=(batch, batch, batch)),
        "script": scripted(AccumulatesByIndex()),
    }


@pytest.mark.parametrize(
    ("file", "names"),
    [
        ("exported", {}),
        ("script", {"y": "Y__0", "following": "NEXT__1"}),
        (
            "script",
            {"x": "X__0", "start": "START__1", "state": "STATE__2", "y": "Y__0", "following": "NEXT__1"},
        ),
    ],
)
def test_states_of_many_sequences_are_one_batch(load, accumulates, file, names):
    config = stateful(**names)
    model = load(accumulates[file], config)
    specs = StateSpecs({"name": "net", **config}, {})
    sequences = [specs.fresh() for _ in range(3)]

    first = step(model, sequences, (1, 2, 3), config, begins=1)
    second = step(model, sequences[::-1], (10, 20, 30), config, begins=0)

    kept = config["sequence_batching"]["state"][0]["input_name"]
    assert first == [[[0]], [[0]], [[0]]]
    assert second == [[[3]], [[2]], [[1]]]
    assert [states.tensor(kept).numpy().tolist() for states in sequences] == [[[31]], [[22]], [[13]]]


def test_controls_and_states_are_left_out_by_completion(load, accumulates):
    config = stateful()
    del config["input"], config["output"]

    completed = load(accumulates["exported"], config).config

    assert [entry["name"] for entry in completed["input"]] == ["x"]
    assert [entry["name"] for entry in completed["output"]] == ["y"]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("script", {"state": "memory"}, "input 'start' does not follow <name>__<index> naming convention."),
        ("exported", {"state": "memory"}, "unexpected inference input 'memory', allowed inputs are"),
        ("exported", {"following": "later"}, "unexpected inference output 'later', allowed outputs are"),
    ],
)
def test_states_that_the_model_has_not_are_refused(load, accumulates, file, change, message):
    with pytest.raises(TritonError, match=message):
        load(accumulates[file], stateful(**change))


def test_a_state_of_another_type_than_the_program_s_is_refused(load, accumulates):
    config = stateful()
    config["sequence_batching"]["state"][0]["data_type"] = "TYPE_INT32"

    with pytest.raises(TritonError, match="expects datatype TYPE_INT32 for state 'state', model provides"):
        load(accumulates["exported"], config)


def test_a_decoupled_model_is_refused(load, scripted):
    config = {
        "input": [tensor("input", [1])],
        "output": [tensor("OUT", [1])],
        "model_transaction_policy": {"decoupled": True},
    }

    with pytest.raises(TritonError, match="a call of a PyTorch model gives one response"):
        load(scripted(torch.nn.Identity()), config)
