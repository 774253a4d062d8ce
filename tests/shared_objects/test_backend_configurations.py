"""Configurations of models of backends in C: ragged batches, reshapes, warmups, versions, reloads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonpy_sdk.repository import ModelRepository

from ..servers import OURS_AND_REAL, serving
from .conftest import Compiled

INPUT = {"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
OUTPUT = {"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}
PAIRS = {"preferred_batch_size": [2], "max_queue_delay_microseconds": 60_000_000}
BATCHED = {"max_batch_size": 2, "input": [INPUT], "output": [OUTPUT]}


def sample(name: str, batch_size: int, **data: Any) -> dict[str, Any]:
    given = {"data_type": "TYPE_INT32", "dims": [3], **data}
    return {"name": name, "batch_size": batch_size, "count": 2, "inputs": {"INPUT0": given}}


MODELS: dict[str, dict[str, Any]] = {
    "ragged": {**BATCHED, "input": [{**INPUT, "allow_ragged_batch": True}], "dynamic_batching": PAIRS},
    "even": {**BATCHED, "dynamic_batching": {}},
    "reshaped": {
        "max_batch_size": 2,
        "input": [{**INPUT, "dims": [1], "reshape": {"shape": []}}],
        "output": [{**OUTPUT, "dims": [1], "reshape": {"shape": []}}],
    },
    "strings": {
        "max_batch_size": 2,
        "input": [{**INPUT, "data_type": "TYPE_STRING"}],
        "output": [{**OUTPUT, "data_type": "TYPE_STRING"}],
    },
    "warm": {
        **BATCHED,
        "model_warmup": [
            sample("zeros", 1, zero_data=True),
            sample("random", 2, random_data=True),
            sample("file", 1, input_data_file="numbers"),
        ],
    },
    "versions": {**BATCHED, "version_policy": {"specific": {"versions": [1, 3]}}},
    "reloaded": BATCHED,
}
ISOLATIONS = ("process", "thread")


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def served(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, int], ModelRepository]]:
    root = tmp_path_factory.mktemp(request.param)
    (root / "backends/copying").mkdir(parents=True)
    shutil.copy(compiled("backends/copying.c", "-pthread"), root / "backends/copying/libtriton_copying.so")
    models = ModelRepository(root / "models")
    for name, config in MODELS.items():
        for isolation in ISOLATIONS:
            add(models, f"{name}_{isolation}", config, isolation)
    for isolation in ISOLATIONS:
        for version in ("2", "3"):
            (models.path / f"versions_{isolation}" / version).mkdir()
        (models.path / f"warm_{isolation}/warmup").mkdir()
        np.arange(3, dtype=np.int32).tofile(models.path / f"warm_{isolation}/warmup/numbers")
    with serving(
        request.param,
        request,
        models.path,
        f"--backend-directory={root / 'backends'}",
        "--model-control-mode=explicit",
        "--load-model=*",
        backend_directory=str(root / "backends"),
        model_control_mode="explicit",
        load_models=("*",),
    ) as ports:
        yield ports, models


def add(models: ModelRepository, name: str, config: dict[str, Any], isolation: str) -> None:
    parameters = {"TRITONPY_ISOLATION": {"string_value": isolation}}
    models.model(name, {"backend": "copying", **config, "parameters": parameters})


@pytest.fixture
def client(served: tuple[dict[str, int], ModelRepository]) -> Iterator[httpclient.InferenceServerClient]:
    with httpclient.InferenceServerClient(f"127.0.0.1:{served[0]['http']}", concurrency=4) as made:
        yield made


def tensor(array: np.ndarray, datatype: str = "INT32") -> httpclient.InferInput:
    given = httpclient.InferInput("INPUT0", list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return given


def execution_count(client: httpclient.InferenceServerClient, model: str) -> int:
    (stats,) = client.get_inference_statistics(model)["model_stats"]
    return int(stats["execution_count"])


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(("model", "executions"), [("ragged", 1), ("even", 2)])
def test_requests_of_different_shapes_share_a_batch_where_they_may(
    client: httpclient.InferenceServerClient, model: str, executions: int, isolation: str
) -> None:
    before = execution_count(client, f"{model}_{isolation}")
    given = [np.array([[1, 2]], np.int32), np.array([[3, 4, 5]], np.int32)]
    pending = [client.async_infer(f"{model}_{isolation}", [tensor(array)]) for array in given]
    answers = [each.get_result().as_numpy("OUTPUT0").tolist() for each in pending]

    assert answers == [array.tolist() for array in given]
    assert execution_count(client, f"{model}_{isolation}") - before == executions


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_backend_sees_the_shape_that_is_configured_for_it(
    client: httpclient.InferenceServerClient, isolation: str
) -> None:
    array = np.array([[7], [8]], np.int32)

    assert client.infer(f"reshaped_{isolation}", [tensor(array)]).as_numpy("OUTPUT0").tolist() == [[7], [8]]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_batches_of_strings_pass(client: httpclient.InferenceServerClient, isolation: str) -> None:
    array = np.array([[b"", b"a\0"], ["é".encode(), b"x" * 10_000]], object)

    answer = client.infer(f"strings_{isolation}", [tensor(array, "BYTES")]).as_numpy("OUTPUT0")

    assert answer is not None
    assert answer.tolist() == array.tolist()


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_model_is_warmed_up_before_it_serves(
    client: httpclient.InferenceServerClient, isolation: str
) -> None:
    array = np.array([[1, 2, 3]], np.int32)

    assert client.infer(f"warm_{isolation}", [tensor(array)]).as_numpy("OUTPUT0").tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_versions_are_served_side_by_side(client: httpclient.InferenceServerClient, isolation: str) -> None:
    name, given = f"versions_{isolation}", [tensor(np.array([[1]], np.int32))]
    answers = [client.infer(name, given, version).get_response() for version in ("1", "3", "")]

    assert [answer["model_version"] for answer in answers] == ["1", "3", "3"]
    assert not client.is_model_ready(name, "2")


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_model_is_reloaded_with_other_instances_and_settings(
    served: tuple[dict[str, int], ModelRepository], client: httpclient.InferenceServerClient, isolation: str
) -> None:
    name = f"reloaded_{isolation}"
    given = [tensor(np.array([[1, 2]], np.int32))]
    for changed in ({"instance_group": [{"count": 2, "kind": "KIND_CPU"}]}, {"max_batch_size": 5}):
        path: Path = served[1].path / name
        shutil.rmtree(path)
        add(served[1], name, {**BATCHED, **changed}, isolation)
        client.load_model(name)
        config = client.get_model_config(name)
        seen = {key: config[key] for key in changed}
        if "instance_group" in seen:
            seen["instance_group"] = [{key: seen["instance_group"][0][key] for key in ("count", "kind")}]

        assert json.dumps(seen) == json.dumps(changed)
        assert client.infer(name, given).as_numpy("OUTPUT0").tolist() == [[1, 2]]
