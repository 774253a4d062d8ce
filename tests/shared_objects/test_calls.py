"""Servers with a backend in C that calls other models, ours and a real one, with the same file."""

from __future__ import annotations

import json
import queue
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import OURS_AND_REAL, local_options, serving
from .conftest import Compiled

INPUT = {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
OUTPUT = {"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
COPIES = {"backend": "copying", "max_batch_size": 8, "input": [INPUT], "output": [OUTPUT]}
CALLS = {"backend": "calling", "max_batch_size": 8, "input": [INPUT], "output": [OUTPUT]}
IN_SERVER = {"parameters": {"TRITONPY_ISOLATION": {"string_value": "thread"}}}
DECOUPLED = {"model_transaction_policy": {"decoupled": True}}
PLAIN = {"input": [INPUT], "output": [OUTPUT]}
MODELS: dict[str, dict[str, Any]] = {
    "calls": CALLS,
    "copies": {**COPIES, "instance_group": [{"count": 2, "kind": "KIND_CPU"}]},
    "streams": {"backend": "calling", **PLAIN, **DECOUPLED},
    "counts": {"backend": "copying", **PLAIN, **DECOUPLED},
    "waits": {**COPIES, "dynamic_batching": {"max_queue_delay_microseconds": 1_000_000}},
}


@pytest.fixture(scope="module", params=["in the server", *OURS_AND_REAL])
def kind(request: pytest.FixtureRequest) -> str:
    made: str = request.param
    return made


@pytest.fixture(scope="module")
def client(
    kind: str, request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[grpcclient.InferenceServerClient]:
    root = tmp_path_factory.mktemp(kind)
    backends = root / "backends"
    for name in ("calling", "copying"):
        (backends / name).mkdir(parents=True)
        shutil.copy(compiled(f"backends/{name}.c", "-pthread"), backends / name / f"libtriton_{name}.so")
    models = ModelRepository(root / "models")
    for name, config in MODELS.items():
        models.model(name, config | (IN_SERVER if kind == "in the server" else {}))
    with (
        serving(
            "real" if kind == "real" else "ours",
            request,
            models.path,
            f"--backend-directory={backends}",
            backend_directory=str(backends),
        ) as ports,
        grpcclient.InferenceServerClient(f"127.0.0.1:{ports['grpc']}") as made,
    ):
        yield made


def ask(
    client: grpcclient.InferenceServerClient, array: Any, caller: str = "calls", **parameters: Any
) -> Any:
    given = grpcclient.InferInput("INPUT0", list(array.shape), "INT32")
    given.set_data_from_numpy(array)
    return client.infer(caller, [given], parameters=parameters, client_timeout=20)


def row(*numbers: int) -> np.ndarray:
    return np.array([numbers], np.int32)


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
def test_another_model_does_the_work(client: grpcclient.InferenceServerClient, size: int) -> None:
    array = np.arange(size, dtype=np.int32).reshape(1, -1)

    assert ask(client, array, model="copies").as_numpy("OUTPUT0").tolist() == array.tolist()


def test_what_the_model_refuses_is_answered(client: grpcclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="unexpected shape for input 'INPUT0'"):
        ask(client, row(1), model="counts")


def test_two_calls_at_once_are_both_answered(client: grpcclient.InferenceServerClient) -> None:
    answer = ask(client, row(1, 2, 3), model="copies", do="sum")

    assert answer.as_numpy("OUTPUT0").tolist() == [[2, 4, 6]]


def test_a_model_that_is_not_there_is_refused(client: grpcclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="unknown model: 'nowhere'") as failed:
        ask(client, row(1), model="nowhere")

    assert failed.value.status() == "StatusCode.NOT_FOUND"


def said(client: grpcclient.InferenceServerClient, model: str, do: str, **parameters: Any) -> str:
    answer = ask(client, row(3), model=model, do=do, **parameters).get_response()
    text: str = answer.parameters["said"].string_param
    return text


def test_a_decoupled_model_is_passed_on(client: grpcclient.InferenceServerClient) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    given = grpcclient.InferInput("INPUT0", [1], "INT32")
    given.set_data_from_numpy(np.array([100], np.int32))
    client.start_stream(lambda result, error: answers.put((result, error)))
    client.async_stream_infer(
        "streams", [given], parameters={"model": "counts"}, enable_empty_final_response=True
    )
    numbers = []
    while True:
        result, error = answers.get(timeout=20)
        assert error is None
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
        numbers.append(int(result.as_numpy("OUTPUT0")[0]))
    client.stop_stream()

    assert numbers == list(range(100))


def test_a_model_that_answers_once_is_passed_on_too(client: grpcclient.InferenceServerClient) -> None:
    answer = ask(client, row(1, 2), model="copies", do="again")

    assert answer.as_numpy("OUTPUT0").tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("do", "expected"),
    [
        ("ask is_live", "1"),
        ("ask is_ready", "1"),
        ("ask model_is_ready", "1"),
        ("ask properties", "2 1 1"),
        ("ask metrics", "1"),
    ],
)
def test_questions_with_short_answers(
    client: grpcclient.InferenceServerClient, do: str, expected: str
) -> None:
    assert said(client, "copies", do) == expected


def test_questions_are_answered_as_over_http(client: grpcclient.InferenceServerClient) -> None:
    for _ in range(2):
        ask(client, row(1, 2), model="copies", do="again")
    metadata = json.loads(said(client, "copies", "ask model_metadata"))
    config = json.loads(said(client, "copies", "ask model_config"))
    (stats,) = json.loads(said(client, "copies", "ask model_statistics"))["model_stats"]
    index = json.loads(said(client, "", "ask index"))

    assert metadata == {
        "name": "copies",
        "versions": ["1"],
        "platform": "copying",
        "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [-1, -1]}],
        "outputs": [{"name": "OUTPUT0", "datatype": "INT32", "shape": [-1, -1]}],
    }
    assert config["max_batch_size"] == 8
    assert stats["name"] == "copies"
    assert stats["inference_stats"]["success"]["count"] >= 2
    assert sorted(row["name"] for row in index) == sorted(MODELS)
    assert "statistics" in json.loads(said(client, "", "ask metadata"))["extensions"]


@pytest.mark.parametrize(
    ("do", "text"),
    [
        ("model_metadata", "Request for unknown model: 'nowhere' is not found"),
        ("model_config", "Request for unknown model: 'nowhere' is not found"),
        ("properties", "Request for unknown model: 'nowhere' is not found"),
        ("model_statistics", "requested model 'nowhere' is not available"),
        ("load", "explicit model load / unload is not allowed"),
        ("unload", "explicit model load / unload is not allowed"),
    ],
)
def test_what_cannot_be_answered_has_tritons_words(
    client: grpcclient.InferenceServerClient, do: str, text: str
) -> None:
    with pytest.raises(InferenceServerException, match=text):
        said(client, "nowhere", f"ask {do}")


MISTAKES = """\
cancel: Internal: It is not possible to cancel an inference request before calling TRITONSERVER_InferAsync.
is cancelled: Internal: It is not possible to query cancellation status before calling TRITONSERVER_InferAsync.
text: Invalid argument: given request's correlation id is not a string
number: success
long: Unsupported: string correlation ID cannot be longer than 128 characters
short: success
number of a text: Invalid argument: given request's correlation id is not an unsigned int
abc
0 0 8 3 an id
no input: Invalid argument: [request id: an id] input 'X' does not exist in request
no such: Invalid argument: [request id: an id] input 'X' does not exist in request
no data: Invalid argument: [request id: an id] input 'X' does not exist in request
raw: success
beside raw: success
one: success
twice: Invalid argument: [request id: an id] input 'X' already exists in request
raw beside: Invalid argument: [request id: an id] raw input 'RAW' can't be added to request with other inputs
removed: success
output: success
same output: success
other output: success
outputs: success
"""  # noqa: E501
CURIOUS = """\
copies 1 called
0 parameters
output: Invalid argument: out of bounds index 1: response has 1 outputs
label: success
none
OUTPUT0 2
mine: Invalid argument: out of bounds index 1: response has 1 outputs
named: success
other: Not found: Output name Xnot found.
1 started, 1 described
"""


def test_a_configuration_has_one_version(client: grpcclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="version 2 not supported, supported versions are: 1"):
        said(client, "copies", "ask config_2")


@pytest.mark.parametrize(("do", "expected"), [("mistakes", MISTAKES), ("curious", CURIOUS)])
def test_requests_and_responses_tell_what_they_are(
    client: grpcclient.InferenceServerClient, do: str, expected: str
) -> None:
    assert said(client, "copies", do) == expected


def test_a_raw_input_has_the_shape_of_the_models_input(client: grpcclient.InferenceServerClient) -> None:
    answer = ask(client, row(1, 2, 3), model="copies", do="raw")

    assert answer.as_numpy("OUTPUT0").tolist() == [[1, 2, 3]]


def test_a_call_is_cancelled(client: grpcclient.InferenceServerClient) -> None:
    lines = said(client, "waits", "cancel").splitlines()

    assert lines[0] == "0 1"
    assert lines[1] != "response: success"


def test_an_allocator_that_has_nothing_fails_its_call(client: grpcclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="the allocator has nothing"):
        ask(client, row(1), model="copies", do="no memory")


def test_all_buffers_come_back(client: grpcclient.InferenceServerClient) -> None:
    assert said(client, "", "buffers") == "0"


@pytest.fixture(scope="module", params=["process", "thread"])
def controlled(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[grpcclient.InferenceServerClient]:
    """One of our servers that loads models on request, and a client."""
    root = tmp_path_factory.mktemp(request.param)
    isolation = {"parameters": {"TRITONPY_ISOLATION": {"string_value": request.param}}}
    models = ModelRepository(root / "models")
    for name in ("calling", "copying"):
        (root / "backends" / name).mkdir(parents=True)
        library = compiled(f"backends/{name}.c", "-pthread")
        shutil.copy(library, root / "backends" / name / f"libtriton_{name}.so")
    for name, config in MODELS.items():
        models.model(name, config | isolation)
    options = local_options(
        models.path,
        model_control_mode="explicit",
        load_models=("calls", "waits"),
        backend_directory=str(root / "backends"),
    )
    with (
        Server(options) as server,
        grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
    ):
        yield client


def test_a_backend_loads_and_unloads_models(controlled: grpcclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="unknown model: 'copies'"):
        ask(controlled, row(1), model="copies")

    ask(controlled, row(1), model="copies", do="ask load")
    assert ask(controlled, row(1), model="copies").as_numpy("OUTPUT0").tolist() == [[1]]
    ask(controlled, row(1), model="copies", do="ask load_other")
    assert json.loads(said(controlled, "copies", "ask model_config"))["max_batch_size"] == 3
    ask(controlled, row(1), model="copies", do="ask unload")
    until(lambda: not controlled.is_model_ready("copies"), lambda: "the model is gone")

    with pytest.raises(InferenceServerException, match="'copies'"):
        ask(controlled, row(1), model="copies")


def test_a_call_that_would_wait_for_itself_is_refused(controlled: grpcclient.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="would wait for itself for ever"):
        ask(controlled, row(1), model="calls")


def test_a_request_in_flight_is_neither_changed_nor_deleted(
    controlled: grpcclient.InferenceServerClient,
) -> None:
    lines = said(controlled, "waits", "cancel and meddle").splitlines()

    has_it = "the server has the request, until its release callback is called"
    assert [line.partition(": ")[0] for line in lines] == ["delete", "change", "again", "0 1", "response"]
    assert all(line.endswith(has_it) for line in lines[:3])


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_a_stopping_server_answers_the_calls_under_way(
    compiled: Compiled, tmp_path: Path, isolation: str
) -> None:
    models = ModelRepository(tmp_path / "models")
    parameters = {"parameters": {"TRITONPY_ISOLATION": {"string_value": isolation}}}
    for name in ("calls", "waits"):
        models.model(name, MODELS[name] | parameters)
        library = f"libtriton_{MODELS[name]['backend']}.so"
        shutil.copy(
            compiled(f"backends/{MODELS[name]['backend']}.c", "-pthread"), models.path / name / library
        )
    with (
        ThreadPoolExecutor(1) as pool,
        Server(local_options(models.path)) as server,
        grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
    ):
        answer = pool.submit(ask, client, row(5), model="waits")
        page = f"http://127.0.0.1:{server.metrics_port}/metrics"
        pending = 'nv_inference_pending_request_count{model="waits",version="1"} 1'
        until(lambda: pending in urlopen(page).read().decode(), lambda: "the call waits")
        server.stop()
        assert answer.result().as_numpy("OUTPUT0").tolist() == [[5]]
