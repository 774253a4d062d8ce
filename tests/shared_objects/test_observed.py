"""A strategy sees the same of models and requests here and in a real tritonserver, to the words of errors."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import shared_memory
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from .conftest import Compiled

ServerFactory = Callable[..., Server]
Lines = list[dict[str, Any]]

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answer = pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros((1, 1), np.float32))])
        return [answer for _ in requests]
"""

# Asks the model `plain` itself.
CALLER = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            given = pb_utils.Tensor("X", np.array([[5, 6]], np.float32))
            call = pb_utils.InferenceRequest(
                model_name="plain", inputs=[given], requested_output_names=["Y"], request_id="of a model",
                correlation_id=9, parameters={"number": 3}, timeout=5_000_000,
            )
            answer = call.exec()
            if answer.has_error():
                raise pb_utils.TritonModelException(answer.error().message())
        return [pb_utils.InferenceResponse(answer.output_tensors()) for _ in requests]
"""

REGION_BYTES = 64

PLAIN: dict[str, Any] = {
    "input": [
        {"name": "X", "data_type": "TYPE_FP32", "dims": [-1]},
        {"name": "S", "data_type": "TYPE_STRING", "dims": [-1], "optional": True},
        {"name": "A", "data_type": "TYPE_INT64", "dims": [2], "optional": True},
    ],
    "output": [
        {"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]},
        {"name": "B", "data_type": "TYPE_FP32", "dims": [-1]},
    ],
    "dynamic_batching": {"max_queue_delay_microseconds": 1, "default_queue_policy": {"max_queue_size": 9}},
    "version_policy": {"latest": {"num_versions": 2}},
}
RESHAPED: dict[str, Any] = {
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [2, 2], "reshape": {"shape": [4]}}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}],
    "dynamic_batching": {},
}
WHOLE: dict[str, Any] = {
    "platform": "ensemble",
    "max_batch_size": 8,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
    "ensemble_scheduling": {
        "step": [
            {
                "model_name": "plain",
                "model_version": -1,
                "input_map": {"X": "IN"},
                "output_map": {"Y": "OUT"},
            }
        ]
    },
}
X = {"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
TEXT = {"name": "S", "datatype": "BYTES", "shape": [1, 2], "data": ["a", "gr\u00fc\u00df\0e"]}
NUMBERS = {"name": "A", "datatype": "INT64", "shape": [1, 2], "data": [-1, 5]}

REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("plain", {"inputs": [X]}),
    ("plain", {"id": "first", "inputs": [X], "outputs": [{"name": "Y"}]}),
    ("plain", {"inputs": [X], "outputs": [{"name": "Y"}, {"name": "B"}]}),
    (
        "plain",
        {"inputs": [X], "parameters": {"text": "t", "number": -4, "flag": True, "half": 0.5, "big": 2**40}},
    ),
    ("plain", {"inputs": [X], "parameters": {"timeout": 5_000_000, "priority": 0, "kept": 1}}),
    ("plain", {"id": "number", "inputs": [X], "parameters": {"sequence_id": 7, "sequence_start": True}}),
    ("plain", {"id": "text", "inputs": [X], "parameters": {"sequence_id": "abc", "sequence_end": True}}),
    ("plain", {"inputs": [X, TEXT, NUMBERS]}),
    ("plain", {"inputs": [{"name": "X", "datatype": "FP32", "shape": [2, 0], "data": []}]}),
    ("caller", {"inputs": [X]}),
    ("whole", {"id": "of a step", "inputs": [X | {"name": "IN"}], "parameters": {"text": "t"}}),
    ("reshaped", {"inputs": [{"name": "X", "datatype": "FP32", "shape": [2, 2, 2], "data": [*range(8)]}]}),
]


def make_repository(root: Path, strategy: Path) -> Path:
    repository = ModelRepository(root / "models")
    for name, config in (("plain", PLAIN), ("reshaped", RESHAPED)):
        parameters = {
            "TRITON_BATCH_STRATEGY_PATH": str(strategy),
            "OBSERVER_FILE": str(root / f"{name}.seen"),
        }
        others = {
            "max_batch_size": 8,
            "instance_group": [{"kind": "KIND_CPU", "count": 1}],
            "parameters": {key: {"string_value": value} for key, value in parameters.items()},
        }
        repository.python(name, MODEL, config | others)
    repository.python("caller", CALLER, RESHAPED | {"input": PLAIN["input"][:1], "max_batch_size": 8})
    repository.model("whole", WHOLE)
    return repository.path


def ask(ports: Mapping[str, int]) -> None:
    """Send all requests, one after the other: JSON, then binary over gRPC, then in shared memory."""
    for model, body in REQUESTS:
        url = f"http://127.0.0.1:{ports['http']}/v2/models/{model}/infer"
        with urllib.request.urlopen(
            urllib.request.Request(url, json.dumps(body).encode()), timeout=30
        ) as answer:
            answer.read()
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{ports['grpc']}") as client:
        given = tritonclient.grpc.InferInput("X", [1, 2], "FP32")
        given.set_data_from_numpy(np.ones((1, 2), np.float32))
        client.infer("plain", [given], request_id="grpc", parameters={"text": "t"}, timeout=7_000_000)
        key = f"/tritonpy_observed_{ports['grpc']}"
        region = shared_memory.create_shared_memory_region("seen", key, REGION_BYTES)
        try:
            shared_memory.set_shared_memory_region(region, [np.arange(4, dtype=np.float32)])
            client.register_system_shared_memory("seen", key, REGION_BYTES)
            given = tritonclient.grpc.InferInput("X", [1, 2], "FP32")
            given.set_shared_memory("seen", 8, 4)
            client.infer("plain", [given], request_id="region")
            client.unregister_system_shared_memory("seen")
        finally:
            shared_memory.destroy_shared_memory_region(region)


def seen(root: Path) -> dict[str, Lines]:
    """What the strategy of each model wrote down, without what is another place on each server."""
    told = {
        name: [json.loads(line) for line in (root / f"{name}.seen").read_text().splitlines()]
        for name in ("plain", "reshaped")
    }
    for name, lines in told.items():
        model, config, _, backend = lines[:4]
        assert model.pop("location") == str(root / "models" / name)
        assert isinstance(backend.pop("location"), str)
        assert isinstance(backend["json"]["cmdline"].pop("backend-directory"), str)
        assert config["json"]["parameters"].pop("OBSERVER_FILE")["string_value"] == str(root / f"{name}.seen")
    return told


@pytest.fixture
def ours(serve: ServerFactory, compiled: Compiled, tmp_path: Path) -> dict[str, Lines]:
    """What is seen here."""
    root = tmp_path / "ours"
    server = serve(make_repository(root, compiled("strategies/observer.c")), allow_client_shm=True)
    assert server.http_port is not None
    ask({"http": server.http_port, "grpc": server.grpc_port})
    return seen(root)


@pytest.fixture
def theirs(
    real_triton: Callable[..., dict[str, int]], compiled: Compiled, tmp_path: Path
) -> dict[str, Lines]:
    """What is seen there."""
    root = tmp_path / "theirs"
    ports = real_triton(make_repository(root, compiled("strategies/observer.c")))
    ask(ports)
    return seen(root)


def test_a_strategy_sees_shapes_bytes_and_texts_of_requests(ours: dict[str, Lines]) -> None:
    inputs = [line for line in ours["plain"] if line["what"] == "input"]

    assert [line["shape"] for line in ours["reshaped"] if line["what"] == "input"] == [[2, 4]]
    assert ours["plain"][-2]["bytes"] == np.array([1, 2], np.float32).tobytes().decode("latin-1")
    assert [line["byte_size"] for line in inputs] == [8] * 8 + [17, 16, 0, 8, 8, 8, 8]


@pytest.mark.parity
def test_a_real_server_shows_its_strategy_the_same(ours: dict[str, Lines], theirs: dict[str, Lines]) -> None:
    for model in ("plain", "reshaped"):
        for number, (here, there) in enumerate(zip(ours[model], theirs[model], strict=True)):
            assert here == there, f"line {number} of {model}"
