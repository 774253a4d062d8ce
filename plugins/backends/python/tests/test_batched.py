"""`@batched`: arrays in, arrays out; by hand, in a worker, and in a server with many clients."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import triton_python_backend_utils as pb_utils
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.http import InferenceServerClient, InferInput
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_model import batched
from tritonpy_sdk import ModelRepository

REFUSED = pb_utils.TritonModelException


def request(**inputs):
    tensors = [pb_utils.Tensor(name, np.asarray(value)) for name, value in inputs.items()]
    return pb_utils.InferenceRequest(inputs=tensors, requested_output_names=[], model_name="net")


def rows(*values):
    return np.array(values, np.float32).reshape(len(values), -1)


def execute(function, *requests, **options):
    """What a model whose `execute` is `function` answers: outputs as arrays by name, for each request."""
    decorated = batched(**options)(function) if options else batched(function)
    responses = decorated(None, list(requests))
    return [
        {tensor.name(): tensor.as_numpy() for tensor in response.output_tensors()} for response in responses
    ]


def test_requests_are_joined_and_each_gets_its_own_rows():
    seen = []

    def double(self, inputs):
        seen.append(inputs["X"].shape)
        return {"Y": inputs["X"] * 2, "SUM": inputs["X"].sum(axis=1)}

    first, second = execute(double, request(X=rows([1, 2])), request(X=rows([3, 4], [5, 6])))

    assert seen == [(3, 2)]
    assert first["Y"].tolist() == [[2, 4]]
    assert second["Y"].tolist() == [[6, 8], [10, 12]]
    assert second["SUM"].tolist() == [7, 11]


def test_a_single_request_is_not_copied_and_neither_are_its_outputs():
    x, y = rows([1, 2]), rows([3, 4])

    def look(self, inputs):
        assert inputs["X"] is x
        return {"Y": y}

    [answer] = execute(look, request(X=x))

    assert answer["Y"] is y


def test_the_outputs_of_a_batch_are_views():
    y = rows([1], [2], [3])

    answers = execute(lambda self, inputs: {"Y": y}, request(X=rows([0])), request(X=rows([0], [0])))

    assert all(np.shares_memory(answer["Y"], y) for answer in answers)


def test_requests_with_other_optional_inputs_go_into_other_calls():
    calls = []

    def add(self, inputs):
        calls.append({name: array.shape[0] for name, array in inputs.items()})
        return {"Y": inputs["X"] + inputs.get("BIAS", 0)}

    answers = execute(
        add,
        request(X=rows([1])),
        request(X=rows([2]), BIAS=rows([10])),
        request(X=rows([3], [4])),
        request(BIAS=rows([20]), X=rows([5])),  # the order in which a client sends them does not matter
    )

    assert calls == [{"X": 3}, {"X": 2, "BIAS": 2}]
    assert [answer["Y"].ravel().tolist() for answer in answers] == [[1], [12], [3, 4], [25]]


def test_requests_without_inputs_are_answered_one_by_one():
    count = iter(range(10))

    answers = execute(lambda self, inputs: {"N": np.array([next(count)])}, request(), request())

    assert [answer["N"].tolist() for answer in answers] == [[0], [1]]


def test_ragged_inputs_come_as_lists_and_outputs_may_leave_so():
    def reverse(self, inputs):
        assert [array.shape for array in inputs["X"]] == [(1, 2), (2, 3)]
        assert inputs["K"].tolist() == [[1], [2], [2]]
        return {
            "Y": [array[:, ::-1] for array in inputs["X"]],
            "LENGTH": np.repeat([array.shape[1] for array in inputs["X"]], [1, 2]),
        }

    first, second = execute(
        reverse,
        request(X=rows([1, 2]), K=rows([1])),
        request(X=rows([1, 2, 3], [4, 5, 6]), K=rows([2], [2])),
    )

    assert first["Y"].tolist() == [[2, 1]]
    assert second["Y"].tolist() == [[3, 2, 1], [6, 5, 4]]
    assert [first["LENGTH"].tolist(), second["LENGTH"].tolist()] == [[2], [3, 3]]


@pytest.mark.parametrize("requests", [[request(X=rows([1]))], [request(X=rows([1])), request(X=rows([2]))]])
def test_an_input_declared_ragged_is_a_list_also_where_it_need_not_be(requests):
    def look(self, inputs):
        assert [array.shape for array in inputs["X"]] == [(1, 1)] * len(requests)
        return {"Y": inputs["X"]}

    assert len(execute(look, *requests, ragged=["X"])) == len(requests)


def test_a_str_is_not_taken_for_the_names_of_ragged_inputs():
    with pytest.raises(TypeError, match="ragged must be a collection of names, got the str 'TOKENS'"):
        batched(ragged="TOKENS")


def test_texts_are_objects_of_bytes():
    def upper(self, inputs):
        return {"Y": np.array([[text.upper()] for text in inputs["X"].ravel()], object)}

    first, second = execute(
        upper, request(X=np.array([[b"a"]], object)), request(X=np.array([[b"b"], [b"cd"]], object))
    )

    assert first["Y"].tolist() == [[b"A"]]
    assert second["Y"].tolist() == [[b"B"], [b"CD"]]


def test_a_tensor_of_a_framework_is_taken_as_an_array():
    class Foreign:
        def __array__(self, dtype=None, copy=None):
            return np.ones((1, 2), np.float32)

    [answer] = execute(lambda self, inputs: {"Y": Foreign()}, request(X=rows([1])))

    assert answer["Y"].tolist() == [[1, 1]]


ONE, TWO = request(X=rows([1])), request(X=rows([1], [2]))


@pytest.mark.parametrize(
    ("outputs", "error", "message"),
    [
        (
            {"Y": rows([1], [2])},
            REFUSED,
            r"output 'Y': got shape \[2, 1\], expected 3 in the first dimension, the rows of the 2 requests",
        ),
        ({"Y": np.float32(3)}, REFUSED, r"output 'Y': got shape \[\], expected 3 in the first dimension"),
        (
            {"Y": [rows([1])]},
            REFUSED,
            r"output 'Y': got a list of 1 arrays, expected one for each request, 2",
        ),
        (
            {"Y": [rows([1]), rows([1])]},
            REFUSED,
            r"output 'Y': got shape \[1, 1\], expected 2 in the first dimension, the rows of request 1",
        ),
        ({"Y": [1.0, 2.0]}, TypeError, r"output 'Y': got float, expected a numpy array, or a list of arrays"),
        ({"Y": "text"}, TypeError, r"output 'Y': got str, expected a numpy array"),
        (
            {"Y": np.ones(3, complex)},
            REFUSED,
            r"output 'Y' of dtype complex128: NumPy dtype is not supported.",
        ),
        (None, TypeError, r"execute returned NoneType, expected a dict from names of outputs to arrays"),
        ([rows([1])], TypeError, r"execute returned list, expected a dict"),
    ],
)
def test_outputs_that_cannot_be_taken_apart_are_named(outputs, error, message):
    with pytest.raises(error, match=message):
        execute(lambda self, inputs: outputs, ONE, TWO)


def test_a_batch_of_scalars_is_refused():
    with pytest.raises(REFUSED, match="input 'X': got a scalar, expected the rows of the batch"):
        execute(lambda self, inputs: {}, request(X=np.float32(1)), request(X=np.float32(2)))


def test_coroutines_are_awaited():
    async def double(self, inputs):
        await asyncio.sleep(0)
        return {"Y": inputs["X"] * 2}

    decorated = batched(double)
    responses = asyncio.run(decorated(None, [ONE, TWO]))

    assert asyncio.iscoroutinefunction(decorated)
    assert [len(response.output_tensors()[0].as_numpy()) for response in responses] == [1, 2]


def test_the_method_keeps_its_name_and_text():
    def execute(self, inputs):
        """Does something."""

    decorated = batched(execute)

    assert decorated.__name__ == "execute"
    assert decorated.__doc__ == "Does something."


@st.composite
def batches(draw):
    """Requests of one model with an optional and a ragged input: arrays by name, for each request."""
    made = []
    for _ in range(draw(st.integers(1, 6))):
        count, length = draw(st.integers(0, 3)), draw(st.integers(1, 3))
        values = st.lists(st.integers(-99, 99), min_size=count, max_size=count)
        arrays = {"X": np.array(draw(values), np.int32), "R": np.ones((count, length), np.int32)}
        if draw(st.booleans()):
            arrays["Z"] = np.array(draw(values), np.int32)
        made.append(arrays)
    return made


@settings(deadline=None)  # a busy machine is no failure
@given(batches())
def test_a_batch_is_answered_as_its_requests_one_by_one(batch):
    def compute(self, inputs):
        ragged = inputs["R"] if isinstance(inputs["R"], list) else [inputs["R"]]
        return {
            "OWN": inputs["X"],
            "SUM": inputs["X"] * 2 + inputs.get("Z", 0),
            "ROWS": np.concatenate([array.sum(axis=1) for array in ragged]),
        }

    together = execute(compute, *(request(**arrays) for arrays in batch))
    alone = [execute(compute, request(**arrays))[0] for arrays in batch]

    for arrays, got, expected in zip(batch, together, alone, strict=True):
        assert got["OWN"].tolist() == arrays["X"].tolist()
        assert got.keys() == expected.keys()
        for name, array in expected.items():
            assert got[name].dtype == array.dtype
            assert got[name].tolist() == array.tolist()


MODEL = """
import numpy as np
from tritonpy_model import batched


