"""SIGKILL to the server: its workers go, whatever they are at, and the shared memory goes with them."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import until

CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [-1]}],
}
MODEL = """
import time
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", self.answer(request.inputs()[0]))])
                for request in requests]
    def answer(self, tensor):
        {answer}
"""
ECHO = MODEL.format(answer="return tensor.as_numpy()")
CALLER = MODEL.format(
    answer="""call = pb_utils.InferenceRequest(
            model_name="echo", inputs=[tensor], requested_output_names=["Y"]
        )
        return call.exec().output_tensors()[0].as_numpy()"""
)
BUSY = MODEL.format(answer="time.sleep(1000)")
COMPUTING = MODEL.format(answer="while True: pass")
VALUES = np.arange(1_000_000, dtype=np.float32)  # 4 MB


def infer(port: int, model: str) -> bytes:
    """Send the values; the values of the answer."""
    size = {"binary_data_size": VALUES.nbytes}
    head = {
        "inputs": [{"name": "X", "datatype": "FP32", "shape": [len(VALUES)], "parameters": size}],
        "outputs": [{"name": "Y", "parameters": {"binary_data": True}}],
    }
    text = json.dumps(head).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {"Inference-Header-Content-Length": str(len(text))}
        connection.request("POST", f"/v2/models/{model}/infer", text + VALUES.tobytes(), headers)
        response = connection.getresponse()
        body = response.read()
        assert response.status == 200, body
        return body[int(response.headers["Inference-Header-Content-Length"]) :]
    finally:
        connection.close()


def ask_until_it_is_gone(port: int, model: str, answers: list[bytes]) -> None:
    while True:
        try:
            answers.append(infer(port, model))
        except (OSError, http.client.HTTPException):
            return


def maps_of(pid: int) -> list[str]:
    """What a process has mapped; nothing where it is another user's or has ended."""
    try:
        return Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []


def shared_memory_names() -> set[str]:
    """What a server names its shared memory; regions of tests that run meanwhile are called otherwise."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("tritonpy-")}


def segments_of(pid: int) -> set[str]:
    """The inodes of the shared memory that a server and its workers have in common."""
    return {line.split()[4] for line in maps_of(pid) if "/memfd:tritonpy" in line}


def test_a_killed_server_leaves_no_worker_and_no_shared_memory(
    corectl: Callable[..., Any], tmp_path: Path
) -> None:
    names = shared_memory_names()
    models = ModelRepository(tmp_path)
    models.python("echo", ECHO, {**CONFIG, "instance_group": [{"count": 2, "kind": "KIND_CPU"}]})
    for name, code in (("caller", CALLER), ("busy", BUSY), ("computing", COMPUTING)):
        models.python(name, code, CONFIG)
    server = corectl(f"--model-repository={tmp_path}")
    workers = psutil.Process(server.process.pid).children(recursive=True)
    answers: dict[str, list[bytes]] = {"echo": [], "caller": [], "busy": [], "computing": []}
    threads = [
        threading.Thread(
            target=ask_until_it_is_gone, args=(server.ports["HTTPService"], model, answers[model])
        )
        for model in ("echo", "echo", "echo", "caller", "caller", "busy", "computing")
    ]
    for thread in threads:
        thread.start()
    until(lambda: min(len(answers["echo"]), len(answers["caller"])) >= 5, "five answers of each")
    pids = [server.process.pid, *(worker.pid for worker in workers)]
    segments = set().union(*map(segments_of, pids))
    assert not [line for pid in pids for line in maps_of(pid) if "/dev/shm/" in line]  # it would stay

    for worker in workers[::2]:
        worker.suspend()
    server.process.send_signal(signal.SIGKILL)

    assert server.wait() == -signal.SIGKILL
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert len(workers) >= 5
    assert not alive
    for thread in threads:
        thread.join(30)
    assert {values for name in ("echo", "caller") for values in answers[name]} == {VALUES.tobytes()}
    assert answers["busy"] == answers["computing"] == []
    assert len(segments) >= 5
    assert shared_memory_names() == names
    assert not [pid for pid in psutil.pids() if segments & segments_of(pid)]


def test_the_next_server_removes_the_files_that_a_killed_one_was_sent(
    corectl: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    models = ModelRepository(tmp_path / "models")
    arguments = (f"--model-repository={models.path}", "--model-control-mode=explicit")
    server, other = corectl(*arguments), corectl(*arguments)
    for port in (server.ports["HTTPService"], other.ports["HTTPService"]):
        load_with_files(port)
    assert len(list(temporary.rglob("model.py"))) == 2

    server.process.send_signal(signal.SIGKILL)
    server.wait()
    assert len(list(temporary.rglob("model.py"))) == 2
    third = corectl(*arguments)

    assert len(list(temporary.rglob("model.py"))) == 1  # another one serves from it
    assert infer(other.ports["HTTPService"], "sent") == VALUES.tobytes()
    assert other.stop() == third.stop() == 0
    assert list(temporary.rglob("model.py")) == []


def load_with_files(port: int) -> None:
    """Load a model that comes with the request."""
    parameters = {
        "config": json.dumps(CONFIG),
        "file:1/model.py": base64.b64encode(ECHO.encode()).decode(),
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = json.dumps({"parameters": parameters})
    connection.request("POST", "/v2/repository/models/sent/load", body)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    assert response.status == 200, text
