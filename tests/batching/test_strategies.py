"""Batching strategies end to end: installed by name, as module:object, and as files beside the model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tritonpy.errors import TritonError
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from .strategies import HELD, REFUSES_THREES, batch_sizes, identity, infer, infer_in_order, load


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
    said = [line for line in caplog.messages if "batching strategy" in line]
    assert said == ["batching strategy '/nosuch.so' is never asked: model 'whole' is an ensemble"]


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
