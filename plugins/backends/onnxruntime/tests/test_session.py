from __future__ import annotations

import numpy as np
import pytest
from tritonpy.plugin import DATATYPES, Tensor
from tritonpy_backend_onnxruntime.session import InstanceSession
from tritonpy_sdk.testing import request_of
from tritonpy_sdk.testing.samples import sample_array

NEGATE = "net (float[N,K] X) => (float[N,K] Y) { Y = Neg(X) }"
TWO = "net (float[N,3] X) => (float[N,3] Y, float[N,3] Z) { Y = Neg(X) Z = Add(X, X) }"
GATHER = "net (int64[N,1] I) => (float[N,1] Y) { T = Constant<value = float[2] {10, 20}>() Y = Gather(T, I) }"
ONNX_TYPES = {"FP16": "float16", "FP32": "float", "FP64": "double", "BYTES": "string", "BF16": "bfloat16"}


class Recorder:
    """A session that notes what it is asked."""

    def __init__(self, session):
        self.session = session
        self.calls = []

    def run(self, names, feeds, options):
        self.calls.append((list(names), dict(feeds)))
        return self.session.run(names, feeds, options)


@pytest.fixture
def record():
    """Put a recorder before the session of a model's first instance."""

    def install(model):
        recorder = Recorder(model.instances[0].state._session)
        model.instances[0].state = InstanceSession(model.handle.state, recorder)
        return recorder

    return install


def outputs(answer):
    assert answer.only.error is None, answer.only.error
    return {tensor.name: tensor.numpy() for tensor in answer.only.outputs}


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("sizes", [[3], [1, 2], [0], [0, 2]])
def test_every_datatype_passes_unchanged_alone_and_in_a_batch(datatype, sizes, load):
    kind = ONNX_TYPES.get(datatype, datatype.lower())
    model = load(f"net ({kind}[N,2] X) => ({kind}[N,2] Y) {{ Y = Identity(X) }}")
    random = np.random.default_rng(0)
    arrays = [sample_array(datatype, (rows, 2), random) for rows in sizes]
    wires = [bytes(Tensor.from_numpy("X", array, datatype).wire()) for array in arrays]

    answers = model.execute(
        [
            request_of(X=Tensor("X", datatype, array.shape, wire), rows=max(1, len(array)))
            for array, wire in zip(arrays, wires, strict=True)
        ]
    )

    for answer, array, wire in zip(answers, arrays, wires, strict=True):
        (tensor,) = answer.only.outputs
        assert (tensor.name, tensor.datatype, tuple(tensor.shape)) == ("Y", datatype, array.shape)
        assert bytes(tensor.wire()) == wire


def test_batch_of_one_reaches_onnxruntime_without_a_copy(load, record):
    model = load(NEGATE)
    recorder = record(model)
    wire = np.arange(6, dtype="f4").tobytes()

    model.execute([request_of(X=Tensor("X", "FP32", (2, 3), wire), rows=2)])

    ((_, feeds),) = recorder.calls
    assert np.shares_memory(feeds["X"], np.frombuffer(wire, "f4"))


def test_elements_at_odd_addresses_are_copied_first(load, record):
    model = load(NEGATE)
    recorder = record(model)
    body = b"x" + np.arange(6, dtype="f4").tobytes()

    (answer,) = model.execute([request_of(X=Tensor("X", "FP32", (2, 3), memoryview(body)[1:]), rows=2)])

    ((_, feeds),) = recorder.calls
    assert feeds["X"].flags.aligned
    np.testing.assert_array_equal(outputs(answer)["Y"], -np.arange(6, dtype="f4").reshape(2, 3))


def test_batch_of_many_is_one_call_and_its_outputs_are_views_of_one_array(load, record):
    model = load(NEGATE)
    recorder = record(model)

    answers = model.execute([request_of(X=np.full((rows, 3), rows, "f4"), rows=rows) for rows in (1, 2, 1)])

    ((_, feeds),) = recorder.calls
    assert feeds["X"].shape == (4, 3)
    arrays = [outputs(answer)["Y"] for answer in answers]
    assert [array.shape for array in arrays] == [(1, 3), (2, 3), (1, 3)]
    assert all(array.base is not None and not array.flags.owndata for array in arrays)
    starts = [array.__array_interface__["data"][0] for array in arrays]
    assert np.diff(starts).tolist() == [12, 24]


def test_gathered_block_is_used_again(load, record):
    model = load(NEGATE)
    recorder = record(model)
    addresses = set()
    for _ in range(3):
        model.execute([request_of(X=np.ones((2, 10000), "f4"), rows=2) for _ in range(2)])
        ((_, feeds),) = recorder.calls
        addresses.add(feeds["X"].__array_interface__["data"][0])
        recorder.calls.clear()
        del feeds

    assert len(addresses) == 1


def test_requests_of_different_shapes_run_alone(load, record):
    model = load(NEGATE)
    recorder = record(model)

    answers = model.execute([request_of(X=np.ones((1, k), "f4")) for k in (3, 5)])

    assert len(recorder.calls) == 2
    assert [outputs(answer)["Y"].shape for answer in answers] == [(1, 3), (1, 5)]


def test_only_requested_outputs_are_computed(load, record):
    model = load(TWO)
    recorder = record(model)
    x = np.ones((1, 3), "f4")

    answers = model.execute([request_of(X=x, outputs=("Z",)), request_of(X=x, outputs=("Z",))])
    mixed = model.execute([request_of(X=x, outputs=("Z",)), request_of(X=x, outputs=("Y",))])
    model.execute([request_of(X=x)])

    assert [names for names, _ in recorder.calls] == [["Z"], ["Y", "Z"], ["Y", "Z"]]
    assert [list(outputs(answer)) for answer in answers + mixed] == [["Z"], ["Z"], ["Z"], ["Y"]]


