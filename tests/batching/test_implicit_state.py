"""Implicit state through real sequences: ONNX and Python models, threads and processes, both protocols."""

from __future__ import annotations

import json
import queue
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from onnx import parser
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import DEADLINE_S

from ..servers import local_options

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
# The sum of what a sequence has sent. READY is 0 for null requests, whose sums nobody gets.
ONNX = """net (int64[N,1] X, int32[N,1] READY, int64[N,1] IN) => (int64[N,1] Y, int64[N,1] OUT) {
    R = Cast<to = 7>(READY)
    A = Mul(X, R)
    OUT = Add(IN, A)
    Y = Identity(OUT)
}"""
PYTHON = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        value = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        state = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        if value.item() < 0:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("negative"))
        total = state + value
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", total), pb_utils.Tensor("OUT", total)])
"""
# A list that grows by what is sent, and its length.
LIST = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            more = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            state = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            state = np.concatenate([state, more], axis=1)
            total = np.array([[state.sum()]])
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("Y", total), pb_utils.Tensor("OUT", state)])
            )
        return responses
"""
# Answers, in two parts, long after `execute` has returned.
LATE = """
import threading
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            state = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            threading.Timer(0.05, self.answer, (request.get_response_sender(), state + value)).start()

    def answer(self, sender, total):
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", total), pb_utils.Tensor("OUT", total)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
READY = {"name": "READY", "control": [{"kind": "CONTROL_SEQUENCE_READY", "int32_false_true": [0, 1]}]}
STATE = {"input_name": "IN", "output_name": "OUT", "data_type": "TYPE_INT64", "dims": [1]}
STRATEGIES: dict[str, dict[str, Any]] = {
    "direct": {"direct": {}},
    "oldest": {"oldest": {"max_candidate_sequences": 8}},
}


def tensor(name: str, *dims: int) -> dict[str, Any]:
    return {"name": name, "data_type": "TYPE_INT64", "dims": list(dims)}


def config(
    strategy: str, *, isolation: str = "", state: dict[str, Any] = STATE, **more: Any
) -> dict[str, Any]:
    parameters = {"TRITONPY_ISOLATION": {"string_value": isolation}} if isolation else {}
    return {
        "max_batch_size": 4,
        "input": [tensor("X", 1)],
        "output": [tensor("Y", 1)],
        "instance_group": [{"kind": "KIND_CPU", "count": 2}],
        "sequence_batching": {
            "state": [state],
            "max_sequence_idle_microseconds": 30_000_000,  # no client is so late with its next request
            **STRATEGIES[strategy],
        },
        "parameters": parameters,
        **more,
    }


def onnx_config(strategy: str, isolation: str = "") -> dict[str, Any]:
    made = config(strategy, isolation=isolation)
    made["sequence_batching"]["control_input"] = [READY]
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = ModelRepository(tmp_path_factory.mktemp("repository"))
    model = parser.parse_model(HEADER + ONNX).SerializeToString()
    for strategy in STRATEGIES:
        repository.onnx(f"onnx_{strategy}", model, onnx_config(strategy))
        repository.python(f"python_{strategy}", PYTHON, config(strategy, backend="python"))
        late = config(strategy, backend="python", model_transaction_policy={"decoupled": True})
        repository.python(f"late_{strategy}", LATE, late)
    repository.onnx("onnx_worker", model, onnx_config("oldest", "process"))
    repository.python("python_thread", PYTHON, config("oldest", isolation="thread", backend="python"))
    shown = config("direct", backend="python", output=[tensor("Y", 1), tensor("OUT", 1)])
    repository.python("shown", PYTHON, shown)
    start = {"name": "start", "data_type": "TYPE_INT64", "dims": [1], "data_file": "hundred"}
    repository.python(
        "hundred", PYTHON, config("direct", backend="python", state={**STATE, "initial_state": [start]})
    )
    (repository.path / "hundred" / "initial_state").mkdir()
    (repository.path / "hundred" / "initial_state" / "hundred").write_bytes(np.int64(100).tobytes())
    empty = {"name": "empty", "data_type": "TYPE_INT64", "dims": [0], "zero_data": True}
    growing = config("oldest", backend="python", state={**STATE, "dims": [-1], "initial_state": [empty]})
    repository.python("growing", LIST, {**growing, "input": [tensor("X", -1)]})
    options = local_options(repository.path)
    with Server(options) as started:
        yield started


def call(server: Server, path: str, body: object = None) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{server.http_port}{path}"
    data = json.dumps(body).encode() if body is not None else None
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=DEADLINE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as exc:
        return exc.code, json.load(exc)


Infer = Callable[..., int]
"""Sends one request of a sequence and returns Y."""


def over_http(server: Server) -> Infer:
    def send(model: str, sequence: int, *values: int, start: bool = False, end: bool = False) -> int:
        given = {"name": "X", "datatype": "INT64", "shape": [1, len(values)], "data": values}
        flags = {"sequence_id": sequence, "sequence_start": start, "sequence_end": end}
        status, answer = call(server, f"/v2/models/{model}/infer", {"inputs": [given], "parameters": flags})
        if status != 200:
            raise RuntimeError(answer["error"])
        return int(answer["outputs"][0]["data"][0])

    return send


def over_grpc(client: tritonclient.grpc.InferenceServerClient) -> Infer:
    def send(model: str, sequence: int, *values: int, start: bool = False, end: bool = False) -> int:
        data = np.array([values], np.int64)
        given = tritonclient.grpc.InferInput("X", data.shape, "INT64")
        given.set_data_from_numpy(data)
        result = client.infer(model, [given], sequence_id=sequence, sequence_start=start, sequence_end=end)
        return int(result.as_numpy("Y").item())

    return send


@pytest.fixture(scope="module", params=["http", "grpc"])
def infer(request: pytest.FixtureRequest, server: Server) -> Iterator[Infer]:
    if request.param == "http":
        yield over_http(server)
    else:
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            yield over_grpc(client)


def sums(infer: Infer, model: str, sequence: int, values: list[int]) -> list[int]:
    """What a sequence of requests answers."""
    last = len(values) - 1
    return [
        infer(model, sequence, value, start=index == 0, end=index == last)
        for index, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    "model",
    ["onnx_direct", "onnx_oldest", "onnx_worker", "python_direct", "python_oldest", "python_thread"],
)
def test_interleaved_sequences_have_a_state_each(model: str, infer: Infer) -> None:
    random = np.random.default_rng(0)
    sequences = {number: random.integers(1, 100, random.integers(1, 9)).tolist() for number in range(1, 25)}

    with ThreadPoolExecutor(12) as pool:
        answers = dict(
            zip(
                sequences,
                pool.map(lambda number: sums(infer, model, number, sequences[number]), sequences),
                strict=True,
            )
        )

    assert answers == {number: np.cumsum(values).tolist() for number, values in sequences.items()}


@pytest.mark.stress
@pytest.mark.timeout(180)
@pytest.mark.parametrize("model", ["onnx_direct", "onnx_oldest", "onnx_worker"])
def test_two_thousand_sequences_have_a_state_each(model: str, server: Server) -> None:
    random = np.random.default_rng(1)
    sequences = [random.integers(1, 100, random.integers(1, 9)).tolist() for _ in range(2000)]

    with (
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
        ThreadPoolExecutor(32) as pool,
    ):
        infer = over_grpc(client)
        answers = list(
            pool.map(lambda number: sums(infer, model, number + 1, sequences[number]), range(len(sequences)))
        )

    assert answers == [np.cumsum(values).tolist() for values in sequences]


def test_a_failed_request_leaves_the_state_as_it_was(infer: Infer) -> None:
    infer("python_direct", 1, 5, start=True)

    with pytest.raises(Exception, match="negative"):
        infer("python_direct", 1, -1)

    assert infer("python_direct", 1, 6, end=True) == 11


def test_a_start_in_the_midst_begins_anew(infer: Infer) -> None:
    infer("onnx_oldest", 1, 5, start=True)

    assert infer("onnx_oldest", 1, 6, start=True, end=True) == 6


def test_a_sequence_begins_with_the_file_of_its_initial_state(infer: Infer) -> None:
    assert sums(infer, "hundred", 1, [1, 2]) == [101, 103]


def test_a_state_grows_from_nothing_to_more_than_a_frame_takes(infer: Infer) -> None:
    infer("growing", 1, *range(10_000), start=True)
    infer("growing", 2, 7, start=True)

    assert infer("growing", 1, *range(10_000), end=True) == 2 * sum(range(10_000))
    assert infer("growing", 2, 8, end=True) == 15


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_request_waits_for_the_state_of_one_that_is_answered_late(server: Server, strategy: str) -> None:
    sums: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        client.start_stream(lambda result, error: sums.put(error or int(result.as_numpy("Y").item())))
        for value, flags in ((1, {"sequence_start": True}), (10, {}), (100, {"sequence_end": True})):
            given = tritonclient.grpc.InferInput("X", [1, 1], "INT64")
            given.set_data_from_numpy(np.array([[value]], np.int64))
            client.async_stream_infer(f"late_{strategy}", [given], sequence_id=5, **flags)
        answers = [sums.get(timeout=DEADLINE_S) for _ in range(3)]
        client.stop_stream()

    assert answers == [1, 11, 111]


def sequence_request(*names: str, outputs: list[str] | None = None) -> dict[str, Any]:
    inputs = [{"name": name, "datatype": "INT64", "shape": [1, 1], "data": [3]} for name in names]
    body: dict[str, Any] = {
        "inputs": inputs,
        "parameters": {"sequence_id": 77, "sequence_start": True, "sequence_end": True},
    }
    return body if outputs is None else {**body, "outputs": [{"name": name} for name in outputs]}


def test_states_are_no_business_of_clients(server: Server) -> None:
    _, metadata = call(server, "/v2/models/python_direct")
    _, answer = call(server, "/v2/models/python_direct/infer", sequence_request("X"))
    sent = call(server, "/v2/models/python_direct/infer", sequence_request("X", "IN"))
    asked = call(server, "/v2/models/python_direct/infer", sequence_request("X", outputs=["OUT"]))

    assert [given["name"] for given in metadata["inputs"] + metadata["outputs"]] == ["X", "Y"]
    assert [output["name"] for output in answer["outputs"]] == ["Y"]
    assert sent[0] == 400
    assert "expected 1 inputs but got 2 inputs" in sent[1]["error"]
    assert asked == (400, {"error": "unexpected inference output 'OUT' for model 'python_direct'"})


@pytest.mark.parametrize("model", ["onnx_oldest", "onnx_worker", "python_direct", "python_thread"])
def test_a_state_is_kept_also_where_a_client_names_the_outputs(model: str, server: Server) -> None:
    totals = []
    for start in (True, False):
        body = sequence_request("X", outputs=["Y"])
        body["parameters"] |= {"sequence_start": start, "sequence_end": not start}
        _, answer = call(server, f"/v2/models/{model}/infer", body)
        totals.append([(output["name"], output["data"]) for output in answer["outputs"]])

    assert totals == [[("Y", [3])], [("Y", [6])]]


def test_a_state_that_is_also_an_output_can_be_seen(server: Server) -> None:
    _, all_outputs = call(server, "/v2/models/shown/infer", sequence_request("X"))
    _, one = call(server, "/v2/models/shown/infer", sequence_request("X", outputs=["Y"]))
    _, other = call(server, "/v2/models/shown/infer", sequence_request("X", outputs=["OUT"]))

    assert {output["name"]: output["data"] for output in all_outputs["outputs"]} == {"Y": [3], "OUT": [3]}
    assert [output["name"] for output in one["outputs"]] == ["Y"]
    assert [output["name"] for output in other["outputs"]] == ["OUT"]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (
            {"initial_state": [{"name": "a", "data_type": "TYPE_INT64", "dims": [1], "data_file": "short"}]},
            "initial_state setting expects 8 bytes, but the data provided from short only has 3 bytes.",
        ),
        (
            {"initial_state": [{"name": "a", "data_type": "TYPE_INT64", "dims": [1], "data_file": "none"}]},
            "failed to open text file for read",
        ),
        ({"use_growable_memory": True}, "you must also enable 'use_single_buffer'"),
        ({"data_type": "TYPE_INVALID"}, "must specify 'data_type'"),
    ],
)
def test_a_state_that_cannot_be_keeps_its_model_from_loading(
    state: dict[str, Any], reason: str, tmp_path: Path, serve: Callable[..., Server]
) -> None:
    repository = ModelRepository(tmp_path)
    repository.python("m", PYTHON, config("direct", backend="python", state={**STATE, **state}))
    (tmp_path / "m" / "initial_state").mkdir()
    (tmp_path / "m" / "initial_state" / "short").write_bytes(b"abc")

    server = serve(tmp_path, exit_on_error=False)
    _, index = call(server, "/v2/repository/index", {})

    assert [entry["state"] for entry in index] == ["UNAVAILABLE"]
    assert reason in index[0]["reason"]