class TritonPythonModel:
    @batched
    {definition} execute(self, inputs):
        {body}
"""


def model(body, definition="def"):
    return MODEL.format(body=body, definition=definition)


@pytest.mark.parametrize("definition", ["def", "async def"])
def test_it_runs_in_a_worker(load, definition):
    worker = load(model('return {"Y": inputs["X"] + 1}', definition), outputs={"Y": "TYPE_FP32"})

    answers = worker.infer(worker.request(0, X=rows([1])), worker.request(1, X=rows([2], [3])))

    assert [answer["Y"].tolist() for answer in answers] == [[[2]], [[3], [4]]]


def test_a_model_that_does_not_batch_gives_any_shape(load):
    worker = load(model('return {"Y": inputs["X"].sum()[None]}'), outputs={"Y": "TYPE_FP32"})

    answers = worker.infer(
        worker.request(0, X=np.ones(3, np.float32)), worker.request(1, X=np.ones(2, np.float32))
    )

    assert [answer["Y"].tolist() for answer in answers] == [[3], [2]]


def test_the_rows_of_a_single_request_are_checked_where_the_model_batches(load):
    worker = load(model('return {"OUTPUT0": inputs["X"].sum(axis=0)}'), config={"max_batch_size": 8})

    _, text = worker.failure(worker.request(X=rows([1, 2, 3], [4, 5, 6])))

    assert "output 'OUTPUT0': got shape [3], expected 2 in the first dimension, the rows of the one" in text


def test_an_exception_shows_the_lines_of_the_model_only(load):
    worker = load(model('raise ValueError("too dark")'))

    _, text = worker.failure(worker.request(X=rows([1])))

    assert text.endswith(f"message: ValueError: too dark\n\nAt:\n  {worker.model_file}(9): execute\n")


WHO = """
import numpy as np
import triton_python_backend_utils as pb_utils
from tritonpy_model import batched


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "ID", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "SAME", "data_type": "TYPE_INT32", "dims": [1]})
        config.add_output({"name": "ROWS", "data_type": "TYPE_INT32", "dims": [1]})
        return config

    @batched
    def execute(self, inputs):
        return {"SAME": inputs["ID"] * 1, "ROWS": np.full_like(inputs["ID"], len(inputs["ID"]))}
"""


def test_every_client_of_a_server_gets_its_own_rows_of_the_batch(tmp_path):
    repository = ModelRepository(tmp_path)
    # A batch leaves when it is full: the delay is longer than the test may take.
    config = 'backend: "python" max_batch_size: 16 dynamic_batching { preferred_batch_size: [ 16 ] '
    repository.python("who", WHO, config + "max_queue_delay_microseconds: 60000000 }")
    options = ServerOptions((str(tmp_path),), http_port=0, allow_grpc=False, allow_metrics=False)
    together = threading.Barrier(8)

    def infer(client):
        ids = np.array([[client * 10], [client * 10 + 1]], np.int32)
        tensor = InferInput("ID", [2, 1], "INT32")
        tensor.set_data_from_numpy(ids)
        with InferenceServerClient(f"127.0.0.1:{port}") as connection:
            together.wait(20)
            answer = connection.infer("who", [tensor])
        assert answer.as_numpy("SAME").tolist() == ids.tolist()
        return answer.as_numpy("ROWS").ravel().tolist()

    with Server(options) as server, ThreadPoolExecutor(8) as clients:
        port = server.http_port
        batch_sizes = list(clients.map(infer, range(8)))

    assert batch_sizes == [[16, 16]] * 8
