"""The model repository extension over gRPC, and over both protocols where control is not explicit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2
from tritonpy_sdk.repository import ModelRepository

from ..servers import OURS_AND_REAL, serving
from .repository_endpoint import CONFIG, NOT_POLLED, Endpoint, adding, build_models, explicit_endpoint


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    build_models(root)
    return root


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def server(request: pytest.FixtureRequest, models: Path) -> Iterator[Endpoint]:
    with explicit_endpoint(request, models) as endpoint:
        yield endpoint


def parameter(**value: object) -> Any:  # Any: made by the protocol compiler
    return service_pb2.ModelRepositoryParameter(**value)


def load(server: Endpoint, name: str, repository: str = "", **parameters: Any) -> None:
    request = service_pb2.RepositoryModelLoadRequest(
        repository_name=repository, model_name=name, parameters=parameters
    )
    server.call("RepositoryModelLoad", request)


def unload(server: Endpoint, name: str, repository: str = "", **parameters: Any) -> None:
    request = service_pb2.RepositoryModelUnloadRequest(
        repository_name=repository, model_name=name, parameters=parameters
    )
    server.call("RepositoryModelUnload", request)


def index(server: Endpoint, ready: bool = False, repository: str = "") -> dict[str, tuple[str, str, str]]:
    request = service_pb2.RepositoryIndexRequest(repository_name=repository, ready=ready)
    answer = server.call("RepositoryIndex", request)
    return {model.name: (model.version, model.state, model.reason) for model in answer.models}


def test_grpc_loads_lists_and_unloads(server: Endpoint) -> None:
    load(server, "plain")

    assert index(server)["plain"] == ("1", "READY", "")
    assert index(server, ready=True)["plain"] == ("1", "READY", "")
    assert index(server)["unreadable"] == ("", "", "")
    assert server.infer("plain") == 1
    unload(server, "plain", unload_dependents=parameter(bool_param=True))
    assert server.unloaded("plain")
    unload(server, "plain")
    unload(server, "nope", paint=parameter(bool_param=True))


def test_grpc_sends_a_configuration_and_files(server: Endpoint) -> None:
    config = parameter(string_param=json.dumps(CONFIG))
    model = {"file:5/model.py": parameter(bytes_param=adding(50).encode())}

    load(server, "posted", config=config, **model)

    assert server.infer("posted", "5") == 50
    unload(server, "posted")


@pytest.mark.parametrize(
    ("name", "parameters", "code", "words"),
    [
        ("nope", {}, "INTERNAL", NOT_POLLED.format("nope")),
        (
            "raises",
            {},
            "INVALID_ARGUMENT",
            "load failed for model 'raises': version 1 is at UNAVAILABLE state: Internal: ",
        ),
        ("empty", {}, "INVALID_ARGUMENT", "load failed for model 'empty': at least one version must be "),
        (
            "plain",
            {"config": parameter(bytes_param=b"{}")},
            "INVALID_ARGUMENT",
            "invalid value type for load parameter 'config', expected string_param.",
        ),
        (
            "plain",
            {"file:1/x": parameter(string_param="x")},
            "INVALID_ARGUMENT",
            "invalid value type for load parameter 'file:1/x', expected bytes_param.",
        ),
        (
            "plain",
            {"paint": parameter(string_param="red")},
            "INVALID_ARGUMENT",
            "unrecognized load parameter 'paint'.",
        ),
        ("plain", {"file:1/x": parameter(bytes_param=b"")}, "INTERNAL", NOT_POLLED.format("plain")),
    ],
)
def test_grpc_refuses_in_tritons_words(
    server: Endpoint, name: str, parameters: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(grpc.RpcError) as error:
        load(server, name, **parameters)

    assert error.value.code().name == code
    assert error.value.details().startswith(words)
    assert server.says(error.value.details(), words) or not words.startswith("failed to load")


def test_grpc_refuses_the_name_of_a_repository_and_an_unload_that_is_not_understood(server: Endpoint) -> None:
    for call in (
        lambda: load(server, "plain", "r"),
        lambda: unload(server, "plain", "r"),
        lambda: index(server, repository="r"),
    ):
        with pytest.raises(grpc.RpcError) as error:
            call()
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert error.value.details() == "'repository_name' specification is not supported"
    with pytest.raises(grpc.RpcError) as error:
        unload(server, "plain", unload_dependents=parameter(string_param="yes"))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (
        error.value.details() == "invalid value type for 'unload_dependents' parameter, expected bool_param."
    )


# Mode none.


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def uncontrolled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    root = tmp_path_factory.mktemp("uncontrolled")
    ModelRepository(root).python("plain", adding(1), CONFIG)
    with serving(request.param, request, root, allow_metrics=False) as ports:
        yield Endpoint(ports["http"], ports["grpc"], root, request.param == "real")


def test_without_explicit_mode_nothing_is_loaded_or_unloaded_on_request(uncontrolled: Endpoint) -> None:
    words = "explicit model load / unload is not allowed if polling is enabled"

    for name in ("plain", "nope"):
        assert uncontrolled.load(name) == (503, words)
        status, text = uncontrolled.unload(name, "{bad")
        assert (status, json.loads(text)) == (503, {"error": words})
        for call in (load, unload):
            with pytest.raises(grpc.RpcError) as error:
                call(uncontrolled, name)
            assert error.value.code() is grpc.StatusCode.UNAVAILABLE
            assert error.value.details() == words
    assert uncontrolled.load("plain", config=1) == (500, "attempt to access JSON non-string as string")
    assert uncontrolled.infer("plain") == 1


def test_a_large_load_request_that_is_refused_is_not_read(uncontrolled: Endpoint) -> None:
    status, text = uncontrolled.send("/v2/repository/models/plain/load", "{bad" + " " * 100_000)

    if uncontrolled.is_real:
        assert status == 500
    else:  # reading it would keep all others waiting
        assert (status, "is not allowed if polling is enabled" in text) == (503, True)


def test_without_explicit_mode_the_index_still_shows_what_lies_in_the_repository(
    uncontrolled: Endpoint,
) -> None:
    (uncontrolled.root / "later").mkdir()

    assert uncontrolled.index() == {("plain", "1"): ("READY", ""), ("later", ""): ("", "")}
    assert uncontrolled.send("/v2/health/ready", method="GET")[0] == 200
    (uncontrolled.root / "later").rmdir()
