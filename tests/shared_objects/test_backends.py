"""Servers whose models are executed by a backend in C, ours and a real one, with the same file."""

from __future__ import annotations

import json
import queue
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import OURS_AND_REAL, local_options, serving
from .conftest import Compiled

INPUT = {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
OUTPUT = {"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
BATCHING = {"max_batch_size": 8, "input": [INPUT], "output": [OUTPUT]}
STRING = {"data_type": "TYPE_STRING"}
MODELS: dict[str, dict[str, Any]] = {
    "copies": {
        **BATCHING,
        "dynamic_batching": {"max_queue_delay_microseconds": 2000},
        "instance_group": [{"count": 2, "kind": "KIND_CPU"}],
    },
    "counts": {"input": [INPUT], "output": [OUTPUT], "model_transaction_policy": {"decoupled": True}},
    "texts": {"input": [{**INPUT, **STRING}], "output": [{**OUTPUT, **STRING}]},
    "empty": {},
    "named": {**BATCHING, "runtime": "libtriton_another.so"},
}
REFUSED = {
    "refused": {**BATCHING, "parameters": {"why": {"string_value": "refuse model"}}},
    "missing": {**BATCHING, "runtime": "libtriton_missing.so"},
}


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def ports(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, int]]:
    root = tmp_path_factory.mktemp(request.param)
    library = compiled("backends/copying.c", "-pthread")
    backends = root / "backends"
    (backends / "copying").mkdir(parents=True)
    shutil.copy(library, backends / "copying/libtriton_copying.so")
    models = ModelRepository(root / "models")
    for name, config in (MODELS | REFUSED).items():
        models.model(name, {"backend": "copying", **config})
    shutil.copy(library, models.path / "named/1/libtriton_another.so")
    flags = [f"--backend-directory={backends}", "--exit-on-error=false", "--strict-readiness=false"]
    with serving(
        request.param,
        request,
        models.path,
        *flags,
        backend_directory=str(backends),
        exit_on_error=False,
        strict_readiness=False,
    ) as found:
        yield found


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> Any:
    return {"http": httpclient, "grpc": grpcclient}[request.param]


@pytest.fixture
def client(ports: dict[str, int], protocol: Any) -> Iterator[Any]:
    port = ports["http" if protocol is httpclient else "grpc"]
    with protocol.InferenceServerClient(f"127.0.0.1:{port}") as made:
        yield made


def ask(protocol: Any, client: Any, model: str, array: Any, datatype: str = "INT32", do: str = "") -> Any:
    given = protocol.InferInput("INPUT0", list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return client.infer(model, [given], parameters={"do": do} if do else None)


def row(*numbers: int) -> np.ndarray:
    return np.array([numbers], np.int32)


@pytest.mark.parametrize("model", ["copies", "named"])
def test_requests_are_answered(protocol: Any, client: Any, model: str) -> None:
    for size in (1, 1000, 300_000):
        array = np.arange(size, dtype=np.int32).reshape(1, -1)
        assert ask(protocol, client, model, array).as_numpy("OUTPUT0").tolist() == array.tolist()


@pytest.mark.parametrize("ports", ["ours"], indirect=True)
def test_tensors_are_aligned_whatever_the_id_of_their_request(ports: dict[str, int]) -> None:
    given = grpcclient.InferInput("INPUT0", [1, 2], "INT32")
    given.set_data_from_numpy(row(7, 7))
    with grpcclient.InferenceServerClient(f"127.0.0.1:{ports['grpc']}") as client:
        places = [
            client.infer("named", [given], request_id="i" * size, parameters={"do": "place"})
            for size in range(16)
        ]

    assert [place.as_numpy("OUTPUT0")[0, 0] % 16 for place in places] == [0] * 16


def test_large_answers_that_are_kept_are_not_written_over(protocol: Any, client: Any) -> None:
    arrays = [np.full((1, 300_000), number, np.int32) for number in range(8)]
    answers = [ask(protocol, client, "copies", array).as_numpy("OUTPUT0") for array in arrays]

    for array, answer in zip(arrays, answers, strict=True):
        np.testing.assert_array_equal(answer, array)


def test_requests_of_many_clients_are_answered_each_with_its_own(ports: dict[str, int]) -> None:
    with (
        grpcclient.InferenceServerClient(f"127.0.0.1:{ports['grpc']}") as client,
        ThreadPoolExecutor(16) as pool,
    ):

        def one(number: int) -> int:
            do = "later" if number % 3 == 0 else ""
            answer = ask(grpcclient, client, "copies", row(number), do=do).as_numpy("OUTPUT0")
            return int(answer[0][0])

        assert list(pool.map(one, range(200))) == list(range(200))
    with httpclient.InferenceServerClient(f"127.0.0.1:{ports['http']}") as client:
        (stats,) = client.get_inference_statistics("copies")["model_stats"]
    assert stats["inference_count"] >= 200
    assert stats["execution_count"] < stats["inference_count"]


def test_an_error_has_its_code_and_text(protocol: Any, client: Any) -> None:
    with pytest.raises(InferenceServerException, match="the request was told to fail") as failed:
        ask(protocol, client, "copies", row(1), do="error")

    assert failed.value.status() in ("404", "StatusCode.NOT_FOUND")


def test_an_error_of_the_execution_fails_its_requests(protocol: Any, client: Any) -> None:
    with pytest.raises(InferenceServerException, match="the batch was told to fail"):
        ask(protocol, client, "copies", row(1), do="refuse")

    assert ask(protocol, client, "copies", row(2)).as_numpy("OUTPUT0").tolist() == [[2]]


def test_strings_pass(protocol: Any, client: Any) -> None:
    texts = np.array([b"", "é".encode(), b"a\0b"], object)

    assert ask(protocol, client, "texts", texts, "BYTES").as_numpy("OUTPUT0").tolist() == texts.tolist()


def test_the_backend_completes_a_configuration(protocol: Any, client: Any) -> None:
    array = np.array([4, 5], np.int32)

    assert ask(protocol, client, "empty", array).as_numpy("OUTPUT0").tolist() == [4, 5]


def test_response_parameters_reach_the_client(protocol: Any, client: Any) -> None:
    answer = ask(protocol, client, "copies", row(1), do="describe").get_response()
    if protocol is grpcclient:
        found = {
            key: getattr(value, value.WhichOneof("parameter_choice"))
            for key, value in answer.parameters.items()
        }
    else:
        found = answer["parameters"]

    assert found.pop("instance") in ("copies_0_0", "copies_0_1")
    assert {key: found[key] for key in ("whole", "truth", "part")} == {
        "whole": -(2**40),
        "truth": True,
        "part": 0.5,
    }


def test_a_decoupled_model_streams(ports: dict[str, int]) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    given = grpcclient.InferInput("INPUT0", [1], "INT32")
    given.set_data_from_numpy(np.array([50], np.int32))
    with grpcclient.InferenceServerClient(f"127.0.0.1:{ports['grpc']}") as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("counts", [given], enable_empty_final_response=True)
        numbers = []
        while True:
            result, error = answers.get(timeout=20)
            assert error is None
            if result.get_response().parameters["triton_final_response"].bool_param:
                break
            numbers.append(int(result.as_numpy("OUTPUT0")[0]))
        client.stop_stream()

    assert numbers == list(range(50))


def index(ports: dict[str, int]) -> dict[str, str]:
    asked = Request(f"http://127.0.0.1:{ports['http']}/v2/repository/index", method="POST")
    return {entry["name"]: entry.get("reason", "") for entry in json.load(urlopen(asked))}


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("refused", "the model was told to refuse"),
        ("missing", "unable to find backend library 'libtriton_missing.so' for model 'missing', searched: "),
    ],
)
def test_a_model_that_cannot_be_served_has_a_reason(ports: dict[str, int], model: str, reason: str) -> None:
    assert reason in index(ports)[model]
    with pytest.raises(HTTPError):
        urlopen(f"http://127.0.0.1:{ports['http']}/v2/models/{model}/ready")


