"""Batching strategies end to end: installed by name, as module:object, and as files beside the model."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import TritonError
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

HELD = """
from tritonpy.plugin import hookimpl

@hookimpl
def model_batcher_initialize(model):
    return None

@hookimpl
def model_batcher_finalize(batcher):
    pass

@hookimpl
def model_batch_initialize(batcher):
    return []

@hookimpl
def model_batch_finalize(batch):
    pass
"""

REFUSES_THREES = (
    HELD
    + """
@hookimpl
def model_batch_include_request(request, batch):
    if request.input("INPUT0").shape[1] == 3:
        raise ValueError("three is one too many")
    return True
"""
)

SLEEPS = (
    HELD
    + """
import time

@hookimpl
def model_batch_include_request(request, batch):
    time.sleep(0.005)
    return True
"""
)

FAILS_AT_INIT = (
    HELD.replace("return None", 'raise ValueError("no such budget")')
    + """
@hookimpl
def model_batch_include_request(request, batch):
    return True
"""
)


def identity(strategy: str = "", **parameters: str) -> dict[str, Any]:
    if strategy:
        parameters["TRITON_BATCH_STRATEGY_PATH"] = strategy
    return {
        "backend": "identity",
        "max_batch_size": 64,
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "dynamic_batching": {"max_queue_delay_microseconds": 2_000_000},
        "parameters": {key: {"string_value": value} for key, value in parameters.items()},
    }


def infer(port: int, model: str, columns: int) -> tuple[int, dict[str, Any]]:
    data = np.arange(columns, dtype=np.float32).tolist()
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, columns], "data": data}]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    if response.status == 200:
        assert document["outputs"][0]["data"] == data
    return response.status, document


def infer_in_order(server: Server, model: str, columns: list[int]) -> list[tuple[int, dict[str, Any]]]:
    """Send the requests so that they queue in this order, and wait for all of them."""
    answers: list[Any] = [None] * len(columns)
    loaded = server.runtime.registry.find(model)
    threads = []
    for index, count in enumerate(columns):

        def one(index: int = index, count: int = count) -> None:
            answers[index] = infer(server.http_port, model, count)

        thread = threading.Thread(target=one)
        thread.start()
        threads.append(thread)
        if index + 1 < len(columns):
            while loaded.stats.pending_count <= index:  # until it is queued
                thread.join(0.001)
    for thread in threads:
        thread.join()
    return answers


def batch_sizes(server: Server, model: str) -> dict[int, int]:
    stats = server.runtime.registry.find(model).stats
    return {size: batch.count for size, batch in stats.batch_stats.items()}


def scrape(server: Server) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path / "models")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([4] * 12, {6: 2}),
        ([4, 8, 12, 4, 4, 4, 20, 24], {3: 2, 1: 2}),
    ],
)
def test_volume_batching_bounds_the_bytes_of_a_batch(
    serve: Callable[..., Server],
    repository: ModelRepository,
    monkeypatch: pytest.MonkeyPatch,
    columns: list[int],
    expected: dict[int, int],
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", str(len(columns)))
    config = identity("volume", MAX_BATCH_VOLUME_BYTES="96")
    config["input"][0]["allow_ragged_batch"] = True  # only the strategy decides
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    repository.model("volumes", config)
    server = serve(repository.path)

    answers = infer_in_order(server, "volumes", columns)

    assert [status for status, _ in answers] == [200] * len(columns)
    assert batch_sizes(server, "volumes") == expected


def test_an_oversized_request_runs_alone(
    serve: Callable[..., Server], repository: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    config = identity("volume", MAX_BATCH_VOLUME_BYTES="96")
    config["input"][0]["allow_ragged_batch"] = True
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    repository.model("volumes", config)
    server = serve(repository.path)

    answers = infer_in_order(server, "volumes", [2, 1000, 2])

    assert [status for status, _ in answers] == [200, 200, 200]
    assert batch_sizes(server, "volumes") == {1: 3}


def test_single_batching_runs_every_request_alone(
    serve: Callable[..., Server], repository: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "4")
    repository.model("singles", identity("single"))
    server = serve(repository.path)

    infer_in_order(server, "singles", [2] * 4)

    assert batch_sizes(server, "singles") == {1: 4}


@pytest.mark.parametrize("place", ["version", "model", "absolute"])
def test_a_strategy_file_is_found_beside_the_model_or_where_the_parameter_says(
    serve: Callable[..., Server], repository: ModelRepository, tmp_path: Path, place: str
) -> None:
    source = {"batchstrategy.py": REFUSES_THREES}
    if place == "version":
        repository.model("m", identity(), source)
    elif place == "model":
        repository.model("m", identity(), model_files=source)
    else:
        (tmp_path / "mine.py").write_text(REFUSES_THREES)
        repository.model("m", identity(str(tmp_path / "mine.py")))
    server = serve(repository.path)

    status, document = infer(server.http_port, "m", 3)

    assert status == 500
    assert "three is one too many" in document["error"]


def test_a_strategy_that_raises_fails_only_that_request(
    serve: Callable[..., Server], repository: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "4")
    config = identity()
    config["input"][0]["allow_ragged_batch"] = True
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    repository.model("m", config, {"batchstrategy.py": REFUSES_THREES})
    server = serve(repository.path)

    answers = infer_in_order(server, "m", [2, 2, 3, 2])

    assert [status for status, _ in answers] == [200, 200, 500, 200]
    assert "ValueError: three is one too many" in answers[2][1]["error"]


def test_an_error_at_init_reaches_log_and_client_with_its_text(
    serve: Callable[..., Server], repository: ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    repository.model("m", identity(), {"batchstrategy.py": FAILS_AT_INIT})

    with caplog.at_level(logging.ERROR):
        server = serve(repository.path, exit_on_error=False)

    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request("POST", "/v2/repository/index")
    index = json.loads(connection.getresponse().read())
    connection.close()
    assert "no such budget" in caplog.text
    assert index[0]["state"] == "UNAVAILABLE"
    assert "no such budget" in index[0]["reason"]


def test_a_slow_strategy_is_named_in_log_and_metric(
    serve: Callable[..., Server], repository: ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    config = identity()
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    repository.model("m", config, {"batchstrategy.py": SLEEPS})
    server = serve(repository.path)

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            infer(server.http_port, "m", 2)

    warnings = [
        record.getMessage() for record in caplog.records if "batching strategy" in record.getMessage()
    ]
    assert len(warnings) == 1
    assert "batchstrategy.py" in warnings[0]
    path = repository.path / "m/1/batchstrategy.py"
    counted = f'tritonpy_slow_batching_scans_total{{model="m",strategy="{path}",version="1"}} 5'
    assert counted in scrape(server)


def test_a_strategy_outside_the_models_directory_is_refused_when_the_policy_is_strict(
    serve: Callable[..., Server], repository: ModelRepository, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(REFUSES_THREES)
    repository.model("m", identity(str(tmp_path / "mine.py")))

    with pytest.raises(TritonError):
        serve(repository.path, strategy_path_policy="strict")


@pytest.mark.parametrize("name", ["nosuch", "nosuch.module:thing", "nosuch.py", "./nosuch.so"])
def test_a_strategy_that_cannot_be_found_fails_the_load_and_is_named(
    serve: Callable[..., Server], repository: ModelRepository, name: str
) -> None:
    repository.model("m", identity(name))
    server = serve(repository.path, exit_on_error=False)

    index = server.runtime.registry.index()

    assert index[0]["state"] == "UNAVAILABLE"
    assert name.split(":")[0] in index[0]["reason"]


EXITS = (
    HELD
    + """
