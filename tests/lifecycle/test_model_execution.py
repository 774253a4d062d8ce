"""A backend that chooses threads or a worker process for each of its models."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.plugin import InferResponse, InvalidArg, hookimpl
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..repository_client import RepositoryClient
from ..servers import local_options

BACKEND = """
import os
import numpy as np
from tritonpy.plugin import InferResponse, hookimpl

@hookimpl
def model_execution(model):
    wanted = model.directory / str(model.version) / "execution"
    return wanted.read_text() if wanted.exists() else None

@hookimpl
def model_instance_execute(instance, requests):
    return [InferResponse().add("PID", np.array([os.getpid()], np.int64)) for _ in requests]
"""

CONFIG = {
    "backend": "choosing",
    "input": [{"name": "IN", "data_type": "TYPE_INT64", "dims": [1]}],
    "output": [{"name": "PID", "data_type": "TYPE_INT64", "dims": [1]}],
}


def isolated(value: str) -> dict[str, Any]:
    return {**CONFIG, "parameters": {"TRITONPY_ISOLATION": {"string_value": value}}}


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelRepository:
    """Models of an installed backend that finds its choice in a file; without one it says nothing."""
    installed = tmp_path / "site"
    info = installed / "acme_choosing-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-choosing\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tritonpy.backends]\nchoosing = acme_choosing\n")
    (installed / "acme_choosing.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    return ModelRepository(tmp_path / "models")


def add(repository: ModelRepository, name: str, wanted: str, config: dict[str, Any] = CONFIG) -> None:
    version = repository.model(name, config) / "1"
    version.mkdir(exist_ok=True)
    (version / "execution").write_text(wanted)


def executes_here(client: RepositoryClient, model: str) -> bool:
    body = {"inputs": [{"name": "IN", "datatype": "INT64", "shape": [1], "data": [0]}]}
    status, document = client.ask(f"/v2/models/{model}/infer", body)
    assert status == 200, document
    return bool(document["outputs"][0]["data"] == [os.getpid()])


def test_each_model_runs_as_its_backend_chooses_unless_its_configuration_says_otherwise(
    serve: Callable[..., Server], chosen: ModelRepository
) -> None:
    add(chosen, "on_a_thread", "thread")
    add(chosen, "in_a_process", "process")
    chosen.model("unsaid", CONFIG)
    add(chosen, "thread_after_all", "process", isolated("thread"))
    add(chosen, "process_after_all", "thread", isolated("process"))

    client = RepositoryClient(serve(chosen.path).http_port)

    assert executes_here(client, "on_a_thread")
    assert not executes_here(client, "in_a_process")
    assert executes_here(client, "unsaid")  # as `backend_attributes` says, which is not there
    assert executes_here(client, "thread_after_all")
    assert not executes_here(client, "process_after_all")


def test_choice_is_made_anew_with_every_load(serve: Callable[..., Server], chosen: ModelRepository) -> None:
    add(chosen, "m", "thread")
    server = serve(chosen.path, model_control_mode="explicit", load_models=("m",))
    client = RepositoryClient(server.http_port)
    assert executes_here(client, "m")

    add(chosen, "m", "process")
    assert client.load("m")[0] == 200

    assert not executes_here(client, "m")


class Undecided:
    """A backend whose choice is an object, or an exception."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.is_asked = False

    @hookimpl
    def model_execution(self, model: Any) -> object:
        self.is_asked = True
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @hookimpl
    def model_instance_execute(self, instance: Any, requests: Any) -> list[InferResponse]:
        return [InferResponse() for _ in requests]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            "fibre",
            "model_execution of backend 'undecided' returned 'fibre' for model 'm'; "
            "expected 'thread', 'process' or None",
        ),
        (True, "returned True for model 'm'; expected 'thread', 'process' or None"),
        (
            KeyError("kind"),
            "backend 'undecided' failed to say how model 'm' is executed: KeyError: 'kind'",
        ),
        (InvalidArg("this model runs nowhere"), "this model runs nowhere"),
    ],
)
def test_choice_that_is_none_fails_the_load_and_says_why(tmp_path: Path, answer: object, words: str) -> None:
    ModelRepository(tmp_path).model("m", {**CONFIG, "backend": "undecided"})
    options = local_options(tmp_path, model_control_mode="explicit")
    with Server(options, plugins={"backends": {"undecided": Undecided(answer)}}, discover=False) as server:
        status, error = RepositoryClient(server.http_port).load("m")

    assert status == 400
    assert words in error


@pytest.mark.parametrize(
    ("config", "options"), [(isolated("thread"), {}), (CONFIG, {"debugged_models": ("m",)})]
)
def test_backend_is_not_asked_where_others_have_decided(
    tmp_path: Path, config: dict[str, Any], options: dict[str, Any]
) -> None:
    ModelRepository(tmp_path).model("m", {**config, "backend": "undecided"})
    undecided = Undecided(AssertionError("asked"))
    with Server(
        local_options(tmp_path, **options), plugins={"backends": {"undecided": undecided}}, discover=False
    ):
        assert not undecided.is_asked
