"""Models for the model repository extension, and a server, of ours or a real one, that is asked for them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..servers import serving

TENSORS: dict[str, Any] = {
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
}
CONFIG = {"backend": "python", **TENSORS}
ALL_VERSIONS = {**CONFIG, "version_policy": {"all": {}}}
BROKEN = """
class TritonPythonModel:
    def initialize(self, args):
        raise ValueError("boom")
    def execute(self, requests):
        return []
"""
NOT_POLLED = "failed to load '{}', failed to poll from model repository"


def adding(number: int) -> str:
    """A model that adds a number; another number is another model."""
    return f"""
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(
                "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy() + {number}
            )])
            for request in requests
        ]
"""


def build_models(root: Path) -> None:
    models = ModelRepository(root)
    models.python("plain", adding(1), CONFIG)
    models.python("lifecycle", adding(1), CONFIG)
    models.python("changing", adding(1), CONFIG)
    models.python("configured", adding(1), CONFIG)
    models.python("raises", BROKEN, CONFIG)
    models.python("half", adding(1), ALL_VERSIONS, version=1)
    models.python("half", BROKEN, version=2)
    models.python("unreadable", adding(1), "nonsense: 1")
    models.model("empty", CONFIG)
    (root / "empty/1").rmdir()


@dataclass
class Endpoint:
    """A server, of ours or a real one, and how to ask it.

    Attributes:
        root: its repository.
        is_real: whether it is a real tritonserver.
    """

    http: int
    grpc: int
    root: Path
    is_real: bool

    def send(self, path: str, body: object = None, method: str = "POST") -> tuple[int, str]:
        """Status and body of an HTTP request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=30)
        try:
            content = body if isinstance(body, str | None) else json.dumps(body)
            connection.request(method, path, content)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def load(self, name: str, **parameters: object) -> tuple[int, str]:
        """Status and error of a load over HTTP."""
        body = {"parameters": parameters} if parameters else None
        status, text = self.send(f"/v2/repository/models/{name}/load", body)
        return status, json.loads(text)["error"] if text else ""

    def unload(self, name: str, body: object = None) -> tuple[int, str]:
        """Status and body of an unload over HTTP."""
        return self.send(f"/v2/repository/models/{name}/unload", body)

    def index(self, **body: object) -> dict[tuple[str, str], tuple[str, str]]:
        """State and reason by name and version; "" where there is none."""
        status, text = self.send("/v2/repository/index", body or None)
        assert status == 200, text
        return {
            (entry["name"], entry.get("version", "")): (entry.get("state", ""), entry.get("reason", ""))
            for entry in json.loads(text)
        }

    def unloaded(self, name: str) -> bool:
        """Wait for the end of an unload."""
        return until(
            lambda: (
                {state for (model, _), state in self.index().items() if model == name}
                == {("UNAVAILABLE", "unloaded")}
            )
        )

    def infer(self, name: str, version: str = "") -> int | str:
        """What the model adds to 0, or the error."""
        path = f"/v2/models/{name}/versions/{version}" if version else f"/v2/models/{name}"
        tensor = {"name": "X", "datatype": "INT32", "shape": [1], "data": [0]}
        _, text = self.send(f"{path}/infer", {"inputs": [tensor]})
        answer = json.loads(text)
        return answer["error"] if "error" in answer else answer["outputs"][0]["data"][0]  # type: ignore[no-any-return]

    def says(self, answered: str, words: str) -> bool:
        """Whether an error is Triton's; where the log alone has the reason there, ours goes on with it."""
        return answered == words or (not self.is_real and answered.startswith(f"{words}: "))

    def call(self, name: str, request: object) -> Any:  # Any: made by the protocol compiler
        """The answer of a gRPC call."""
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            return getattr(service_pb2_grpc.GRPCInferenceServiceStub(channel), name)(request, timeout=30)


@contextmanager
def explicit_endpoint(request: pytest.FixtureRequest, models: Path) -> Iterator[Endpoint]:
    """Serve the models under explicit control, by the kind of server that the fixture's parameter names."""
    # After a reload that failed it would wait until its exit timeout for the model that still serves.
    flags = ("--model-control-mode=explicit", "--exit-timeout-secs=2")
    options = {"model_control_mode": "explicit", "allow_metrics": False}
    with serving(request.param, request, models, *flags, **options) as ports:
        yield Endpoint(ports["http"], ports["grpc"], models, request.param == "real")
