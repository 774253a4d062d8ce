"""Calls of loaded graphs: what goes in, what comes out, and what is prepared for them."""

from __future__ import annotations

import numpy as np
import psutil
import pytest
from tritonpy.plugin import Tensor, TritonError
from tritonpy_sdk.testing import ask, request_of


def doubled(x):
    return {"y": x * 2}


def test_a_saved_model_is_served_without_a_configuration(load, saved, tf):
    model = load(saved(doubled, {"x": (tf.float32, [None, 3])}))

    assert ask(model, x=np.ones((1, 3), "f4")) == {"y": [[2, 2, 2]]}
    assert (model.config["max_batch_size"], model.config["platform"]) == (4, "tensorflow_savedmodel")


def test_a_batch_is_one_call_and_its_rows_go_back_to_their_requests(load, saved, tf):
    model = load(saved(doubled, {"x": (tf.float32, [None, 2])}))

    answers = model.execute([request_of(rows, x=np.full((rows, 2), rows, "f4")) for rows in (1, 2, 1)])

    assert [answer.only.outputs[0].numpy().tolist() for answer in answers] == [
        [[2, 2]], [[4, 4], [4, 4]], [[2, 2]],
    ]  # fmt: skip


def test_a_row_that_only_the_model_can_refuse_fails_its_own_request(load, saved, tf):
    table = [10.0, 20.0]

    def look_up(i):
        return {"y": tf.gather(tf.constant(table), i)}

    model = load(saved(look_up, {"i": (tf.int32, [None, 1])}))

    good, bad, fine = model.execute([request_of(i=np.array([[i]], "i4")) for i in (1, 7, 0)])

    assert good.only.outputs[0].numpy().tolist() == [[20]]
    assert fine.only.outputs[0].numpy().tolist() == [[10]]
    assert "indices[0,0] = 7 is not in [0, 2)" in str(bad.only.error)


@pytest.mark.parametrize(
    ("tf_type", "array"),
    [
        ("bool", np.array([[True, False]])),
        ("uint8", np.array([[0, 255]], "u1")),
        ("uint16", np.array([[0, 65535]], "u2")),
        ("uint32", np.array([[0, 2**32 - 1]], "u4")),
        ("uint64", np.array([[0, 2**64 - 1]], "u8")),
        ("int8", np.array([[-128, 127]], "i1")),
        ("int16", np.array([[-5, 5]], "i2")),
        ("int32", np.array([[-5, 5]], "i4")),
        ("int64", np.array([[-(2**62), 5]], "i8")),
        ("float16", np.array([[1.5, -2]], "f2")),
        ("float32", np.array([[1.5, -2]], "f4")),
        ("float64", np.array([[1.5, -2]], "f8")),
        ("string", np.array([[b"\xff\x00\xfe", b""]], object)),
    ],
)
def test_every_datatype_goes_in_and_out_as_it_is(load, saved, tf, tf_type, array):
    model = load(saved(lambda x: {"y": tf.identity(x)}, {"x": (tf.as_dtype(tf_type), [None, 2])}))

    assert ask(model, x=array) == {"y": array.tolist()}


def test_bfloat16_is_bits_for_clients_and_numbers_for_the_model(load, saved, tf):
    model = load(saved(lambda x: {"y": x + x}, {"x": (tf.bfloat16, [None, 2])}))
    bits = np.array([[0x3F80, 0x4000]], "u2")  # 1 and 2

    answers = model.execute([request_of(x=Tensor.from_numpy("x", bits, "BF16")) for _ in range(2)])

    for answer in answers:
        (y,) = answer.only.outputs
        assert (y.datatype, y.numpy().tolist()) == ("BF16", [[0x4000, 0x4080]])


