"""Ragged batches, batch inputs and outputs, optional inputs and states, computed by ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser
from tritonpy.plugin import CONFIG_DATATYPES, DATATYPES, Tensor, TritonError
from tritonpy.states import StateSpecs
from tritonpy_backend_onnxruntime.session import InstanceSession
from tritonpy_sdk import ModelRepository
from tritonpy_sdk.testing import request_of

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
ONNX_TYPES = {"INT32": "int32", "FP32": "float"}

# The elements of all requests one after the other, and where each request ends; gives each its own back,
# negated, and their sum.
SUMS = """net (float[K] X, int32[M] ENDS) => (float[K] Y, float[R,1] SUM) {
    Y = Neg(X)
    zero = Constant<value = int64[1] {0}>()
    one = Constant<value = int64[1] {1}>()
    last = Constant<value = int64[1] {-1}>()
    many = Constant<value = int64[1] {9223372036854775807}>()
    starts = Slice(ENDS, zero, last)
    stops = Slice(ENDS, one, many)
    count = Shape(X)
    start = Constant<value_int = 0>()
    step = Constant<value_int = 1>()
    length = Squeeze(count, zero)
    places = Range(start, length, step)
    place = Cast<to = 6>(places)
    from_column = Unsqueeze(starts, one)
    to_column = Unsqueeze(stops, one)
    is_before = Less(place, from_column)
    is_behind = Not(is_before)
    is_ahead = Less(place, to_column)
    is_mine = And(is_behind, is_ahead)
    weight = Cast<to = 1>(is_mine)
    mine = Mul(weight, X)
    SUM = ReduceSum(mine, one)
}"""


def tensor(name, dims, datatype="TYPE_FP32", **more):
    return {"name": name, "data_type": datatype, "dims": dims, **more}


def ragged(*batch_inputs, dims=(-1,), outputs=None):
    """X is ragged, and Y is cut by its shapes."""
    return {
        "max_batch_size": 8,
        "dynamic_batching": {},
        "input": [tensor("X", list(dims), allow_ragged_batch=True)],
        "output": outputs or [tensor("Y", list(dims))],
        "batch_input": list(batch_inputs),
        "batch_output": [
            {"target_name": ["Y"], "kind": "BATCH_SCATTER_WITH_INPUT_SHAPE", "source_input": ["X"]}
        ],
    }


def counted(kind, name, datatype="INT32"):
    return {
        "kind": f"BATCH_{kind}",
        "target_name": [name],
        "data_type": f"TYPE_{datatype}",
        "source_input": ["X"],
    }


def outputs(answer):
    if answer.only.error is not None:
        raise answer.only.error
    return {out.name: out.numpy().tolist() for out in answer.only.outputs}


@pytest.fixture
def feeds_of():
    """Collects what ONNX Runtime is fed by a model's first instance."""

    def install(model):
        calls = []
        session = model.instances[0].state._session

        class Recorder:
            def run(self, names, feeds, options):
                calls.append({name: array.copy() for name, array in feeds.items()})
                return session.run(names, feeds, options)

        model.instances[0].state = InstanceSession(model.handle.state, Recorder())
        return calls

    return install


