"""Triton's Model Analyzer in remote mode finds the configurations of a model that this server has."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess

from ..fetched import CACHE, environment

pytestmark = [pytest.mark.neighbours, pytest.mark.timeout(1800)]  # 600 MB, and some seconds for each trial

PACKAGE = "triton-model-analyzer==1.58.0"
LAUNCHER = Path(__file__).parents[2] / "benchmarks" / "real_triton.py"


def test_a_model_is_profiled(tmp_path: Path) -> None:
    python = environment(CACHE / "model-analyzer", PACKAGE)
    tensor = {"data_type": "TYPE_FP32", "dims": [16]}
    repository = ModelRepository(tmp_path / "models")
    repository.model(
        "echo",
        {
            "backend": "identity",
            "max_batch_size": 8,
            "input": [{"name": "INPUT0", **tensor}],
            "output": [{"name": "OUTPUT0", **tensor}],
        },
    )
    perf_analyzer = tmp_path / "perf_analyzer"
    perf_analyzer.write_text(f'#!/bin/sh\nexec {sys.executable} {LAUNCHER} perf -- "$@"\n')
    perf_analyzer.chmod(0o755)
    with ServerProcess("--model-repository", repository.path, "--model-control-mode=explicit") as server:
        settings = {
            "model_repository": str(repository.path),
            "output_model_repository_path": str(tmp_path / "made"),
            "export_path": str(tmp_path / "export"),
            "checkpoint_directory": str(tmp_path / "checkpoints"),
            "triton_launch_mode": "remote",
            "triton_grpc_endpoint": f"localhost:{server.grpc_port}",
            "triton_http_endpoint": f"localhost:{server.http_port}",
            "triton_metrics_url": f"http://localhost:{server.metrics_port}/metrics",
            "perf_analyzer_path": str(perf_analyzer),
            "perf_analyzer_flags": {"measurement-interval": 500},
            "run_config_search_max_concurrency": 1,
            "run_config_search_max_instance_count": 2,
            "run_config_search_max_model_batch_size": 1,
            "profile_models": {"echo": {"cpu_only": True}},
        }
        (tmp_path / "settings.yaml").write_text(json.dumps(settings))
        (tmp_path / "export").mkdir()
        done = subprocess.run(
            [python, "-m", "model_analyzer.entrypoint", "profile", "-f", str(tmp_path / "settings.yaml")],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "200"},
        )

    assert done.returncode == 0, done.stdout + done.stderr
    table = tmp_path / "export/results/metrics-model-inference.csv"
    rows = [*csv.DictReader(table.read_text().splitlines())]
    assert {row["Instance Group"] for row in rows} == {"1:CPU", "2:CPU"}
    assert all(float(row["Throughput (infer/sec)"]) > 0 for row in rows)
