"""Ragged batches, controls, states, reshapes and sizes of the last batch, computed by TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
from tritonpy.plugin import TritonError
from tritonpy_sdk.testing import ask, request_of


def tensor(name, dims, datatype="TYPE_FP32", **more):
    return {"name": name, "data_type": datatype, "dims": dims, **more}


def outputs(answer):
    if answer.only.error is not None:
        raise answer.only.error
    return {out.name: out.numpy().tolist() for out in answer.only.outputs}


RAGGED = {
    "backend": "tensorflow",
    "max_batch_size": 8,
    "input": [tensor("X", [-1], allow_ragged_batch=True)],
    "output": [tensor("Y", [-1]), tensor("SUM", [1])],
    "batch_input": [
        {
            "kind": "BATCH_ACCUMULATED_ELEMENT_COUNT",
            "target_name": ["ENDS"],
            "data_type": "TYPE_INT32",
            "source_input": ["X"],
        }
    ],
    "batch_output": [{"target_name": ["Y"], "kind": "BATCH_SCATTER_WITH_INPUT_SHAPE", "source_input": ["X"]}],
}


@pytest.fixture(scope="module")
def sums(tf, saved):
    """The elements of all requests one after the other; gives each its own back, negated, and their sum."""

    def call(X, ENDS):
        total = tf.concat([[0.0], tf.cumsum(X)], 0)
        ends = tf.gather(total, ENDS)
        return {"Y": -X, "SUM": (ends - tf.concat([[0.0], ends[:-1]], 0))[:, None]}

    return saved(call, {"X": (tf.float32, [None]), "ENDS": (tf.int32, [None])})


def test_a_ragged_batch_is_one_call_and_everyone_gets_their_own(load, sums):
    model = load(sums, RAGGED)
    rows = [[1, 2, 3], [4, 5, 6, 7], [], [8]]
    graph, calls = model.handle.state.graph, []
    call = graph.call
    graph.call = lambda feeds, names: calls.append(feeds["ENDS"].tolist()) or call(feeds, names)

    answers = model.execute([request_of(X=np.array([row], "f4")) for row in rows])

    assert calls == [[3, 7, 7, 8]]
    assert [outputs(answer) for answer in answers] == [
        {"Y": [[-value for value in row]], "SUM": [[sum(row)]]} for row in rows
    ]


def test_a_ragged_input_has_one_dimension_in_the_model(load, saved, tf):
    path = saved(
        lambda X, ENDS: {"Y": X, "SUM": X}, {"X": (tf.float32, [None, 2]), "ENDS": (tf.int32, [None])}
    )

    message = (
        r"configuration expects model provides input with shape \[-1\]  for ragged input 'X', model provides"
    )
    with pytest.raises(TritonError, match=message):
        load(path, RAGGED)


CONTROLS = {
    "backend": "tensorflow",
    "max_batch_size": 4,
    "input": [tensor("INPUT", [1])],
    "output": [tensor("OUTPUT", [1])],
    "sequence_batching": {
        "control_input": [
            {
                "name": "START",
                "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}],
            }
        ],
        "state": [{"input_name": "OLD", "output_name": "NEW", "data_type": "TYPE_FP32", "dims": [1]}],
    },
}


@pytest.fixture(scope="module")
def accumulates(tf, saved):
    """Adds to the state; a sequence that starts begins at the input."""

    def call(INPUT, START, OLD):
        new = INPUT + OLD * (1 - START)
        return {"OUTPUT": new, "NEW": new}

    return saved(call, {name: (tf.float32, [None, 1]) for name in ("INPUT", "START", "OLD")})


def test_states_of_many_sequences_are_one_batch(load, accumulates):
    model = load(accumulates, CONTROLS)
    zero, one = np.zeros((1, 1), "f4"), np.ones((1, 1), "f4")

    answers = model.execute(
        [
            request_of(INPUT=one * 2, START=one, OLD=one * 100),
            request_of(INPUT=one * 3, START=zero, OLD=one * 100),
        ]
    )

    assert [outputs(answer) for answer in answers] == [
        {"OUTPUT": [[2]], "NEW": [[2]]}, {"OUTPUT": [[103]], "NEW": [[103]]},
    ]  # fmt: skip


def test_controls_and_states_are_left_out_by_completion(load, accumulates):
    config = {key: value for key, value in CONTROLS.items() if key not in ("input", "output")}
    model = load(accumulates, config)

    assert [each["name"] for each in model.config["input"]] == ["INPUT"]
    assert [each["name"] for each in model.config["output"]] == ["OUTPUT"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {
                "control_input": [
                    {"name": "END", "control": [{"kind": "CONTROL_SEQUENCE_END", "fp32_false_true": [0, 1]}]}
                ]
            },
            "configuration specified sequence control 'END', but model does not provide that input",
        ),
        (
            {
                "control_input": [
                    {
                        "name": "START",
                        "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}],
                    }
                ]
            },
            "sequence control 'START': the model expects TYPE_FP32 but the model configuration specifies "
            "data-type "
            "TYPE_INT32",
        ),
        (
            {"state": [{"input_name": "OLD", "output_name": "NEW", "data_type": "TYPE_INT32", "dims": [1]}]},
            "configuration expects datatype TYPE_INT32 for input state 'OLD', model provides TYPE_FP32",
        ),
        (
            {"state": [{"input_name": "OLD", "output_name": "NEXT", "data_type": "TYPE_FP32", "dims": [1]}]},
            "configuration specified state 'NEXT', but model does not provide that output",
        ),
        (
            {"state": [{"input_name": "OLD", "output_name": "NEW", "data_type": "TYPE_FP32", "dims": [2]}]},
            "model 'net', tensor 'OLD': the model expects 2 dimensions",
        ),
    ],
)
def test_controls_and_states_that_the_model_has_not_are_refused(load, accumulates, change, message):
    with pytest.raises(TritonError, match=message):
        load(accumulates, CONTROLS | {"sequence_batching": CONTROLS["sequence_batching"] | change})


def test_a_control_of_another_shape_is_refused(load, saved, tf):
    path = saved(
        lambda INPUT, START, OLD: {"OUTPUT": INPUT, "NEW": OLD + START},
        {"INPUT": (tf.float32, [None, 1]), "START": (tf.float32, [None, 2]), "OLD": (tf.float32, [None, 1])},
    )

    with pytest.raises(
        TritonError, match="unable to load model 'net', sequence control 'START': model 'net', tensor"
    ):
        load(path, CONTROLS)


def test_a_reshape_is_between_clients_and_the_model(load, saved, tf):
    config = {
        "backend": "tensorflow",
        "max_batch_size": 4,
        "input": [tensor("x", [1], reshape={"shape": []})],
        "output": [tensor("y", [2, 2], reshape={"shape": [4]})],
    }
    model = load(saved(lambda x: {"y": tf.tile(x[:, None], [1, 4])}, {"x": (tf.float32, [None])}), config)

    assert ask(model, 2, x=np.array([1, 2], "f4")) == {"y": [[[1, 1], [1, 1]], [[2, 2], [2, 2]]]}


def test_a_batch_of_no_rows_is_answered(load, saved, tf):
    model = load(saved(lambda x: {"y": x @ tf.ones([3, 2])}, {"x": (tf.float32, [None, 3])}))

    assert ask(model, 0, x=np.ones((0, 3), "f4")) == {"y": []}


def test_a_decoupled_model_is_refused(load, saved, tf):
    config = {"backend": "tensorflow", "model_transaction_policy": {"decoupled": True}}

    with pytest.raises(
        TritonError, match="a call of a TensorFlow model gives one response, so it cannot be decoup"
    ):
        load(saved(lambda x: {"y": x}, {"x": (tf.float32, [1])}), config)
