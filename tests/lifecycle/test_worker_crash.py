"""A worker that dies costs the batch it was at, is named, and is replaced."""

from __future__ import annotations

import gc
import http.client
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.server import Server
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until


def config(delay_ms: int, **more: Any) -> dict[str, Any]:
    return {
        "backend": "identity",
        "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]}],
        "parameters": {
            "execute_delay_ms": {"string_value": str(delay_ms)},
            "TRITONPY_ISOLATION": {"string_value": "process"},
        },
        **more,
    }


def infer(port: int, model: str = "m", count: int = 2) -> tuple[int, dict[str, Any]]:
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [count], "data": [1.0] * count}]}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", f"/v2/models/{model}/infer", json.dumps(body))
    response = connection.getresponse()
    document = json.loads(response.read())
    connection.close()
    return response.status, document


HALTING = """
import os, time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        open({started!r}, "a").close()
        while not os.path.exists({gate!r}):
            time.sleep(0.002)
        return [pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUTPUT0", request.inputs()[0].as_numpy())]
        ) for request in requests]
"""


class HaltingModel:
    """A model that halts in `execute` while its gate is closed.

    Attributes:
        gate: the file that opens it.
    """

    def __init__(self, path: Path) -> None:
        self.gate = path / "gate"
        self._started = path / "started"
        code = HALTING.format(started=str(self._started), gate=str(self.gate))
        tensors = {key: config(0)[key] for key in ("input", "output")}
        ModelRepository(path / "models").python("m", code, {"backend": "python", **tensors})

    def close(self) -> None:
        """Let the next batch halt."""
        self.gate.unlink()
        self._started.unlink()

    def wait_until_it_executes(self) -> None:
        """Until a batch is in `execute`."""
        until(self._started.exists)


def mapping_count() -> int:
    """Mappings of anonymous shared memory in this process, where the server runs."""
    return Path("/proc/self/maps").read_text().count("/memfd:tritonpy")


def shared_memory_names() -> set[str]:
    """What a server names its shared memory; regions of tests that run meanwhile are called otherwise."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("tritonpy-")}


def test_a_killed_worker_fails_its_batch_by_signal_name_and_the_next_requests_are_served(
    serve: Callable[..., Server], tmp_path: Any
) -> None:
    before = shared_memory_names()
    model = HaltingModel(tmp_path)
    server = serve(tmp_path / "models")
    loaded = server.runtime.registry.find("m")
    first_pid = loaded.instances[0].pid  # type: ignore[attr-defined]
    answers: list[Any] = [None] * 4
    threads = []
    for index in range(4):

        def one(index: int = index) -> None:
            answers[index] = infer(server.http_port)

        threads.append(threading.Thread(target=one))
        threads[-1].start()
    until(lambda: loaded.inflight_count == 4)
    model.wait_until_it_executes()

    os.kill(first_pid, signal.SIGKILL)
    model.gate.touch()
    for thread in threads:
        thread.join()

    failed = [document["error"] for status, document in answers if status == 500]
    assert len(failed) == 1, answers
    assert "Stub process 'm_0' is not healthy" in failed[0]
    assert "signal 9 (SIGKILL)" in failed[0]
    assert [status for status, _ in answers].count(200) == 3
    assert loaded.instances[0].pid != first_pid  # type: ignore[attr-defined]
    assert shared_memory_names() == before


def test_a_dead_workers_shared_memory_is_given_back_without_a_garbage_collection(
    serve: Callable[..., Server], tmp_path: Any
) -> None:
    model = HaltingModel(tmp_path)
    server = serve(tmp_path / "models")
    instance = server.runtime.registry.find("m").instances[0]
    model.gate.touch()
    assert infer(server.http_port, count=10_000)[0] == 200  # 40 KB, which travel in shared memory
    model.close()
    gc.collect()
    before = mapping_count()
    gc.disable()
    try:
        client = threading.Thread(target=infer, args=(server.http_port,), kwargs={"count": 10_000})
        client.start()
        model.wait_until_it_executes()
        os.kill(instance.pid, signal.SIGKILL)  # type: ignore[attr-defined]
        model.gate.touch()
        client.join()
        assert infer(server.http_port, count=10_000)[0] == 200

        until(lambda: mapping_count() == before)
    finally:
        gc.enable()


def test_an_idle_workers_death_costs_nothing(serve: Callable[..., Server], tmp_path: Any) -> None:
    ModelRepository(tmp_path).model("m", config(0))
    server = serve(tmp_path)
    instance = server.runtime.registry.find("m").instances[0]
    assert infer(server.http_port)[0] == 200
    for _ in range(3):
        pid = instance.pid  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: instance._worker is not None and instance.pid != pid)  # type: ignore[attr-defined]

        assert infer(server.http_port)[0] == 200


def test_restarts_are_counted_in_a_metric(serve: Callable[..., Server], tmp_path: Any) -> None:
    ModelRepository(tmp_path).model("m", config(0))
    server = serve(tmp_path)
    instance = server.runtime.registry.find("m").instances[0]
    pid = instance.pid  # type: ignore[attr-defined]
    os.kill(pid, signal.SIGKILL)
    until(lambda: instance.pid not in (0, pid) and instance.is_ready)  # type: ignore[attr-defined]
    connection = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()

    assert 'tritonpy_worker_restarts_total{model="m",version="1"} 1' in text


@pytest.mark.parametrize("count", [2, 100_000])
def test_with_two_instances_the_other_one_serves_on(
    serve: Callable[..., Server], tmp_path: Any, count: int
) -> None:
    ModelRepository(tmp_path).model("m", config(5, instance_group=[{"count": 2, "kind": "KIND_CPU"}]))
    server = serve(tmp_path)
    instances = server.runtime.registry.find("m").instances
    os.kill(instances[0].pid, signal.SIGKILL)  # type: ignore[attr-defined]

    statuses = [infer(server.http_port, count=count)[0] for _ in range(20)]

    assert statuses.count(200) >= 19
