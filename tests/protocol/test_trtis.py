"""The paths of version 1 of the protocol, and what they say."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy.version import __version__

MODELS = Path(__file__).with_name("generate_models")


def ask(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
    """Status, the header NV-Status and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers.get("NV-Status", ""), response.read()


def status(port: int, path: str = "/api/status", **headers: str) -> dict[str, Any]:
    code, _, body = ask(port, path, **headers)
    assert code == 200, body
    document: dict[str, Any] = json.loads(body)
    return document


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    folder = tmp_path / "broken"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text("raise RuntimeError('no weights')\n")
    (folder / "config.pbtxt").write_text(
        'backend: "python"\ninput [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    )
    return tmp_path


def test_they_are_answered_when_they_are_allowed_only(
    serve: Callable[..., Server], echo_models: Path
) -> None:
    port = serve(echo_models).http_port

    for path in ("/api/health/live", "/api/health/ready", "/api/status", "/api/status/echo"):
        assert ask(port, path)[0] == 404


def test_health_and_status_of_a_server_that_is_well(serve: Callable[..., Server]) -> None:
    port = serve(MODELS, allow_trtis_v1=True, server_id="triton 7").http_port
    for path in ("/api/health/live", "/api/health/ready"):
        code, said, body = ask(port, path)

        assert (code, body) == (200, b"")
        assert re.fullmatch(r'code: SUCCESS server_id: "triton 7" request_id: \d+', said)
        assert ask(port, path, "POST")[0] == 405
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        connection.request("POST", "/v2/models/echo_batched/generate", '{"text": ["a", "b"]}')
        connection.getresponse().read()

    whole = status(port)
    one = status(port, "/api/status/echo_batched")

    assert whole["id"] == "triton 7"
    assert whole["version"] == __version__
    assert int(whole["uptime_ns"]) > 0
    assert whole["ready_state"] == "SERVER_READY"
    assert sorted(whole["model_status"]) == sorted(path.name for path in MODELS.iterdir())
    assert list(one["model_status"]) == ["echo_batched"]
    model = one["model_status"]["echo_batched"]
    assert model["config"]["max_batch_size"] == 8
    assert model["version_status"] == {
        "1": {"ready_state": "MODEL_READY", "model_execution_count": "1", "model_inference_count": "2"}
    }
    assert ask(port, "/api/status/", "GET")[0] == 404


def test_an_unknown_model_has_no_status(serve: Callable[..., Server], echo_models: Path) -> None:
    port = serve(echo_models, allow_trtis_v1=True).http_port

    code, said, body = ask(port, "/api/status/nope")

    error = "no status available for unknown model 'nope'"
    assert code == 400
    assert said.startswith(f'code: NOT_FOUND msg: "{error}" server_id: "triton" request_id: ')
    assert json.loads(body) == {"error": error}


def test_a_server_whose_model_failed_is_not_ready_and_says_why(
    serve: Callable[..., Server], broken: Path
) -> None:
    port = serve(broken, allow_trtis_v1=True, exit_on_error=False).http_port

    assert ask(port, "/api/health/live")[0] == 200
    assert ask(port, "/api/health/ready")[0] == 400
    version = status(port)["model_status"]["broken"]["version_status"]["1"]
    assert version["ready_state"] == "MODEL_UNAVAILABLE"
    assert "no weights" in version["ready_state_reason"]["message"]
    assert status(port)["ready_state"] == "SERVER_INITIALIZING"


def test_reasons_are_for_those_who_may_see_the_repository(serve: Callable[..., Server], broken: Path) -> None:
    restricted = ((("model-repository",), "admin-key", "sesame"),)
    port = serve(broken, allow_trtis_v1=True, exit_on_error=False, http_restricted_apis=restricted).http_port

    version = status(port)["model_status"]["broken"]["version_status"]["1"]
    assert version == {"ready_state": "MODEL_UNAVAILABLE"}


def test_what_is_restricted_is_not_told_here_either(serve: Callable[..., Server], echo_models: Path) -> None:
    restricted = ((("model-config", "statistics"), "admin", "1"), (("metadata",), "who", "me"))
    port = serve(echo_models, allow_trtis_v1=True, http_restricted_apis=restricted).http_port

    assert ask(port, "/api/status")[0] == 403
    assert ask(port, "/api/health/live")[0] == 200
    model = status(port, who="me")["model_status"]["echo"]
    assert model == {"version_status": {"1": {"ready_state": "MODEL_READY"}}}