import sys

@hookimpl
def model_batch_include_request(request, batch):
    sys.exit("enough")
"""
)


def test_a_strategy_that_calls_sys_exit_fails_its_request_and_not_the_server(
    serve: Callable[..., Server], repository: ModelRepository
) -> None:
    config = identity()
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    repository.model("m", config, {"batchstrategy.py": EXITS})
    server = serve(repository.path)

    for _ in range(2):
        status, document = infer(server.http_port, "m", 2)

        assert status == 500
        assert "SystemExit: enough" in document["error"]


ADMITS = (
    HELD
    + """
from tritonpy.plugin import NotFound, Unavailable

@hookimpl
def model_batcher_admit_request(batcher, request):
    if request.input("INPUT0").shape[1] == 3:
        raise NotFound("no room for three")
    return request.byte_size

@hookimpl
def model_batch_include_request(request, batch):
    if request.batching_state == 4 * 5:
        raise Unavailable("five come later")
    return request.batching_state == 4 * request.input("INPUT0").shape[1]
"""
)


def test_what_a_strategy_notes_of_a_request_it_is_asked_with(
    serve: Callable[..., Server], repository: ModelRepository
) -> None:
    config = identity()
    config["dynamic_batching"]["max_queue_delay_microseconds"] = 0
    repository.model("m", config, {"batchstrategy.py": ADMITS})
    server = serve(repository.path)

    answers = [infer(server.http_port, "m", columns) for columns in (2, 3, 5, 4)]

    assert [status for status, _ in answers] == [200, 404, 503, 200]
    assert [document.get("error") for _, document in answers[1:3]] == ["no room for three", "five come later"]


CANNOT_BEGIN = (
    HELD.replace("return []", 'raise RuntimeError("no memory left")')
    + """
