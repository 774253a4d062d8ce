"""What is not ready says why: in the body over HTTP, in the log for gRPC, which has no place for it."""

from __future__ import annotations

import http.client
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException
from tritonpy.server import Server
from tritonpy_sdk.testing import until

from ..servers import local_options

CONFIG = (
    'backend: "python"\ninput [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
    'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'
)
GOOD = "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
MOODY = GOOD + "    def is_ready(self):\n        return False\n"
SLOW = "import os, time\nwhile not os.path.exists({!r}):\n    time.sleep(0.01)\n" + GOOD


def write_model(root: Path, name: str, code: str) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / "model.py").write_text(code)
    (root / name / "config.pbtxt").write_text(CONFIG)


def ask(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        connection.request(method, path)
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body) if body else {}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of four models: one is good, one breaks, one cannot be read, and one says no itself."""
    root = tmp_path_factory.mktemp("models")
    write_model(root, "good", GOOD)
    write_model(root, "broken", "raise RuntimeError('no weights')")
    write_model(root, "odd", GOOD)
    (root / "odd" / "config.pbtxt").write_text("nonsense: 1")
    write_model(root, "moody", MOODY)
    options = local_options(root, allow_metrics=False, exit_on_error=False)
    with Server(options) as server:
        yield server


def test_what_is_in_the_way_is_named_with_its_reason(mixed: Server) -> None:
    status, body = ask(mixed.http_port, "/v2/health/ready")

    assert status == 400
    assert body["error"] == "the server is not ready: it waits for 'broken', 'odd'"
    broken, odd = sorted(body["models"], key=lambda row: str(row["name"]))
    assert (broken["name"], broken["version"], broken["state"]) == ("broken", "1", "UNAVAILABLE")
    assert "no weights" in broken["reason"]
    assert odd["name"] == "odd"
    assert "nonsense" in odd["reason"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("broken", "Request for unknown model: 'broken' has no available versions; Internal: .*no weights.*"),
        (
            "broken/versions/1",
            "Request for unknown model: 'broken' version 1 is not at ready state; Internal: .*no weights.*",
        ),
        ("odd", "Request for unknown model: 'odd' is not found; .*nonsense.*"),
        ("moody", "model 'moody' version 1 was asked, and says that it is not ready"),
        ("nope", "Request for unknown model: 'nope' is not found"),
        ("good/versions/7", "Request for unknown model: 'good' version 7 is not found"),
    ],
)
def test_a_model_that_is_not_ready_says_why(mixed: Server, path: str, reason: str) -> None:
    status, body = ask(mixed.http_port, f"/v2/models/{path}/ready")

    assert status == 400
    assert body["error"] == "Model version not ready"
    assert re.fullmatch(reason, body["reason"], re.DOTALL), body["reason"]


def test_a_model_that_is_ready_says_nothing(mixed: Server) -> None:
    assert ask(mixed.http_port, "/v2/models/good/ready") == (200, {})
    assert ask(mixed.http_port, "/v2/models/good/versions/1/ready") == (200, {})


def test_reasons_are_for_those_who_may_see_the_repository(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    write_model(tmp_path, "broken", "raise RuntimeError('no weights')")
    restricted = ((("model-repository",), "admin-key", "sesame"),)
    port = serve(tmp_path, exit_on_error=False, http_restricted_apis=restricted).http_port

    assert ask(port, "/v2/health/ready") == (400, {"error": "the server is not ready"})
    assert ask(port, "/v2/models/broken/ready") == (400, {"error": "Model version not ready"})


def test_the_verbose_log_has_the_reasons_for_grpc(mixed: Server, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "tritonpy.frontends"),
        grpcclient.InferenceServerClient(f"127.0.0.1:{mixed.grpc_port}") as client,
    ):
        assert not client.is_server_ready()
        assert not client.is_model_ready("nope")

    said = [record.message for record in caplog.records if record.name == "tritonpy.frontends"]
    assert said == [
        "the server is not ready: it waits for 'broken', 'odd'",
        "model 'nope' is not ready: Request for unknown model: 'nope' is not found",
    ]


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_a_server_without_its_repository_listens_and_is_neither_live_nor_ready(
    serve: Callable[..., Server], tmp_path: Path, mode: str
) -> None:
    server = serve(tmp_path / "nowhere", exit_on_error=False, model_control_mode=mode)
    port = server.http_port

    assert ask(port, "/v2/health/live")[0] == 400
    status, answer = ask(port, "/v2/health/ready")
    assert status == 400
    assert "nowhere: there is no such model repository" in answer["error"]
    assert ask(port, "/v2")[0] == 200
    for path in ("models/m", "models/m/ready", "models/m/config", "models/stats", "models/m/stats"):
        assert ask(port, f"/v2/{path}") == (503, {"error": "Server not ready"})
    for path in ("index", "models/m/load", "models/m/unload"):
        status, answer = ask(port, f"/v2/repository/{path}", "POST")
        assert (status, answer) == (503, {"error": "Server not ready"})
    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        assert not client.is_server_live()
        with pytest.raises(InferenceServerException, match="Server not ready"):
            client.get_model_metadata("m")


def test_strict_readiness_off_needs_no_model(serve: Callable[..., Server], tmp_path: Path) -> None:
    write_model(tmp_path, "broken", "raise RuntimeError('no weights')")
    port = serve(tmp_path, exit_on_error=False, strict_readiness=False).http_port

    assert ask(port, "/v2/health/ready") == (200, {})


def test_a_model_being_loaded_and_one_being_unloaded(serve: Callable[..., Server], tmp_path: Path) -> None:
    flag = tmp_path / "go"
    write_model(tmp_path / "models", "slow", SLOW.format(str(flag)))
    port = serve(tmp_path / "models", model_control_mode="explicit").http_port
    assert ask(port, "/v2/health/ready") == (200, {})
    answers: list[int] = []
    loading = threading.Thread(
        target=lambda: answers.append(ask(port, "/v2/repository/models/slow/load", "POST")[0])
    )
    loading.start()
    waiting = until(lambda: (answer := ask(port, "/v2/health/ready"))[0] != 200 and answer)

    flag.touch()
    loading.join()

    rows = [{"name": "slow", "version": "1", "state": "LOADING"}]
    assert waiting == (400, {"error": "the server is not ready: it waits for 'slow'", "models": rows})
    assert answers == [200]
    assert ask(port, "/v2/health/ready") == (200, {})
    ask(port, "/v2/repository/models/slow/unload", "POST")
    assert ask(port, "/v2/models/slow/ready")[1]["error"] == "Model version not ready"
