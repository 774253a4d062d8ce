"""TensorFlow models with what else a server does: clients, ensembles, calls, sequences, labels, processes."""

from __future__ import annotations

import threading

import numpy as np
import psutil
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository

CALLS = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "x")
            call = pb_utils.InferenceRequest(model_name="scores", requested_output_names=["y"], inputs=[x])
            y = pb_utils.get_output_tensor_by_name(call.exec(), "y")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", y.as_numpy() + 1)]))
        return responses
"""


def tensor(name, dims, **more):
    return {"name": name, "data_type": "TYPE_FP32", "dims": dims, **more}


def step(name, inputs, outputs):
    return {"model_name": name, "model_version": -1, "input_map": inputs, "output_map": outputs}


@pytest.fixture(scope="module")
def server(tmp_path_factory, tf, saved, saved_v1, frozen, place):
    root = tmp_path_factory.mktemp("models")
    weights = tf.constant(np.arange(6).reshape(2, 3), tf.float32)
    scores = saved(lambda x: {"y": x @ weights}, {"x": (tf.float32, [None, 2])})

    def warm(size):
        inputs = {"x": {"data_type": "TYPE_FP32", "dims": [2], "random_data": True}}
        return {"name": f"rows of {size}", "batch_size": size, "count": 2, "inputs": inputs}

    place(
        root,
        scores,
        {
            "backend": "tensorflow",
            "max_batch_size": 4,
            "dynamic_batching": {"preferred_batch_size": [2, 4]},
            "output": [{"name": "y", "label_filename": "labels.txt"}],
            "model_warmup": [warm(size) for size in (1, 2, 4)],  # one that fails would fail the load
        },
        name="scores",
        model_files={"labels.txt": "none\nsome\nall\n"},
    )
    isolated = {"backend": "tensorflow", "parameters": {"TRITONPY_ISOLATION": {"string_value": "process"}}}
    place(root, scores, isolated, name="isolated")

    def negative(v1):
        v1.negative(v1.placeholder("float32", [None, 3], name="y"), name="z")

    config = {
        "platform": "tensorflow_graphdef",
        "max_batch_size": 4,
        "input": [tensor("y", [3])],
        "output": [tensor("z", [3])],
    }
    place(root, frozen(negative), config, name="negative")
    repository = ModelRepository(root)
    base = {"max_batch_size": 4, "input": [tensor("x", [2])]}
    repository.python("calls", CALLS, base | {"backend": "python", "output": [tensor("y", [3])]})
    steps = [step("scores", {"x": "x"}, {"y": "inner"}), step("negative", {"y": "inner"}, {"z": "z"})]
    repository.model(
        "both",
        base | {"platform": "ensemble", "output": [tensor("z", [3])], "ensemble_scheduling": {"step": steps}},
    )

    def accumulate(INPUT, START, OLD):
        new = INPUT + OLD * (1 - START)
        return {"OUTPUT": new, "NEW": new}

    place(
        root,
        saved(accumulate, {name: (tf.float32, [None, 1]) for name in ("INPUT", "START", "OLD")}),
        {
            "backend": "tensorflow",
            "max_batch_size": 2,
            "sequence_batching": {
                "control_input": [
                    {
                        "name": "START",
                        "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}],
                    }
                ],
                "state": [{"input_name": "OLD", "output_name": "NEW", "data_type": "TYPE_FP32", "dims": [1]}],
            },
        },
        name="sequence",
    )

    def slow(x):
        for _ in tf.range(12):
            x = tf.tanh(x @ x)
        return {"y": x[:1, :1]}

    place(root, saved(slow, {"x": (tf.float32, [1024, 1024])}), name="slow")
    options = ServerOptions(
        (str(root),),
        http_address="127.0.0.1",
        http_port=0,
        grpc_address="127.0.0.1",
        grpc_port=0,
        allow_metrics=False,
    )
    with Server(options) as started:
        yield started


def ask(server, name, client=tritonclient.http, outputs=None, options=None, **inputs):
    port = server.http_port if client is tritonclient.http else server.grpc_port
    tensors = []
    for key, array in inputs.items():
        given = client.InferInput(key, list(array.shape), "FP32")
        given.set_data_from_numpy(array)
        tensors.append(given)
    with client.InferenceServerClient(f"127.0.0.1:{port}") as connection:
        return connection.infer(name, tensors, outputs=outputs, **(options or {}))


X = np.array([[1, 2]], "f4")


@pytest.mark.parametrize("name", ["scores", "isolated"])
@pytest.mark.parametrize("client", [tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def test_clients_get_what_tensorflow_computes(server, client, name):
    assert ask(server, name, client, x=X).as_numpy("y").tolist() == [[6, 9, 12]]


def test_an_isolated_model_is_not_in_the_server_s_process(server):
    for _ in range(5):  # each reads the memory of the one before
        assert ask(server, "isolated", x=X * 2).as_numpy("y").tolist() == [[12, 18, 24]]

    commands = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    assert sum("tritonpy.workers.child" in command for command in commands) >= 2  # as many as instances


def test_an_ensemble_hands_tensors_on(server):
    assert ask(server, "both", x=X).as_numpy("z").tolist() == [[-6, -9, -12]]


def test_a_python_model_calls_a_tensorflow_model(server):
    assert ask(server, "calls", x=X).as_numpy("y").tolist() == [[7, 10, 13]]


def test_labels_name_the_classes(server):
    wanted = tritonclient.http.InferRequestedOutput("y", class_count=1)

    assert ask(server, "scores", outputs=[wanted], x=X).as_numpy("y").tolist() == [[b"12.000000:2:all"]]


def test_a_sequence_has_its_state(server):
    given = []
    for number in range(3):
        options = {"sequence_id": 7, "sequence_start": number == 0, "sequence_end": number == 2}
        answer = ask(server, "sequence", options=options, INPUT=np.full((1, 1), number + 1, "f4"))
        given.append(answer.as_numpy("OUTPUT").item())

    assert given == [1, 3, 6]


def test_a_long_call_does_not_stop_the_server(server):
    x = np.full((1024, 1024), 0.01, "f4")
    ask(server, "slow", x=x)
    model = server.runtime.dataplane.find("slow")
    asking = threading.Thread(target=ask, args=(server, "slow"), kwargs={"x": x})
    answered = 0
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as connection:
        connection.is_server_live()
        asking.start()
        while asking.is_alive():
            is_inside = model.inflight_count == 1
            connection.is_server_live()
            answered += is_inside and model.inflight_count == 1
    asking.join()

    # A call that held the interpreter's lock would let one answer through before it and none while it runs.
    assert answered > 5
