"""Distributions that pip installs behind the server, into its environment: what pip lets in has to run.

pip moves what the server needs to another release when a newcomer asks for it, and warns at most.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import service_pb2, service_pb2_grpc

from .clean_environment import ROOT, Environment, Server, make_wheels

pytestmark = pytest.mark.timeout(1200)  # downloads take what they take

REQUIREMENTS = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]["dependencies"]
LOWEST = [re.sub(r">=([\w.]+)[^;]*", r"==\1", requirement) for requirement in REQUIREMENTS]


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheelhouse = tmp_path_factory.mktemp("wheelhouse")
    make_wheels(wheelhouse, ROOT / "core")
    return wheelhouse


@pytest.fixture
def environment(wheelhouse: Path, tmp_path: Path) -> Environment:
    """What `pip install ./core` leaves, its dependencies included."""
    environment = Environment(tmp_path / "venv")
    environment.download(*map(str, wheelhouse.iterdir()))
    return environment


@pytest.fixture
def answers(tmp_path: Path) -> Callable[[Environment], None]:
    """Starts a server and asks it over each protocol that it speaks."""
    folder = tmp_path / "models" / "same"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(
        """
        backend: "identity"
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
        """
    )

    def ask(environment: Environment) -> None:
        server = Server(environment, f"--model-repository={folder.parent}")
        try:
            x = {"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [7.0]}
            status, answer = server.ask("/v2/models/same/infer", {"inputs": [x]})
            with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                metadata = stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="same"), timeout=60)
                health = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=60
                )
                services = ProtoReflectionDescriptorDatabase(channel).get_services()
        finally:
            ended = server.stop()
        assert (status, answer["outputs"][0]["data"]) == (200, [7.0])
        assert metadata.platform == "identity"
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        assert "inference.GRPCInferenceService" in services
        assert ended == 0

    return ask


@pytest.mark.emulator  # fetches the client and all that core needs, which is the same until core needs others
def test_a_client_behind_the_server(environment: Environment, answers: Callable[[Environment], None]) -> None:
    environment.download("tritonclient[grpc]")

    answers(environment)


@pytest.mark.neighbours
@pytest.mark.parametrize(
    "neighbours",
    [
        LOWEST,
        ["protobuf==5.26.0"],
        ["protobuf==7.34.0"],
        ["grpcio-health-checking==1.62.0", "grpcio-reflection==1.62.0"],
        ["kserve"],
        ["mlserver"],
        ["ray[serve]"],
        ["tensorflow-cpu"],
        ["torch==2.13.0"],
    ],
    ids=lambda neighbours: neighbours[0].partition(";")[0],
)
def test_a_neighbour_behind_the_server(
    environment: Environment, answers: Callable[[Environment], None], neighbours: list[str]
) -> None:
    environment.download(*neighbours)

    answers(environment)
