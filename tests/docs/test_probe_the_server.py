"""The page on probes: its program runs, and what its probes of Kubernetes ask is answered."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import yaml
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/probe-the-server.md").read_text()


def block(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_probes_and_programs_of_the_page_are_answered(served: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("resnet", {"backend": "identity"})
    server = served(f"--model-repository={tmp_path}")
    grpc_port, http_port = server.ports["GRPCInferenceService"], server.ports["HTTPService"]

    program = block("python").replace("localhost:8001", f"127.0.0.1:{grpc_port}")
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    container = yaml.safe_load(block("yaml"))
    path = container["livenessProbe"]["httpGet"]["path"]
    with urllib.request.urlopen(f"http://127.0.0.1:{http_port}{path}", timeout=20) as live:
        status = live.status

    assert printed == "SERVING\n"
    assert status == 200
    assert [port["containerPort"] for port in container["ports"]] == [8000, 8001]
    assert container["startupProbe"]["grpc"] == container["readinessProbe"]["grpc"] == {"port": 8001}
    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        service, name = PAGE.split("localhost:8001 ")[-1].split("\n")[0].split("/")
        assert name in pool.FindServiceByName(service).methods_by_name


def test_a_watch_sees_the_whole_life_of_a_server(served: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("resnet", {"backend": "identity"})
    server = served(f"--model-repository={tmp_path}")
    with grpc.insecure_channel(f"127.0.0.1:{server.ports['GRPCInferenceService']}") as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=60)
        first = next(watch).status

        server.stop()
        rest = []
        try:
            rest.extend(response.status for response in watch)
        except grpc.RpcError as error:
            rest.append(error.code())

    assert first == health_pb2.HealthCheckResponse.SERVING
    assert rest == [health_pb2.HealthCheckResponse.NOT_SERVING, grpc.StatusCode.UNAVAILABLE]


def test_a_server_with_a_model_that_failed_is_not_serving(served: Callable[..., Any], tmp_path: Path) -> None:
    ModelRepository(tmp_path).model("broken", {"backend": "no_such_backend"})

    def check(*flags: str) -> int:
        server = served(f"--model-repository={tmp_path}", "--exit-on-error=false", *flags)
        with grpc.insecure_channel(f"127.0.0.1:{server.ports['GRPCInferenceService']}") as channel:
            health = health_pb2_grpc.HealthStub(channel)
            return int(health.Check(health_pb2.HealthCheckRequest(), timeout=20).status)

    assert check() == health_pb2.HealthCheckResponse.NOT_SERVING
    assert check("--strict-readiness=false") == health_pb2.HealthCheckResponse.SERVING
