"""TensorFlow Lite models with what else a server does: clients, sequences, processes, and long calls."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonpy.options import ServerOptions
from tritonpy.server import Server
from tritonpy_sdk import ModelRepository


@pytest.fixture(scope="module")
def server(litert, tmp_path_factory, content):
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    start = {
        "name": "START",
        "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}],
    }
    state = {"input_name": "OLD", "output_name": "NEW", "data_type": "TYPE_FP32", "dims": [1]}
    configs = {
        "variable": None,
        "isolated": {"backend": "litert", "parameters": {"TRITONPY_ISOLATION": {"string_value": "process"}}},
        "state": {"max_batch_size": 2, "sequence_batching": {"control_input": [start], "state": [state]}},
        "slow": {"instance_group": [{"kind": "KIND_CPU", "count": 1}]},
    }
    for name, config in configs.items():
        file = "variable" if name == "isolated" else name
        repository.model(name, config, {"model.tflite": content(file)})
    options = ServerOptions(
        (str(repository.path),),
        http_address="127.0.0.1",
        http_port=0,
        grpc_address="127.0.0.1",
        grpc_port=0,
        allow_metrics=False,
    )
    with Server(options) as started:
        yield started


def ask(server, name, client=tritonclient.http, options=None, **inputs):
    port = server.http_port if client is tritonclient.http else server.grpc_port
    tensors = []
    for key, array in inputs.items():
        given = client.InferInput(key, list(array.shape), "FP32")
        given.set_data_from_numpy(array)
        tensors.append(given)
    with client.InferenceServerClient(f"127.0.0.1:{port}") as connection:
        return connection.infer(name, tensors, **(options or {}))


@pytest.mark.parametrize("name", ["variable", "isolated"])
@pytest.mark.parametrize("client", [tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def test_clients_get_what_the_model_computes(server, client, name):
    x = np.array([[1, 2, 3]], "f4")

    assert ask(server, name, client, X=x).as_numpy("Y").tolist() == [[-1, -2, -3]]


def test_a_sequence_has_its_state(server):
    given = []
    for number in range(3):
        options = {"sequence_id": 7, "sequence_start": number == 0, "sequence_end": number == 2}
        answer = ask(server, "state", options=options, INPUT=np.full((1, 1), number + 1, "f4"))
        given.append(answer.as_numpy("OUTPUT").item())

    assert given == [1, 3, 6]


def test_a_long_call_does_not_stop_the_server(server):
    x = np.full((1024, 1024), 0.01, "f4")
    ask(server, "slow", X=x)
    model = server.runtime.dataplane.find("slow")
    asking = threading.Thread(target=ask, args=(server, "slow"), kwargs={"X": x})
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
