"""One server with small models, for all tests of this distribution."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """It serves `echo`, `texts`, `single`."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    repository.model("echo", _identity([("FP32", [16])], 8) | {"dynamic_batching": {}})
    repository.model("texts", _identity([("STRING", [-1]), ("INT32", [2])], 4))
    repository.model("single", _identity([("FP64", [2])], 0))
    with ServerProcess("--model-repository", repository.path) as process:
        yield process


@pytest.fixture(scope="session")
def urls(server: ServerProcess) -> dict[str, str]:
    """Where it is, by protocol."""
    ports = server.ports
    return {
        "http": f"127.0.0.1:{ports['HTTPService']}",
        "grpc": f"127.0.0.1:{ports['GRPCInferenceService']}",
    }


def _identity(tensors: list[tuple[str, list[int]]], max_batch_size: int) -> dict[str, object]:
    def entries(prefix: str) -> list[dict[str, object]]:
        return [
            {"name": f"{prefix}{index}", "data_type": f"TYPE_{datatype}", "dims": dims}
            for index, (datatype, dims) in enumerate(tensors)
        ]

    return {
        "backend": "identity",
        "max_batch_size": max_batch_size,
        "input": entries("INPUT"),
        "output": entries("OUTPUT"),
    }