def test_output_that_is_not_configured_is_not_computed(load, record):
    config = {
        "max_batch_size": 4,
        "output": [{"name": "Z", "data_type": "TYPE_FP32", "dims": [3]}],
    }
    model = load(TWO, config)
    recorder = record(model)

    (answer,) = model.execute([request_of(X=np.ones((1, 3), "f4"))])

    assert list(outputs(answer)) == ["Z"]
    assert [names for names, _ in recorder.calls] == [["Z"]]


def test_value_that_the_model_refuses_fails_its_own_request_only(load):
    model = load(GATHER)

    good, bad, other = model.execute([request_of(I=[[index]]) for index in (0, 7, 1)])

    assert outputs(good)["Y"].tolist() == [[10.0]]
    assert outputs(other)["Y"].tolist() == [[20.0]]
    assert bad.only.error.message.startswith("onnx runtime error 2: ")
    assert "idx=7" in bad.only.error.message
    assert bad.only.error.code.text == "Internal"


def test_string_that_is_not_utf8_fails_its_own_request_only(load):
    model = load("net (string[N,1] X) => (string[N,1] Y) { Y = Identity(X) }")
    texts = ["grüße".encode(), b"\xff\xfe", b"a\x00b"]

    answers = model.execute([request_of(X=np.array([[text]], object)) for text in texts])

    assert outputs(answers[0])["Y"].tolist() == [["grüße".encode()]]
    assert outputs(answers[2])["Y"].tolist() == [[b"a\x00b"]]
    assert answers[1].only.error.message.startswith(
        "input 'X' of model 'net': string element 0 is not UTF-8, and ONNX Runtime takes no other"
    )
    assert answers[1].only.error.code.text == "Invalid argument"


def test_strings_of_this_process_are_taken_as_they_are(load):
    model = load("net (string[N,2] X) => (string[N,2] Y) { Y = Identity(X) }")

    (answer,) = model.execute([request_of(X=np.array([["a", "längeres"]]))])

    assert outputs(answer)["Y"].tolist() == [[b"a", "längeres".encode()]]


def test_scalars_have_one_dimension_for_clients(load):
    model = load("net (float X, float[2] W) => (float Y) { P = Mul(X, W) Y = ReduceSum<keepdims = 0>(P) }")

    (answer,) = model.execute([request_of(X=np.array([3], "f4"), W=np.array([1, 2], "f4"))])

    assert model.config["max_batch_size"] == 0
    assert outputs(answer)["Y"].tolist() == [9.0]
    assert answer.only.outputs[0].shape == (1,)


def test_vector_of_rows_has_a_second_dimension_for_clients(load):
    model = load("net (float[N] X) => (float[N] Y) { Y = Neg(X) }")

    answers = model.execute([request_of(X=np.ones((rows, 1), "f4"), rows=rows) for rows in (1, 2)])

    assert [outputs(answer)["Y"].tolist() for answer in answers] == [[[-1.0]], [[-1.0], [-1.0]]]


def test_requests_for_a_model_that_does_not_batch_run_one_by_one(load, record):
    model = load("net (float[2] X) => (float[2] Y) { Y = Neg(X) }")
    recorder = record(model)

    answers = model.execute([request_of(X=np.full(2, value, "f4")) for value in (1, 2)])

    assert len(recorder.calls) == 2
    assert [outputs(answer)["Y"].tolist() for answer in answers] == [[-1, -1], [-2, -2]]


def test_output_without_a_row_for_each_row_fails_with_the_shapes(load):
    text = "net (float[N,2] X) => (float[M,2] Y) { Y = Concat<axis = 0>(X, X) }"
    config = {
        "max_batch_size": 4,
        "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2]}],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [2]}],
    }

    (answer,) = load(text, config).execute([request_of(X=np.ones((1, 2), "f4"))])

    assert answer.only.error.message == (
        "model 'net' gave output 'Y' of shape [2, 2] for a batch of 1; expected 1 as first dimension"
    )


def test_optional_input_may_be_left_out_by_some(load):
    text = "net (float[N,1] X, float[1] W) => (float[N,1] Y) <float[1] W = {5}> { Y = Mul(X, W) }"
    config = {
        "input": [
            {"name": "X", "data_type": "TYPE_FP32", "dims": [-1, 1]},
            {"name": "W", "data_type": "TYPE_FP32", "dims": [1], "optional": True},
        ],
        "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1, 1]}],
    }
    model = load(text, config)

    plain, given = model.execute(
        [request_of(X=np.ones((1, 1), "f4")), request_of(X=np.ones((1, 1), "f4"), W=np.array([7], "f4"))]
    )

    assert outputs(plain)["Y"].tolist() == [[5.0]]
    assert outputs(given)["Y"].tolist() == [[7.0]]


def test_input_that_the_model_does_not_have_is_refused(load):
    (answer,) = load(NEGATE).execute([request_of(Q=np.ones((1, 3), "f4"))])

    assert answer.only.error.message == "unexpected inference input 'Q' for model 'net'"


def test_compute_time_is_that_of_onnxruntime(load):
    model = load(NEGATE)
    instance = model.instances[0]

    before = instance.now_ns()
    model.execute([request_of(X=np.ones((1, 3), "f4"))])

    assert before < instance.compute_start_ns < instance.compute_end_ns < instance.now_ns()