def test_a_ragged_batch_is_one_call_and_everyone_gets_their_own(load, feeds_of):
    config = ragged(
        counted("ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", "ENDS"),
        outputs=[tensor("Y", [-1]), tensor("SUM", [1])],
    )
    model = load(SUMS, config)
    calls = feeds_of(model)
    rows = [[1, 2, 3], [4, 5, 6, 7], [], [8]]

    answers = model.execute([request_of(X=np.array([row], "f4")) for row in rows])

    [feeds] = calls
    assert feeds["X"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert feeds["ENDS"].tolist() == [0, 3, 7, 7, 8]
    assert [outputs(answer) for answer in answers] == [
        {"Y": [[-value for value in row]], "SUM": [[sum(row)]]} for row in rows
    ]


@pytest.mark.parametrize("datatype", ["INT32", "FP32"])
@pytest.mark.parametrize(
    ("kind", "shape", "values"),
    [
        ("ELEMENT_COUNT", "[M]", [4, 9]),
        ("ACCUMULATED_ELEMENT_COUNT", "[M]", [4, 13]),
        ("ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", "[M]", [0, 4, 13]),
        ("MAX_ELEMENT_COUNT_AS_SHAPE", "[M]", [0] * 9),
        ("ITEM_SHAPE", "[M,2]", [[2, 1], [2, 1], [3, 3]]),
        ("ITEM_SHAPE_FLATTEN", "[M]", [2, 1, 2, 1, 3, 3]),
    ],
)
def test_onnxruntime_takes_every_kind_of_batch_input(kind, shape, values, datatype, load, feeds_of):
    text = (
        f"net (float[K] X, {ONNX_TYPES[datatype]}{shape} B) => (float[K] Y) "
        "{ S = Shape(B) F = Cast<to = 1>(S) T = ReduceSum<keepdims = 0>(F) N = Neg(X) Y = Mul(N, T) }"
    )
    model = load(text, ragged(counted(kind, "B", datatype), dims=(-1, -1)))
    calls = feeds_of(model)
    arrays = [np.ones((2, 2, 1), "f4"), np.ones((1, 3, 3), "f4")]

    answers = model.execute([request_of(X=array, rows=len(array)) for array in arrays])

    [feeds] = calls
    assert feeds["B"].tolist() == values
    assert feeds["B"].dtype == DATATYPES[datatype].numpy
    size = sum(feeds["B"].shape)
    assert [outputs(answer)["Y"] for answer in answers] == [(array * -size).tolist() for array in arrays]


def test_a_ragged_batch_that_fails_is_tried_request_by_request(load):
    text = (
        "net (int64[K] X, int32[M] COUNTS) => (float[K] Y) "
        "{ T = Constant<value = float[2] {10, 20}>() Y = Gather(T, X) }"
    )
    config = ragged(counted("ELEMENT_COUNT", "COUNTS"))
    config["input"][0]["data_type"] = "TYPE_INT64"
    model = load(text, config)

    answers = model.execute([request_of(X=np.array([row], "i8")) for row in ([0, 1], [2], [1, 1, 0])])

    assert outputs(answers[0]) == {"Y": [[10, 20]]}
    with pytest.raises(TritonError, match="onnx runtime error"):
        outputs(answers[1])
    assert outputs(answers[2]) == {"Y": [[20, 20, 10]]}


def test_inputs_with_a_default_may_be_left_out_also_in_a_batch(tmp_path, load, feeds_of):
    text = "net (float[N,2] X, float[M,2] W) => (float[N,2] Y) { Y = Add(X, W) }"
    net = parser.parse_model(HEADER + text)
    net.graph.initializer.append(numpy_helper.from_array(np.array([[10, 20]], "f4"), "W"))
    config = {
        "max_batch_size": 4,
        "input": [tensor("X", [2]), tensor("W", [2], optional=True)],
        "output": [tensor("Y", [2])],
    }
    ModelRepository(tmp_path).onnx("net", net.SerializeToString(), config)
    model = load(text, config)
    calls = feeds_of(model)
    x, w = np.ones((1, 2), "f4"), np.full((1, 2), 100, "f4")

    answers = model.execute([request_of(X=x), request_of(X=x, W=w), request_of(X=x * 2)])

    assert [outputs(answer)["Y"] for answer in answers] == [[[11, 21]], [[101, 101]], [[12, 22]]]
    assert [sorted(feeds) for feeds in calls] == [["X"], ["W", "X"]]


def stateful(datatype, dims, **more):
    """Y is the state as it came; OUT is what follows from it."""
    return {
        "max_batch_size": 8,
        "input": [tensor("X", [1], datatype)],
        "output": [tensor("Y", dims, datatype)],
        "sequence_batching": {
            "state": [
                {
                    "input_name": "IN",
                    "output_name": "OUT",
                    "data_type": datatype,
                    "dims": dims,
                    **more,
                }
            ]
        },
    }


def step(model, sequences, values, datatype):
    """One request of each sequence, all in one batch; what they answer."""
    requests = []
    for states, value in zip(sequences, values, strict=True):
        request = request_of(X=Tensor.from_numpy("X", np.array([[value]]), datatype), outputs=("Y",))
        request.ticket.states = states
        request.inputs = states.enter(request.inputs)
        requests.append(request)
    answers = model.execute(requests)
    results = []
    for request, answer in zip(requests, answers, strict=True):
        request.ticket.states.own(answer.only)
        assert request.ticket.states.take(answer.only, True) is answer.only
        results.append(outputs(answer))
    return results


@pytest.mark.parametrize(
    ("datatype", "kind", "formula"),
    [
        ("TYPE_FP32", "float", "OUT = Add(IN, X)"),
        ("TYPE_INT64", "int64", "OUT = Add(IN, X)"),
        ("TYPE_FP16", "float16", "OUT = Add(IN, X)"),
        ("TYPE_FP64", "double", "OUT = Add(IN, X)"),
    ],
)
def test_states_of_many_sequences_are_one_batch(datatype, kind, formula, load, feeds_of):
    config = stateful(datatype, [1])
    model = load(
        f"net ({kind}[N,1] X, {kind}[N,1] IN) => ({kind}[N,1] Y, {kind}[N,1] OUT) "
        f"{{ {formula} Y = Identity(IN) }}",
        config,
    )
    calls = feeds_of(model)
    specs = StateSpecs({"name": "net", **config}, {})
    sequences = [specs.fresh() for _ in range(3)]
    name = CONFIG_DATATYPES[datatype].name
    numpy = DATATYPES[name].numpy

    first = step(model, sequences, [numpy.type(value) for value in (1, 2, 3)], None)
    second = step(model, sequences[::-1], [numpy.type(value) for value in (10, 20, 30)], None)

    assert len(calls) == 2
    assert first == [{"Y": [[0]]}, {"Y": [[0]]}, {"Y": [[0]]}]
    assert second == [{"Y": [[3]]}, {"Y": [[2]]}, {"Y": [[1]]}]
    assert [states.tensor("IN").numpy().tolist() for states in sequences] == [[[31]], [[22]], [[13]]]


def test_a_state_of_strings_is_kept(load):
    config = stateful("TYPE_STRING", [1])
    model = load(
        "net (string[N,1] X, string[N,1] IN) => (string[N,1] Y, string[N,1] OUT) "
        "{ Y = Identity(IN) OUT = Identity(X) }",
        config,
    )
    states = StateSpecs({"name": "net", **config}, {}).fresh()

    answers = [step(model, [states], [value], "BYTES") for value in (b"one", b"zwei", b"")]

    assert answers == [[{"Y": [[b""]]}], [{"Y": [[b"one"]]}], [{"Y": [[b"zwei"]]}]]


def test_a_state_of_bfloat16_is_kept(load):
    config = stateful("TYPE_BF16", [1])
    model = load(
        "net (bfloat16[N,1] X, bfloat16[N,1] IN) => (bfloat16[N,1] Y, bfloat16[N,1] OUT) "
        "{ Y = Identity(IN) OUT = Identity(X) }",
        config,
    )
    states = StateSpecs({"name": "net", **config}, {}).fresh()

    answers = [step(model, [states], [np.uint16(bits)], "BF16") for bits in (0x3F80, 0x4000)]

    assert answers == [[{"Y": [[0]]}], [{"Y": [[0x3F80]]}]]


def test_a_state_grows_and_sequences_of_other_sizes_are_other_calls(load, feeds_of):
    initial = {"name": "empty", "data_type": "TYPE_FP32", "dims": [0], "zero_data": True}
    config = stateful("TYPE_FP32", [-1], initial_state=[initial])
    model = load(
        "net (float[N,1] X, float[N,K] IN) => (float[N,L] Y, float[N,M] OUT) "
        "{ Y = Identity(IN) OUT = Concat<axis = 1>(IN, X) }",
        config,
    )
    calls = feeds_of(model)
    specs = StateSpecs({"name": "net", **config}, {})
    old, young = specs.fresh(), specs.fresh()

    step(model, [old], [np.float32(1)], None)
    answers = step(model, [old, young], [np.float32(2), np.float32(3)], None)
    step(model, [young], [np.float32(4)], None)

    assert answers == [{"Y": [[1]]}, {"Y": [[]]}]
    assert len(calls) == 4
    assert old.tensor("IN").numpy().tolist() == [[1, 2]]
    assert young.tensor("IN").numpy().tolist() == [[3, 4]]


def test_a_batch_of_states_leaves_no_batch_behind(load):
    config = stateful("TYPE_FP32", [1])
    model = load(
        "net (float[N,1] X, float[N,1] IN) => (float[N,1] Y, float[N,1] OUT) "
        "{ OUT = Add(IN, X) Y = Identity(IN) }",
        config,
    )
    specs = StateSpecs({"name": "net", **config}, {})
    sequences = [specs.fresh() for _ in range(4)]

    step(model, sequences, np.ones(4, "f4"), None)

    for states in sequences:
        array = states.tensor("IN").numpy()
        assert array.base is None or array.base.nbytes == array.nbytes


def test_what_the_server_gives_is_not_filled_in(load):
    text = """net (float[N,1] X, int32[N,1] START, float[N,4] IN, int32[M] COUNT)
        => (float[N,1] Y, float[N,4] OUT) {
            A = Cast<to = 1>(START) B = Cast<to = 1>(COUNT) C = Add(X, A) Y = Add(C, B) OUT = Identity(IN)
        }"""
    control = {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}]}
    state = {"input_name": "IN", "output_name": "OUT", "data_type": "TYPE_FP32", "dims": [4]}
    model = load(
        text,
        {
            "max_batch_size": 4,
            "sequence_batching": {"control_input": [control], "state": [state]},
            "batch_input": [counted("ELEMENT_COUNT", "COUNT")],
        },
    )

    config = model.handle.config
    assert [(given["name"], given["dims"]) for given in config["input"]] == [("X", [1])]
    assert [given["name"] for given in config["output"]] == ["Y"]