def test_scalars_have_one_element_in_a_configuration(load, saved, tf):
    model = load(
        saved(lambda x, s: {"y": x + 1, "t": s + "!"}, {"x": (tf.float32, []), "s": (tf.string, [])})
    )

    assert [tensor["dims"] for tensor in model.config["input"]] == [[1], [1]]
    assert ask(model, x=np.array([1], "f4"), s=np.array([b"a"], object)) == {"y": [2], "t": [b"a!"]}


def test_numbers_of_the_other_byte_order_are_turned(load, saved, tf):
    model = load(saved(doubled, {"x": (tf.int32, [2])}))
    tensor = Tensor.from_numpy("x", np.array([1, 2], "i4"))
    tensor._array = np.array([1, 2], ">i4")

    (answer,) = model.execute([request_of(x=tensor)])

    assert answer.only.outputs[0].numpy().tolist() == [2, 4]


class TestCallables:
    @pytest.fixture
    def model(self, load, saved, tf):
        outputs = {f"y{index}": index for index in range(9)}
        return load(
            saved(
                lambda x: {name: x + number for name, number in outputs.items()},
                {"x": (tf.float32, [None, 1])},
            )
        )

    def test_only_wanted_outputs_are_computed(self, load, saved, tf):
        def checked(x):
            with tf.control_dependencies([tf.debugging.assert_positive(x, message="too small")]):
                return {"checked": tf.identity(x), "plain": -x}

        model = load(saved_v1_of(tf, checked, saved))
        assert ask(model, outputs=frozenset(["plain"]), x=np.ones((1, 1), "f4")) == {"plain": [[-1]]}

    def test_a_set_of_outputs_is_prepared_once(self, model):
        graph = model.handle.state.graph
        for _ in range(3):
            assert ask(model, outputs=frozenset(["y3", "y1"]), x=np.ones((1, 1), "f4")) == {
                "y1": [[2]],
                "y3": [[4]],
            }

        assert len(graph._callables) == 2  # this one and the one with all

    def test_clients_cannot_fill_memory_with_sets_of_outputs(self, model):
        graph = model.handle.state.graph
        for number in range(1, 2**9):
            names = frozenset(f"y{index}" for index in range(9) if number >> index & 1)
            answer = ask(model, outputs=names, x=np.zeros((1, 1), "f4"))
            assert answer == {name: [[int(name[1])]] for name in names}

        assert len(graph._callables) <= 65


class TestThreads:
    @staticmethod
    def deep(length):
        def call(x):
            for _ in range(length):
                x = x + 1
            return {"y": x}

        return call

    @pytest.mark.parametrize(
        ("length", "threads", "is_caller_s"),
        [(5, None, True), (200, None, False), (200, "1", True), (5, "2", False), (5, "0", True)],
    )
    def test_small_graphs_run_on_the_thread_that_calls(self, load, saved, tf, length, threads, is_caller_s):
        config = {"backend": "tensorflow"}
        if threads is not None:
            config["parameters"] = {"TF_NUM_INTER_THREADS": {"string_value": threads}}
        model = load(saved(self.deep(length), {"x": (tf.float32, [None, 1])}), config)

        assert model.handle.state.graph.runs_on_caller_s_thread is is_caller_s
        assert ask(model, x=np.zeros((1, 1), "f4")) == {"y": [[length]]}

    def test_a_session_has_the_threads_that_its_model_asks_for(self, load, saved, tf):
        def multiply(x):
            for _ in range(6):
                x = tf.tanh(x @ x)
            return {"y": x[:1, :1]}

        def used(name, threads):
            config = {"backend": "tensorflow", "parameters": {}}
            for key in ("TF_NUM_INTRA_THREADS", "TF_NUM_INTER_THREADS"):
                config["parameters"][key] = {"string_value": threads}
            before = psutil.Process().num_threads()
            model = load(path, config | {"instance_group": [{"kind": "KIND_CPU", "count": 1}]}, name=name)
            ask(model, x=np.full((512, 512), 0.01, "f4"))
            return psutil.Process().num_threads() - before

        path = saved(multiply, {"x": (tf.float32, [512, 512])})
        used("first", "1")

        assert used("many", "7") - used("one", "1") >= 6