def test_a_crash_costs_the_requests_of_its_instance_and_a_restart(compiled: Compiled, tmp_path: Path) -> None:
    models = ModelRepository(tmp_path / "models")
    models.model("copies", {"backend": "copying", **BATCHING})
    library = compiled("backends/copying.c", "-pthread")
    shutil.copy(library, models.path / "copies/libtriton_copying.so")
    with (
        Server(local_options(models.path)) as server,
        httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client,
    ):
        with pytest.raises(InferenceServerException, match="SIGABRT"):
            ask(httpclient, client, "copies", row(1), do="crash")
        until(lambda: client.is_model_ready("copies"), lambda: "the model is ready again")

        assert ask(httpclient, client, "copies", row(2)).as_numpy("OUTPUT0").tolist() == [[2]]


@pytest.mark.parametrize("wish", ["thread", "process"])
def test_a_model_may_be_executed_in_the_server_and_is_released_with_it(
    compiled: Compiled, tmp_path: Path, wish: str
) -> None:
    models = ModelRepository(tmp_path / "models")
    isolation = {"TRITONPY_ISOLATION": {"string_value": wish}}
    models.model("copies", {"backend": "copying", **BATCHING, "parameters": isolation})
    library = compiled("backends/copying.c", "-pthread")
    shutil.copy(library, models.path / "copies/1/libtriton_copying.so")
    options = local_options(models.path, model_control_mode="explicit", load_models=("copies",))
    with (
        Server(options) as server,
        grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
    ):
        for _ in range(2):
            answer = ask(grpcclient, client, "copies", row(1, 2), do="later")
            assert answer.as_numpy("OUTPUT0").tolist() == [[1, 2]]
            client.load_model("copies")
        client.unload_model("copies")
        until(lambda: not client.is_model_ready("copies"), lambda: "the model is gone")
