"""The model repository extension over HTTP: of ours, and, in the parity run, of a real server."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..counting import comes_to
from ..servers import OURS_AND_REAL
from .repository_endpoint import BROKEN, CONFIG, NOT_POLLED, Endpoint, adding, build_models, explicit_endpoint


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    build_models(root)
    return root


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def server(request: pytest.FixtureRequest, models: Path) -> Iterator[Endpoint]:
    with explicit_endpoint(request, models) as endpoint:
        yield endpoint


def test_a_model_is_loaded_asked_and_unloaded(server: Endpoint) -> None:
    assert server.index()[("lifecycle", "")] == ("", "")

    assert server.load("lifecycle") == (200, "")
    assert server.index()[("lifecycle", "1")] == ("READY", "")
    assert ("lifecycle", "1") in server.index(ready=True)
    assert ("raises", "") not in server.index(ready=True)
    assert server.infer("lifecycle") == 1
    assert server.load("lifecycle") == (200, "")

    assert server.unload("lifecycle") == (200, "")
    assert server.infer("lifecycle") == "Request for unknown model: 'lifecycle' has no available versions"
    assert server.infer("lifecycle", "1") == (
        "Request for unknown model: 'lifecycle' version 1 is not at ready state"
    )
    assert server.send("/v2/models/lifecycle/ready", method="GET")[0] == 400
    assert server.unload("lifecycle") == (200, "")
    assert server.unloaded("lifecycle")


def test_an_unknown_model_is_refused_and_its_unload_is_not(server: Endpoint) -> None:
    status, error = server.load("nope")

    assert status == 500
    assert server.says(error, NOT_POLLED.format("nope"))
    assert server.unload("nope") == (200, "")
    assert not [name for name, _ in server.index() if name == "nope"]


def test_an_error_in_initialize_reaches_the_caller_and_the_index(server: Endpoint) -> None:
    reason = f"Internal: ValueError: boom\n\nAt:\n  {server.root}/raises/1/model.py(4): initialize\n"

    assert server.load("raises") == (
        400,
        f"load failed for model 'raises': version 1 is at UNAVAILABLE state: {reason};\n",
    )
    assert server.index()[("raises", "1")] == ("UNAVAILABLE", reason)
    assert server.infer("raises") == "Request for unknown model: 'raises' has no available versions"


def test_a_model_of_which_one_version_fails_is_not_loaded_at_all(server: Endpoint) -> None:
    status, error = server.load("half")

    assert status == 400
    assert error.startswith("load failed for model 'half': version 2 is at UNAVAILABLE state: Internal: ")
    assert server.infer("half") == "Request for unknown model: 'half' has no available versions"
    index = server.index()
    assert index[("half", "2")][0] == "UNAVAILABLE"
    assert index[("half", "1")] in [("UNLOADING", ""), ("UNAVAILABLE", "unloaded")]


def test_a_configuration_that_cannot_be_read_is_refused(server: Endpoint) -> None:
    status, error = server.load("unreadable")

    assert status == 500
    assert server.says(error, NOT_POLLED.format("unreadable"))
    assert server.index()[("unreadable", "")] == ("", "")


def test_a_model_without_versions_is_refused(server: Endpoint) -> None:
    assert server.load("empty") == (
        400,
        "load failed for model 'empty': "
        "at least one version must be available under the version policy of model 'empty'\n",
    )


def test_a_changed_model_is_loaded_anew_and_a_broken_change_is_not(server: Endpoint) -> None:
    file = server.root / "changing/1/model.py"
    file.write_text(adding(1))
    assert server.load("changing") == (200, "")
    file.write_text(adding(20))
    assert server.load("changing") == (200, "")
    assert server.infer("changing") == 20

    def inference_count() -> int:
        [stats] = json.loads(server.send("/v2/models/changing/stats", method="GET")[1])["model_stats"]
        return int(stats["inference_count"])

    assert comes_to(inference_count, 1) == 1

    file.write_text(BROKEN)
    status, error = server.load("changing")

    assert status == 400
    assert error.startswith("load failed for model 'changing': version 1 is at UNAVAILABLE state: Internal: ")
    assert server.infer("changing") == 20
    assert server.index()[("changing", "1")] == ("READY", "")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("[]", 200, ""),
        ("null", 200, ""),
        ({"x": 1}, 200, ""),
        ({"parameters": {}}, 200, ""),
        ({"parameters": []}, 500, "attempt to get members for non-object"),
        ({"parameters": {"config": 1}}, 500, "attempt to access JSON non-string as string"),
        ({"parameters": {"config": None}}, 500, "attempt to access JSON non-string as string"),
        ({"parameters": {"file:1/model.py": 1}}, 500, "attempt to access JSON non-string as string"),
        ({"parameters": {"paint": 1}}, 500, "attempt to access JSON non-string as string"),
        ({"parameters": {"paint": "red"}}, 500, "unexpected error on creating Triton parameter"),
        ({"parameters": {"config": ""}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"config": "{bad"}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"config": '{"nonsense": 1}'}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"config": '{"name": "other"}'}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"file:1/model.py": ""}}, 500, NOT_POLLED.format("plain")),
        ({"parameters": {"config": "{}", "file:../x": ""}}, 500, NOT_POLLED.format("plain")),
    ],
    ids=str,
)
def test_a_load_request_is_read_as_triton_reads_it(
    server: Endpoint, body: object, status: int, error: str
) -> None:
    answered, text = server.send("/v2/repository/models/plain/load", body)

    assert answered == status, text
    assert server.says(json.loads(text)["error"] if text else "", error), text


def test_a_body_that_is_no_json_is_refused(server: Endpoint) -> None:
    for path in ("/v2/repository/models/plain/load", "/v2/repository/index"):
        status, text = server.send(path, "{bad")

        assert status == 500
        assert json.loads(text)["error"].startswith("failed to parse the request JSON buffer: ")


@pytest.mark.parametrize("ready", [1, "true", None])
def test_ready_in_an_index_request_is_a_boolean(server: Endpoint, ready: object) -> None:
    status, text = server.send("/v2/repository/index", {"ready": ready})

    assert (status, json.loads(text)["error"]) in (
        (500, "attempt to access JSON non-boolean as boolean"),
        (400, "Invalid value for 'ready': expected a boolean"),  # newer servers, and ours
    )


@pytest.mark.parametrize(
    "body",
    ["{bad", [], {"parameters": []}, {"parameters": {"unload_dependents": 1}}, {"parameters": {"paint": 1}}],
    ids=str,
)
def test_whatever_an_unload_request_says_the_unload_happens(server: Endpoint, body: object) -> None:
    assert server.unload("plain", body) == (200, "")


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        (
            "POST",
            "/v2/repository/r/models/plain/load",
            501,
            "'repository_name' specification is not supported",
        ),
        (
            "POST",
            "/v2/repository/r/models/plain/unload",
            501,
            "'repository_name' specification is not supported",
        ),
        ("GET", "/v2/repository/index", 405, "Method Not Allowed"),
        ("PUT", "/v2/repository/models/plain/load", 405, "Method Not Allowed"),
        ("POST", "/v2/repository/models/plain/paint", 404, "Not Found"),
        ("POST", "/v2/repository/models/plain/load/", 404, "Not Found"),
        ("POST", "/v2/repository/models/plain/../plain/load", 404, "Not Found"),
        ("POST", "/v2/repository/models/plain", 404, "Not Found"),
        ("POST", "/v2/repository", 404, "Not Found"),
    ],
)
def test_paths_and_methods(server: Endpoint, method: str, path: str, status: int, error: str) -> None:
    assert server.send(path, method=method) == (status, json.dumps({"error": error}, separators=(",", ":")))


def test_the_index_takes_the_name_of_a_repository_and_ignores_it(server: Endpoint) -> None:
    status, text = server.send("/v2/repository/whatever/index")

    assert status == 200
    assert "plain" in {entry["name"] for entry in json.loads(text)}


def test_a_configuration_of_the_request_takes_the_place_of_the_file(server: Endpoint) -> None:
    config = json.dumps({**CONFIG, "max_batch_size": 4})

    assert server.load("configured", config=config) == (200, "")

    shown = json.loads(server.send("/v2/models/configured/config", method="GET")[1])
    assert (shown["name"], shown["max_batch_size"]) == ("configured", 4)
    server.unload("configured")
    assert server.unloaded("configured")
    assert server.load("configured") == (200, "")
    assert json.loads(server.send("/v2/models/configured/config", method="GET")[1])["max_batch_size"] == 0


def test_files_of_the_request_make_a_model(server: Endpoint) -> None:
    def encoded(source: str) -> str:
        return base64.b64encode(source.encode()).decode()

    config = json.dumps(CONFIG)

    assert server.load("sent", config=config, **{"file:3/model.py": encoded(adding(30))}) == (200, "")
    assert server.infer("sent") == 30
    assert server.load("sent", config=config, **{"file:4/model.py": encoded(adding(40))}) == (200, "")
    assert server.infer("sent") == 40
    status, error = server.load("sent")  # the repository does not have it
    assert status == 500
    assert server.says(error, NOT_POLLED.format("sent"))
    assert server.infer("sent") == 40
    assert server.unload("sent") == (200, "")
