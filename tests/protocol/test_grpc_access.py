"""Keys, forwarded metadata and health over gRPC, on ours and, in the parity run, on a real server."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonpy_sdk.repository import ModelRepository

from ..servers import TRANSPORTS_AND_REAL

PARAMETERS = """
import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("OUT", numpy.array([r.parameters()], dtype=object))])
            for r in requests
        ]
"""

FLAGS = (
    "--grpc-restricted-protocol=health,shared-memory:probe=1",
    "--grpc-restricted-protocol=inference:secret=key",
    "--grpc-header-forward-pattern=x-|^Tag$",
)
HEALTH_KEY = ("triton-grpc-protocol-probe", "1")
KEY = ("triton-grpc-protocol-secret", "key")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    repository.python(
        "parameters",
        PARAMETERS,
        config={
            "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
            "output": [{"name": "OUT", "data_type": "TYPE_STRING", "dims": [1]}],
        },
    )
    return repository.path


@pytest.fixture(params=TRANSPORTS_AND_REAL)
def channel(
    request: pytest.FixtureRequest, models: Path, served: Callable[..., Any]
) -> Iterator[grpc.Channel]:
    """What is tested with this is said of both servers."""
    if request.param == "real":
        port = request.getfixturevalue("real_triton")(models, *FLAGS)["grpc"]
    else:
        transport = f"--grpc-transport={request.param}"
        port = served(f"--model-repository={models}", transport, *FLAGS).ports["GRPCInferenceService"]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel


def infer(**parameters: str) -> Any:
    message = service_pb2.ModelInferRequest(model_name="parameters")
    message.inputs.add(name="IN", datatype="FP32", shape=[1])
    message.raw_input_contents.append(bytes(4))
    for key, value in parameters.items():
        message.parameters[key].string_param = value
    return message


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"


def parameters(response: Any) -> dict[str, str]:
    [raw] = response.raw_output_contents
    (size,) = struct.unpack_from("<I", raw)
    text = raw[4 : 4 + size]
    found: dict[str, str] = json.loads(text) if text else {}
    return found


def test_protocols_are_restricted_and_metadata_is_forwarded(channel: grpc.Channel) -> None:
    # One server has all of it: the real one takes seconds to start.
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    health = health_pb2_grpc.HealthStub(channel)
    needs_probe = "UNAVAILABLE: This protocol is restricted, expecting header 'triton-grpc-protocol-probe'"
    needs_key = "UNAVAILABLE: This protocol is restricted, expecting header 'triton-grpc-protocol-secret'"
    wrong = ("triton-grpc-protocol-secret", "wrong")

    def check(*metadata: tuple[str, str], service: str = "") -> Any:
        request = health_pb2.HealthCheckRequest(service=service)
        return outcome(lambda: health.Check(request, metadata=metadata, timeout=20).status)

    def live(*metadata: tuple[str, str]) -> Any:
        request = service_pb2.ServerLiveRequest()
        return outcome(lambda: stub.ServerLive(request, metadata=metadata, timeout=20).live)

    def ask(*metadata: tuple[str, str], **more: str) -> Any:
        return outcome(lambda: parameters(stub.ModelInfer(infer(**more), metadata=metadata, timeout=20)))

    def stream(count: int, *metadata: tuple[str, str], **more: str) -> Any:
        requests = iter([infer(**more)] * count)
        return outcome(
            lambda: [
                parameters(response.infer_response)
                for response in stub.ModelStreamInfer(requests, metadata=metadata, timeout=20)
            ]
        )

    ready = service_pb2.ModelReadyRequest(name="parameters")
    regions = service_pb2.SystemSharedMemoryStatusRequest()
    assert [live(), live(HEALTH_KEY)] == [needs_probe, True]
    assert [check(), check(HEALTH_KEY), check(HEALTH_KEY, service="nope")] == [needs_probe, 1, 1]
    assert outcome(lambda: stub.ModelReady(ready, timeout=20)) == needs_probe
    assert outcome(lambda: stub.SystemSharedMemoryStatus(regions, timeout=20)) == needs_probe
    assert outcome(lambda: stub.ServerMetadata(service_pb2.ServerMetadataRequest(), timeout=20).name)
    assert [ask(), ask(HEALTH_KEY), ask(wrong), ask(wrong, KEY)] == [needs_key] * 4
    assert [ask(KEY), ask(KEY, wrong)] == [{}, {}]
    assert [stream(0), stream(1), stream(1, wrong)] == [needs_key] * 3
    assert [stream(0, KEY), stream(2, KEY)] == [[], [{}, {}]]

    forwarded = {"x-one": "2", "my-x-two": "z", "tag": "t"}
    metadata = (KEY, ("x-one", "1"), ("x-one", "2"), ("my-x-two", "z"), ("tag", "t"), ("tags", "no"))
    assert ask(*metadata, own="o") == {**forwarded, "own": "o"}
    assert stream(2, *metadata, own="o") == [{**forwarded, "own": "o"}] * 2
    assert outcome(lambda: channel.unary_unary("/inference.GRPCInferenceService/Nope")(b"", timeout=20)) in (
        "UNIMPLEMENTED: ",
        "UNIMPLEMENTED: Method not found!",
    )
