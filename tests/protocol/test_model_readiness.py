"""A model that says itself whether it is ready."""

from __future__ import annotations

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import tritonclient.grpc as grpcclient
from tritonpy.plugin import BackendAttributes, InferResponse, hookimpl

from ..servers import local_options

CODE = """
import asyncio, os, time
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.path = os.path.join(args["model_repository"], "state")

    {kind} is_ready(self):
        with open(self.path) as file:
            return eval(file.read())

    {execute}
"""
PLAIN = """def execute(self, requests):
        return [pb_utils.InferenceResponse([]) for _ in requests]"""
DECOUPLED = """async def execute(self, requests):
        for request in requests:
            request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)"""
CONFIG = """
backend: "python"
max_batch_size: 0
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


def http_status(port: int, model: str) -> int:
    try:
        with urlopen(f"http://127.0.0.1:{port}/v2/models/{model}/ready", timeout=30) as answer:
            return answer.status
    except HTTPError as error:
        error.close()
        return error.code


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("is_decoupled", [False, True])
def test_is_ready_of_a_python_model_decides_over_both_protocols(
    serve, tmp_path: Path, kind: str, is_decoupled: bool
) -> None:
    folder = tmp_path / "moody"
    (folder / "1").mkdir(parents=True)
    execute = DECOUPLED if is_decoupled else PLAIN
    (folder / "1" / "model.py").write_text(CODE.format(kind=kind, execute=execute))
    policy = "model_transaction_policy { decoupled: true }" if is_decoupled else ""
    (folder / "config.pbtxt").write_text(CONFIG + policy)
    state = folder / "state"
    state.write_text("True")
    server = serve(tmp_path)

    with grpcclient.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        for text, is_ready in (
            ("True", True),
            ("False", False),
            ("1 / 0", False),
            ("True", True),
            ("1", False),
            ("None", False),
        ):
            state.write_text(text)

            assert http_status(server.http_port, "moody") == (200 if is_ready else 400)
            assert client.is_model_ready("moody") is is_ready


class MoodyBackend:
    """A backend whose instances are ready when told so."""

    def __init__(self) -> None:
        self.answer: object = True

    @hookimpl
    def backend_attributes(self, backend):
        return BackendAttributes(execution="thread")

    @hookimpl
    def model_instance_execute(self, instance, requests):
        return [InferResponse() for _ in requests]

    @hookimpl
    def model_instance_ready(self, instance):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_backend_s_hook_decides_for_instances_on_threads(tmp_path: Path) -> None:
    from tritonpy.server import Server

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG.replace("python", "moody"))
    backend = MoodyBackend()
    options = local_options(tmp_path, allow_grpc=False, allow_metrics=False)
    with Server(options, plugins={"backends": {"moody": backend}}) as server:
        for answer, status in ((True, 200), (False, 400), (ValueError("no"), 400), (True, 200)):
            backend.answer = answer

            assert http_status(server.http_port, "m") == status


def test_a_version_may_be_written_with_zeros_before_it(serve, tmp_path: Path) -> None:
    (tmp_path / "echo" / "1").mkdir(parents=True)
    (tmp_path / "echo" / "config.pbtxt").write_text(
        CONFIG.replace("python", "identity").replace('"X"', '"INPUT0"').replace('"Y"', '"OUTPUT0"')
    )
    server = serve(tmp_path)

    assert http_status(server.http_port, "echo/versions/001") == 200
    assert http_status(server.http_port, "echo/versions/002") == 400