def saved_v1_of(tf, function, saved):
    return saved(function, {"x": (tf.float32, [None, 1])})


class TestMemory:
    """Inputs are not copied where they are aligned, and outputs may lie in them."""

    def test_a_large_batch_enters_without_a_copy(self, load, frozen):
        def build(v1):
            v1.identity(v1.placeholder("float32", [None, 1 << 16], name="x"), name="y")

        model = load(frozen(build))
        request = [request_of(x=np.ones((1, 1 << 16), "f4")) for _ in range(2)]
        fed = []
        graph = model.handle.state.graph
        call = graph.call
        graph.call = lambda feeds, names: fed.append(feeds["x"]) or call(feeds, names)

        answers = model.execute(request)

        outputs = [answer.only.outputs[0].numpy() for answer in answers]
        assert all(np.shares_memory(output, fed[0]) for output in outputs)

    def test_outputs_stay_as_they_are_while_later_batches_run(self, load, frozen):
        def build(v1):
            v1.identity(v1.placeholder("float32", [None, 1 << 16], name="x"), name="y")

        model = load(frozen(build))
        kept = []
        for number in range(20):
            rows = [request_of(x=np.full((1, 1 << 16), number, "f4")) for _ in range(2)]
            kept.append([answer.only.outputs[0].numpy() for answer in model.execute(rows)])

        assert [[output[0, -1] for output in outputs] for outputs in kept] == [[n, n] for n in range(20)]

    @pytest.mark.parametrize("is_resource", [False, True])
    def test_an_output_does_not_follow_the_variable_it_was_read_from(self, load, saved_v1, is_resource):
        def build(v1):
            x = v1.placeholder("float32", [1], name="x")
            total = v1.get_variable("total", [1], "float32", v1.zeros_initializer(), use_resource=is_resource)
            return {"x": x}, {"y": v1.identity(v1.assign_add(total, x))}

        model = load(saved_v1(build))
        answers = [model.execute([request_of(x=np.ones(1, "f4"))])[0] for _ in range(3)]

        assert [answer.only.outputs[0].numpy().tolist() for answer in answers] == [[1], [2], [3]]


def test_an_output_that_is_an_input_comes_back(load, saved_v1):
    def build(v1):
        x = v1.placeholder("float32", [None, 2], name="x")
        return {"x": x}, {"same": x, "y": -x}

    model = load(saved_v1(build))

    assert ask(model, x=np.ones((1, 2), "f4")) == {"same": [[1, 1]], "y": [[-1, -1]]}


def test_a_placeholder_with_a_default_is_an_optional_input(load, saved_v1, tf):
    def build(v1):
        x = v1.placeholder("float32", [None, 2], name="x")
        factor = v1.placeholder_with_default(tf.constant([3.0]), [None], name="factor")
        return {"x": x, "factor": factor}, {"y": x * factor}

    config = {
        "backend": "tensorflow",
        "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 2]},
            {"name": "factor", "data_type": "TYPE_FP32", "dims": [1], "optional": True},
        ],
        "output": [{"name": "y", "data_type": "TYPE_FP32", "dims": [-1, 2]}],
    }
    model = load(saved_v1(build), config)

    x = np.ones((1, 2), "f4")
    assert ask(model, x=x) == {"y": [[3, 3]]}
    assert ask(model, x=x, factor=np.array([5], "f4")) == {"y": [[5, 5]]}


def test_an_error_of_the_model_is_answered_with_tensorflow_s_words(load, saved, tf):
    def checked(x):
        with tf.control_dependencies([tf.debugging.assert_positive(x, message="too small")]):
            return {"y": tf.identity(x)}

    model = load(saved(checked, {"x": (tf.float32, [None, 1])}))

    with pytest.raises(TritonError, match="too small"):
        ask(model, x=np.zeros((1, 1), "f4"))