@hookimpl
def model_batch_include_request(request, batch):
    raise AssertionError("asked for a batch that has no state")
"""
)


def test_a_strategy_that_cannot_begin_a_batch_fails_requests_with_its_text(
    serve: Callable[..., Server], repository: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONSERVER_DELAY_SCHEDULER", "3")
    repository.model("m", identity(), {"batchstrategy.py": CANNOT_BEGIN})
    server = serve(repository.path)

    answers = infer_in_order(server, "m", [2, 2, 2])

    assert [status for status, _ in answers] == [500, 500, 500]
    assert all("RuntimeError: no memory left" in document["error"] for _, document in answers)


def test_a_strategy_that_an_ensemble_names_is_said_to_be_never_asked(
    serve: Callable[..., Server], repository: ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    step = identity()
    step["dynamic_batching"] = {}
    repository.model("step", step)
    ensemble = identity("/nosuch.so") | {"platform": "ensemble"}
    del ensemble["backend"], ensemble["dynamic_batching"]
    names = {"input_map": {"INPUT0": "INPUT0"}, "output_map": {"OUTPUT0": "OUTPUT0"}}
    ensemble["ensemble_scheduling"] = {"step": [{"model_name": "step", "model_version": -1, **names}]}
    repository.model("whole", ensemble)

    with caplog.at_level(logging.WARNING):
        server = serve(repository.path)

    assert infer(server.http_port, "whole", 2)[0] == 200
    assert caplog.messages == ["batching strategy '/nosuch.so' is never asked: model 'whole' is an ensemble"]


def test_the_log_and_explain_name_the_file_of_a_strategy(
    serve: Callable[..., Server], repository: ModelRepository, caplog: pytest.LogCaptureFixture
) -> None:
    repository.model("m", identity(), {"batchstrategy.py": REFUSES_THREES})

    with caplog.at_level(logging.INFO):
        server = serve(repository.path)

    path = repository.path / "m/1/batchstrategy.py"
    assert f"model 'm' version 1 has batching strategy '{path}'" in caplog.messages
    assert server.runtime.registry.find("m").strategy_name == str(path)


@pytest.mark.parametrize("name", ["json:loads", "/etc/passwd", "../other/batchstrategy.py", "1/../../x.so"])
def test_a_load_request_names_no_strategy_but_installed_ones_and_files_of_the_model(
    serve: Callable[..., Server], repository: ModelRepository, name: str
) -> None:
    repository.model("m", identity())
    server = serve(repository.path, model_control_mode="explicit")

    status, error = load(server, "m", identity(name))
    assert status >= 400
    assert "a load request" in error
    assert name in error

    assert load(server, "m", identity("single")) == (200, "")


def load(server: Server, model: str, config: dict[str, Any]) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    body = json.dumps({"parameters": {"config": json.dumps(config)}})
    connection.request("POST", f"/v2/repository/models/{model}/load", body)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text)["error"] if response.status != 200 else ""
