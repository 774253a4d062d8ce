"""The gRPC port at a path of this machine, as sidecars and other containers of a pod call it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tritonclient.grpc import InferenceServerClient
from tritonpy.server import Server

from ..servers import GRPC_TRANSPORTS


@pytest.mark.parametrize("transport", GRPC_TRANSPORTS)
@pytest.mark.parametrize("kind", ["unix", "unix-abstract"])
def test_clients_call_a_path(
    serve: Callable[..., Server],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    transport: str,
    kind: str,
) -> None:
    (tmp_path / "models").mkdir()
    address = f"{kind}:{tmp_path}/socket"
    caplog.set_level("INFO")
    server = serve(tmp_path / "models", grpc_address=address, grpc_port=8001, grpc_transport=transport)

    with InferenceServerClient(address) as client:
        assert client.is_server_live()
    assert f"Started GRPCInferenceService at {address}" in caplog.messages
    server.stop()
    assert [path.name for path in tmp_path.iterdir()] == ["models"]
