"""What code of models and other users of the machine do not get to see, and code that is not let in."""

from __future__ import annotations

import base64
import json
import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException
from tritonpy.logs import Logs, LogSettings
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

MODEL = """
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        names = np.array(sorted(os.environ), object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("NAMES", names)]) for _ in requests]
"""
CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "NAMES", "data_type": "TYPE_STRING", "dims": [-1]}],
}
REFUSAL = (
    "load of model 'names' with files is refused: what they hold would be executed, and the server was "
    "started with --allow-sent-code=false; a configuration may be sent"
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    ModelRepository(tmp_path / "models").python("names", MODEL, CONFIG)
    return tmp_path / "models"


def post(server: Server, path: str, body: dict[str, Any]) -> Any:
    url = f"http://127.0.0.1:{server.http_port}/v2/{path}"
    with urlopen(Request(url, json.dumps(body).encode()), timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def names(server: Server) -> list[str]:
    body = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [0]}]}
    found: list[str] = post(server, "models/names/infer", body)["outputs"][0]["data"]
    return found


def test_models_do_not_see_the_keys_of_the_server_unless_it_is_told_so(
    serve: Callable[..., Server], repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "TRITONREDIS_PASSWORD", "MODEL_SETTING"):
        monkeypatch.setenv(name, "something")

    default = names(serve(repository))
    told = names(serve(repository, worker_environment=("AWS_SECRET_ACCESS_KEY",)))

    assert {"PATH", "MODEL_SETTING"} <= set(default)
    assert not {"AWS_SECRET_ACCESS_KEY", "TRITONREDIS_PASSWORD"} & set(default)
    assert set(told) - set(default) == {"AWS_SECRET_ACCESS_KEY"}


def test_files_in_a_load_request_are_refused_where_no_code_may_be_sent(
    serve: Callable[..., Server], repository: Path
) -> None:
    server = serve(repository, model_control_mode="explicit", allow_sent_code=False)
    config = json.dumps({**CONFIG, "max_batch_size": 0})
    files = {"config": config, "file:1/model.py": base64.b64encode(MODEL.encode()).decode()}

    with pytest.raises(HTTPError) as refused:
        post(server, "repository/models/names/load", {"parameters": files})
    with refused.value as answer:
        assert (answer.code, json.load(answer)) == (501, {"error": REFUSAL})
    with InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        with pytest.raises(InferenceServerException) as refused_again:
            client.load_model("names", config=config, files={"file:1/model.py": MODEL.encode()})
        assert refused_again.value.status() == "StatusCode.UNIMPLEMENTED"
        assert refused_again.value.message() == REFUSAL
    post(server, "repository/models/names/load", {"parameters": {"config": config}})
    assert "PATH" in names(server)


def test_what_the_server_writes_is_for_its_user_alone(
    serve: Callable[..., Server], repository: Path, tmp_path: Path
) -> None:
    log, access, traces = tmp_path / "log", tmp_path / "access", tmp_path / "traces"
    with Logs(LogSettings(log_file=str(log))):
        logging.getLogger("tritonpy.test").error("a line")
    settings = (("triton", "file", str(traces)), ("", "level", "TIMESTAMPS"), ("", "rate", "1"))
    server = serve(repository, http_access_log=str(access), trace_config=settings)
    names(server)
    server.stop()

    assert "a line" in log.read_text()
    for path in (log, access, traces):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
