"""Triton's own load generator sends sequences to our server, and all of them are answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository

from ..clients.test_perf_analyzer import run
from .stage import add

SEQUENCES = ("--sequence-length", "5", "--sequence-id-range", "1:50", "--concurrency-range", "4")


@pytest.mark.parity  # `make test-all` fetches the program
@pytest.mark.parametrize("strategy", ["direct", "oldest"])
@pytest.mark.parametrize("protocol", ["http", "grpc", "stream"])
def test_it_measures_sequences(
    serve: Callable[..., Server], tmp_path: Path, strategy: str, protocol: str
) -> None:
    models = ModelRepository(tmp_path / "models")
    add(models, tmp_path, "sums", instances=2, **{strategy: {}})
    server = serve(models.path, exit_timeout_s=0.1)
    ports = SimpleNamespace(
        http=f"127.0.0.1:{server.http_port}",
        grpc=f"127.0.0.1:{server.grpc_port}",
    )
    words = [
        *SEQUENCES,
        "--shape",
        "X:1",
        "--input-data",
        "zero",
        *(["--streaming"] if protocol == "stream" else []),
    ]
    program_protocol = "http" if protocol == "http" else "grpc"

    rows = run(ports, tmp_path / "report.csv", program_protocol, "sums", *words)  # type: ignore[arg-type]

    assert float(rows[0]["Inferences/Second"]) > 0
