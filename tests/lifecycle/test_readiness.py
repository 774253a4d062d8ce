"""Who says ready when, state by state: the server over both protocols, its health service, and one model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

from ..differential.servers import kill
from ..servers import OURS_AND_REAL
from .poll_scenario import Client

CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_INT32", "dims": [1]}],
}


def code(gate: Path, initialize: str = "pass") -> str:
    """A model that answers when `gate` is there; `begun` beside it says that it has been asked."""
    return f"""
import os, time
import triton_python_backend_utils as pb_utils
def wait():
    while not os.path.exists({str(gate)!r}):
        time.sleep(0.01)
class TritonPythonModel:
    def initialize(self, args):
        {initialize}
    def execute(self, requests):
        open({str(gate.with_name("begun"))!r}, "w").close()
        wait()
        return [pb_utils.InferenceResponse([pb_utils.Tensor(
            "Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        )]) for request in requests]
"""


@dataclass
class Probe:
    """A server, of ours or a real one, and everybody who can be asked whether something is ready."""

    http: int
    grpc: int

    @property
    def client(self) -> Client:
        """For all other calls."""
        return Client(self.http)

    def load(self, name: str) -> int:
        """The status of a load."""
        return self.client.send("POST", f"/v2/repository/models/{name}/load")[0]

    def unload(self, name: str) -> int:
        """The status of an unload."""
        return self.client.send("POST", f"/v2/repository/models/{name}/unload")[0]

    def says(self, name: str = "x") -> tuple[bool, bool]:
        """Whether the server is ready, and whether a model is, as soon as all who are asked agree."""

        def agreed() -> list[tuple[bool, bool]]:
            servers, models = self._ask(name)
            return [(servers.pop(), models.pop())] if len(servers) == len(models) == 1 else []

        return until(agreed, "HTTP, gRPC and its health service agree")[0]

    def _ask(self, name: str) -> tuple[set[bool], set[bool]]:
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
            servers = {
                self.client.send("GET", "/v2/health/ready")[0] == 200,
                stub.ServerReady(service_pb2.ServerReadyRequest(), timeout=60).ready,
                health.status == health_pb2.HealthCheckResponse.SERVING,
            }
            models = {
                self.client.send("GET", f"/v2/models/{name}/ready")[0] == 200,
                stub.ModelReady(service_pb2.ModelReadyRequest(name=name), timeout=60).ready,
            }
        return servers, models

    def comes_to(self, wanted: tuple[bool, bool], name: str = "x") -> bool:
        """Whether it says so before long."""
        return until(lambda: self.says(name) == wanted, lambda: f"{wanted}, not {self.says(name)}")


def wait_for_file(path: Path) -> None:
    until(path.exists)


Start = Callable[..., Probe]


@pytest.fixture
def start(request: pytest.FixtureRequest, serve: Callable[..., Server]) -> Iterator[Start]:
    """Start a server of ours, or a real one, that goes on where a model fails."""
    pids: list[int] = []

    def start_one(kind: str, *repositories: Path, strict: bool = True, mode: str = "none") -> Probe:
        if kind == "ours":
            server = serve(
                *repositories, strict_readiness=strict, model_control_mode=mode, exit_on_error=False
            )
            return Probe(server.http_port, server.grpc_port)
        first, *more = repositories
        ports = request.getfixturevalue("real_triton")(
            first,
            *(f"--model-repository={path}" for path in more),
            f"--strict-readiness={str(strict).lower()}",
            f"--model-control-mode={mode}",
            "--exit-on-error=false",
            "--http-thread-count=32",  # each load keeps one of them
        )
        pids.append(ports["pid"])
        return Probe(ports["http"], ports["grpc"])

    yield start_one
    for pid in pids:
        kill(pid)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
@pytest.mark.parametrize("kind", OURS_AND_REAL)
def test_readiness_through_the_life_of_a_model(start: Start, tmp_path: Path, kind: str, strict: bool) -> None:
    gate = tmp_path / "gate"
    models = ModelRepository(tmp_path / "models")
    models.python("x", code(gate, "wait()"), CONFIG)
    probe = start(kind, models.path, strict=strict, mode="explicit")
    unready = not strict  # what the server says of itself while a model is in its way
    assert probe.says() == (True, False), "no models"

    loading = threading.Thread(target=probe.load, args=("x",))
    loading.start()
    assert probe.comes_to((unready, False)), "loading"
    gate.touch()
    loading.join()
    assert probe.says() == (True, True), "loaded"

    gate.unlink()
    models.python("x", code(gate, "wait()  # again"), CONFIG)
    reloading = threading.Thread(target=probe.load, args=("x",))
    reloading.start()
    for _ in range(10):
        assert probe.says() == (True, True), "reloading"
        time.sleep(0.01)
    gate.touch()
    reloading.join()
    assert probe.says() == (True, True), "reloaded"

    models.python("x", code(gate, "raise ValueError('boom')"), CONFIG)
    assert probe.load("x") == 400
    assert probe.says() == (True, True), "the reload failed, the old one serves"

    gate.unlink()
    asking = threading.Thread(target=probe.client.infer, args=("x",))
    asking.start()
    wait_for_file(tmp_path / "begun")
    assert probe.unload("x") == 200
    assert probe.comes_to((unready, False)), "unloading"
    gate.touch()
    asking.join()
    assert probe.comes_to((True, False)), "unloaded on purpose"

    assert probe.load("x") == 400
    assert probe.says() == (unready, False), "failed"
    assert probe.load("nope") == 500
    assert probe.says("nope") == (unready, False), "unknown"
    if kind == "ours":  # a real server is in the way of itself until it is mended
        assert probe.unload("x") == 200
        assert probe.says() == (True, False), "failed, and wanted no more"
        assert probe.load("x") == 400

    models.python("x", code(gate), CONFIG)
    assert probe.load("x") == 200
    assert probe.says() == (True, True), "mended"


def lay_out_broken_config(models: ModelRepository, other: ModelRepository, gate: Path) -> None:
    models.python("x", code(gate), "nonsense: 1")


def lay_out_broken_code(models: ModelRepository, other: ModelRepository, gate: Path) -> None:
    models.python("x", code(gate, "raise ValueError('boom')"), CONFIG)


def lay_out_no_version(models: ModelRepository, other: ModelRepository, gate: Path) -> None:
    models.model("x", CONFIG)
    (models.path / "x/1").rmdir()


def lay_out_twice(models: ModelRepository, other: ModelRepository, gate: Path) -> None:
    for repository in (models, other):
        repository.python("x", code(gate), CONFIG)


@pytest.mark.parametrize("kind", OURS_AND_REAL)
@pytest.mark.parametrize(
    ("lay_out", "real_is_ready"),
    [
        (lay_out_broken_config, True),
        (lay_out_broken_code, False),
        (lay_out_no_version, False),
        (lay_out_twice, True),
    ],
)
def test_readiness_after_a_start_with_a_model_that_cannot_serve(
    start: Start, tmp_path: Path, kind: str, lay_out: Callable[..., None], real_is_ready: bool
) -> None:
    models, other = ModelRepository(tmp_path / "a"), ModelRepository(tmp_path / "b")
    lay_out(models, other, tmp_path / "gate")

    probe = start(kind, models.path, other.path)

    assert probe.says() == (real_is_ready and kind == "real", False)


def test_a_model_whose_process_dies_is_not_ready_once_its_successor_has_died_too(
    start: Start, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    models = ModelRepository(tmp_path / "models")
    models.python("x", code(gate, f"os.path.exists({str(gate)!r}) or os._exit(3)"), CONFIG)
    before = set(psutil.Process().children(recursive=True))
    probe = start("ours", models.path)
    assert probe.says() == (True, True)
    gate.unlink()

    for worker in set(psutil.Process().children(recursive=True)) - before:
        worker.kill()

    assert probe.comes_to((False, False))
    gate.touch()
    assert probe.comes_to((True, True))
