"""Servers that were not told to let clients share memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2
from tritonpy.server import Server

from ...servers import local_options
from . import http_cases as cases
from .memory import Http


@pytest.fixture(scope="module")
def closed(models: Path) -> Iterator[dict[str, int]]:
    """A server that was not told to let clients share memory."""
    options = local_options(models, allow_metrics=False)
    with Server(options) as server:
        yield {"http": server.http_port, "grpc": server.grpc_port}


@pytest.mark.parametrize(
    "path",
    [
        *(f"{kind}/region/x/register" for kind in (cases.SYSTEM, cases.CUDA)),
        *(f"{kind}/region/x/unregister" for kind in (cases.SYSTEM, cases.CUDA)),
        *(f"{kind}/unregister" for kind in (cases.SYSTEM, cases.CUDA)),
    ],
)
def test_clients_are_told_which_option_lets_them_share_memory(closed: dict[str, int], path: str) -> None:
    client = Http(closed["http"])
    status, answer = client.ask("POST", path, b"{}")
    client.connection.close()

    assert status == 501
    assert "--allow-client-shm=true" in answer["error"]


def test_status_and_inference_work_without_shared_memory(closed: dict[str, int]) -> None:
    client = Http(closed["http"])
    infer = {"inputs": [{"name": "INPUT0", **cases.fp32(cases.region("in", 16))}]}

    assert client.ask("GET", f"{cases.SYSTEM}/status") == (200, [])
    assert client.ask("GET", f"{cases.CUDA}/status") == (200, [])
    assert client.ask("POST", "/v2/models/numbers/infer", infer)[0] == 404
    client.connection.close()


def test_grpc_calls_are_unimplemented_without_the_option(closed: dict[str, int], stub_of: Any) -> None:
    stub = stub_of(closed["grpc"])
    for name in ("SystemSharedMemory", "CudaSharedMemory"):
        for action in ("Register", "Unregister"):
            with pytest.raises(grpc.RpcError) as caught:
                getattr(stub, f"{name}{action}")(getattr(service_pb2, f"{name}{action}Request")(name="x"))
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
            assert "--allow-client-shm=true" in caught.value.details()
        status = getattr(stub, f"{name}Status")(getattr(service_pb2, f"{name}StatusRequest")())
        assert not status.regions


def test_the_extensions_are_listed(ours: dict[str, int], http_of: Any) -> None:
    _, metadata = http_of(ours["http"]).ask("GET", "/v2")

    assert {"classification", "system_shared_memory", "cuda_shared_memory"} <= set(metadata["extensions"])
