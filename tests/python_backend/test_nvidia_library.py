"""Processes and shared memory of NVIDIA's own Python backend, which a model asks for by its file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import tritonclient.http as httpclient
from tritonclient.utils import InferenceServerException
from tritonpy_sdk.repository import ModelRepository
from tritonpy_sdk.testing import ServerProcess, until

from .conftest import nvidias_backend

pytestmark = pytest.mark.parity

DOUBLES = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", 2 * array)]) for array in arrays]
"""
CALLS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.twice(pb_utils.get_input_tensor_by_name(request, "IN")) for request in requests]

    def twice(self, tensor):
        call = pb_utils.InferenceRequest(
            model_name="doubles", requested_output_names=["OUT"], inputs=[tensor]
        )
        response = call.exec()
        if response.has_error():
            return pb_utils.InferenceResponse(error=response.error())
        return pb_utils.InferenceResponse(response.output_tensors())
"""
MODELS = {"doubles": DOUBLES, "calls": CALLS}
CONFIG = {
    "backend": "python",
    "runtime": "libtriton_python.so",
    "max_batch_size": 8,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
}

Corectl = Callable[..., ServerProcess]


class Stubs:
    """The stub processes that execute the models of a repository."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository

    def found(self) -> dict[str, psutil.Process]:
        """Those of the moment, by model."""
        found = {}
        for process in psutil.process_iter(["cmdline"]):
            program, path, *_ = [*(process.info["cmdline"] or ()), "", ""]
            if program.endswith("triton_python_backend_stub") and Path(path).is_relative_to(self._repository):
                found[Path(path).parents[1].name] = process
        return found

    def wait_until_gone(self, *stubs: tuple[int, Path]) -> None:
        """Wait until processes and their shared memory are gone."""
        until(
            lambda: not any(psutil.pid_exists(pid) or region.exists() for pid, region in stubs),
            lambda: f"stubs and their memory are gone: {stubs}; still there: {self.found()}",
        )

    def seen(self) -> dict[str, tuple[int, Path]]:
        """Process and shared memory by model."""
        return {name: (stub.pid, Path("/dev/shm") / stub.cmdline()[2]) for name, stub in self.found().items()}


def serve(corectl: Corectl, root: Path, isolation: str) -> tuple[ServerProcess, Stubs]:
    models = ModelRepository(root)
    for name, source in MODELS.items():
        parameters = {"TRITONPY_ISOLATION": {"string_value": isolation}}
        models.model(name, {**CONFIG, "parameters": parameters}, {"model.py": source})
    environment = dict(os.environ)
    flag = nvidias_backend(environment)
    control = ["--model-control-mode=explicit", *(f"--load-model={name}" for name in MODELS)]
    return corectl("--model-repository", root, flag, *control, environment=environment), Stubs(root)


def answer(server: ServerProcess, model: str = "calls") -> list[float]:
    given = httpclient.InferInput("IN", [1, 2], "FP32")
    given.set_data_from_numpy(np.array([[1, 2]], np.float32))
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        return client.infer(model, [given]).as_numpy("OUT")[0].tolist()


@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_a_model_s_stub_and_its_memory_go_with_the_model_and_with_the_server(
    corectl: Corectl, tmp_path: Path, isolation: str
) -> None:
    server, stubs = serve(corectl, tmp_path, isolation)
    assert answer(server) == [2, 4]
    first = stubs.seen()
    assert first.keys() == MODELS.keys()
    assert all(region.exists() for _, region in first.values())

    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        client.unload_model("doubles")
        stubs.wait_until_gone(first["doubles"])
        client.load_model("doubles")
    assert answer(server) == [2, 4]
    second = stubs.seen()
    assert server.stop() == 0

    assert second["calls"] == first["calls"]
    stubs.wait_until_gone(*second.values())


def test_a_stub_and_its_memory_go_with_a_killed_worker_and_the_next_worker_has_another(
    corectl: Corectl, tmp_path: Path
) -> None:
    server, stubs = serve(corectl, tmp_path, "process")
    first = stubs.seen()

    os.kill(stubs.found()["doubles"].ppid(), signal.SIGKILL)
    stubs.wait_until_gone(first["doubles"])
    server.wait_for_log("instance 'doubles_0' restarted")

    assert answer(server) == [2, 4]
    second = stubs.seen()
    server.process.kill()
    stubs.wait_until_gone(*second.values())


def test_a_killed_stub_fails_requests_until_its_model_is_loaded_again(
    corectl: Corectl, tmp_path: Path
) -> None:
    server, stubs = serve(corectl, tmp_path, "process")

    stubs.found()["doubles"].kill()

    for _ in range(2):
        with pytest.raises(InferenceServerException, match="Stub process 'doubles_0' is not healthy"):
            answer(server, "doubles")
    with httpclient.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        client.unload_model("doubles")
        client.load_model("doubles")
    assert answer(server) == [2, 4]
