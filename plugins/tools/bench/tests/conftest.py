"""One server with small models, for all tests of this distribution."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """It serves `counted` with sequences, `square` that is decoupled, the ensemble `chain`, and others."""
    repository = ModelRepository(tmp_path_factory.mktemp("models"))
    repository.model("echo", _identity([("FP32", [16])], 8) | {"dynamic_batching": {}})
    repository.model("texts", _identity([("STRING", [-1]), ("INT32", [2])], 4))
    repository.model("single", _identity([("FP64", [2])], 0))
    repository.model("counted", _identity([("INT32", [1])], 4) | {"sequence_batching": {}})
    square = {"data_type": "TYPE_INT32", "dims": [1]}
    repository.model(
        "square",
        {
            "backend": "square",
            "model_transaction_policy": {"decoupled": True},
            "input": [{"name": "IN", **square}],
            "output": [{"name": "OUT", **square}],
        },
    )
    step = {
        "model_name": "single",
        "model_version": -1,
        "input_map": {"INPUT0": "INPUT0"},
        "output_map": {"OUTPUT0": "OUTPUT0"},
    }
    chain = _identity([("FP64", [2])], 0) | {"platform": "ensemble", "ensemble_scheduling": {"step": [step]}}
    repository.model("chain", {key: value for key, value in chain.items() if key != "backend"})
    with ServerProcess("--model-repository", repository.path, "--allow-client-shm=true") as process:
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
