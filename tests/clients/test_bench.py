"""`corectl bench` beside Triton's own load generator, and against a real Triton."""

from __future__ import annotations

import csv
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tritonpy_bench import Concurrency, Inputs, Load, Rate, Stability, measure
from tritonpy_bench.load import Endpoint, Protocol, SharedMemory
from tritonpy_bench.paces import Pace
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess

from ..differential.servers import Server

pytestmark = [pytest.mark.parity, pytest.mark.timeout(300)]

LAUNCHER = Path(__file__).parents[2] / "benchmarks" / "real_triton.py"
ECHO = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUTPUT0", pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy())]
            )
            for request in requests
        ]
"""
COUNT = """
import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for number in range(int(pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()[0])):
                output = pb_utils.Tensor("OUTPUT0", numpy.array([number], numpy.float32))
                sender.send(pb_utils.InferenceResponse([output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def config(dims: list[int], **more: object) -> dict[str, object]:
    tensor = {"data_type": "TYPE_FP32", "dims": dims}
    return {
        "backend": "python",
        "input": [{"name": "INPUT0", **tensor}],
        "output": [{"name": "OUTPUT0", **tensor}],
        **more,
    }


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real Triton with a model, one with sequences, and a decoupled one."""
    folder = tmp_path_factory.mktemp("real")
    repository = ModelRepository(folder / "models")
    repository.python("echo", ECHO, config([4], max_batch_size=8, dynamic_batching={}))
    repository.python("counted", ECHO, config([4], max_batch_size=8, sequence_batching={}))
    decoupled = config([1], model_transaction_policy={"decoupled": True})
    repository.python("count", COUNT, decoupled)
    with closing(Server(repository.path, folder / "log", is_real=True, options=())) as server:
        yield server


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize(
    ("model", "pace", "shared_memory"),
    [
        ("echo", Concurrency(4), "none"),
        ("echo", Rate(200), "none"),
        ("echo", Concurrency(2), "system"),
        ("counted", Concurrency(2), "none"),
    ],
    ids=str,
)
def test_a_real_triton_is_measured(
    real: Server, protocol: Protocol, model: str, pace: Pace, shared_memory: SharedMemory
) -> None:
    load = Load(
        model=model,
        url=f"127.0.0.1:{real.ports[protocol]}",
        protocol=protocol,
        pace=pace,
        batch_size=1 if model == "counted" else 2,
        shared_memory=shared_memory,
    )

    measured = measure(load, Stability(request_count=40))

    assert measured.total.errors == {}
    [side] = measured.server
    assert side.success_count == measured.latency_ns.count >= 40
    assert side.inference_count == load.batch_size * side.success_count
    assert sum(side.batch_sizes.values()) == side.execution_count
    assert side.closed == {}
    assert 0 < side.durations_us["compute_infer"] < side.durations_us["request"]


@pytest.mark.parametrize(("protocol", "endpoint"), [("grpc", "stream"), ("http", "generate_stream")])
def test_responses_of_a_decoupled_model_of_a_real_triton(
    real: Server, tmp_path: Path, protocol: Protocol, endpoint: Endpoint
) -> None:
    data = tmp_path / "data.json"
    data.write_text('{"data": [{"INPUT0": [3]}]}')
    load = Load(
        model="count",
        url=f"127.0.0.1:{real.ports[protocol]}",
        protocol=protocol,
        endpoint=endpoint,
        inputs=Inputs(data),
    )

    total = measure(load, Stability(request_count=20)).total

    assert (total.errors, total.request_count, total.response_count) == ({}, 20, 60)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer_finds_the_same(tmp_path: Path, protocol: Protocol) -> None:
    """The model takes most of the time, so that a busy machine changes little."""
    tensor = {"data_type": "TYPE_FP32", "dims": [4]}
    waits = {
        "backend": "identity",
        "max_batch_size": 0,
        "input": [{"name": "INPUT0", **tensor}],
        "output": [{"name": "OUTPUT0", **tensor}],
        "parameters": {"execute_delay_ms": {"string_value": "40"}},
        "instance_group": [{"count": 2}],
    }
    ModelRepository(tmp_path / "models").model("waits", waits)
    with ServerProcess("--model-repository", tmp_path / "models") as server:
        url = f"127.0.0.1:{server.http_port if protocol == 'http' else server.grpc_port}"
        rates = {"ours": [], "theirs": []}
        for _ in range(3):
            load = Load(model="waits", url=url, protocol=protocol, pace=Concurrency(2))
            measured = measure(load, Stability(window_s=0.5, most_windows=3, warmup_s=0))
            assert (measured.error_count, measured.server[0].fail_count) == (0, 0)
            rates["ours"].append(measured.infer_per_s)
            rates["theirs"].append(perf_analyzer(url, protocol, tmp_path / "report.csv"))
        counted = measure(load, Stability(request_count=20))
    assert (counted.error_count, counted.latency_ns.count, counted.server[0].success_count) == (0, 20, 20)

    ours, theirs = (statistics.median(found) for found in rates.values())
    # A wide bound, for busy machines; the benchmark compares more closely.
    assert ours == pytest.approx(theirs, rel=0.3)


def perf_analyzer(url: str, protocol: str, report: Path) -> float:
    """What it finds of the same load."""
    words = ["-m", "waits", "-i", protocol, "-u", url, "--concurrency-range", "2", "-f", str(report)]
    words += ["--measurement-interval", "500", "--stability-percentage", "999", "--max-trials", "50"]
    for attempt in range(3):
        done = subprocess.run(
            [sys.executable, str(LAUNCHER), "perf", "--", *words],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        # Now and then it finds nothing in its windows, while all of its requests are answered.
        if done.returncode == 0 or "No valid requests recorded" not in done.stdout + done.stderr:
            break
        assert attempt < 2, done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    [row] = csv.DictReader(report.read_text().splitlines())
    return float(row["Inferences/Second"])
