"""Servers with stand-in GPUs, and models that say where they run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tritonpy.devices.device import Device, DeviceSample, NoDevices
from tritonpy.server import Server

from ..servers import local_options

GIB = 1 << 30
CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "SAID", "data_type": "TYPE_STRING", "dims": [1]}],
}
WHERE = """
import json
import os
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

AT_IMPORT = sorted(os.sched_getaffinity(0))


class TritonPythonModel:
    def initialize(self, args):
        self.args = {key: args[key] for key in args if key.startswith("model_instance")}

    def execute(self, requests):
        said = json.dumps({
            **self.args,
            "import": AT_IMPORT,
            "cores": sorted(os.sched_getaffinity(0)),
            "pid": os.getpid(),
        })
        tensor = pb_utils.Tensor("SAID", np.array([said], object))
        return [pb_utils.InferenceResponse([tensor]) for _ in requests]
"""


class Machine:
    """Stand-in GPUs; satisfies `DeviceFinder`."""

    def __init__(self, *capabilities: tuple[int, int], used: int = 0) -> None:
        self.capabilities = capabilities
        self.used = used

    def find(self) -> Sequence[Device]:
        if not self.capabilities:
            raise NoDevices("none in this test")
        return [
            Device(id, "Test GPU", f"GPU-{id}", capability, 10 * GIB, 10 * GIB, "0000:3b:00.0")
            for id, capability in enumerate(self.capabilities)
        ]

    def used_memory_byte_size(self, device: Device) -> int:
        return self.used

    def sample(self, device: Device) -> DeviceSample:
        return DeviceSample(0.25, 10 * GIB, self.used, 50.5, 250.0, 1000.25)


class Asked:
    """A server of this process, spoken to over HTTP."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{server.http_port}/v2"

    def post(self, path: str, document: object = None) -> Any:
        """The answer's JSON; an error's too."""
        request = Request(f"{self.url}/{path}", json.dumps(document or {}).encode())
        try:
            with urlopen(request, timeout=30) as answer:
                body = answer.read()
        except HTTPError as error:
            with error:
                body = error.read()
        return json.loads(body) if body else {}

    def where(self, model: str) -> dict[str, Any]:
        """What an instance of a model says of itself."""
        document = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [0]}]}
        answer = self.post(f"models/{model}/infer", document)
        said: dict[str, Any] = json.loads(answer["outputs"][0]["data"][0])
        return said

    def config(self, model: str) -> dict[str, Any]:
        """The configuration that is served."""
        with urlopen(f"{self.url}/models/{model}/config", timeout=30) as answer:
            config: dict[str, Any] = json.load(answer)
        return config

    def reason(self, model: str) -> str:
        """Why a model is not there, from the repository index."""
        entries = self.post("repository/index")
        return str(next(entry for entry in entries if entry["name"] == model)["reason"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Asked]]:
    """Start a server on the repository `tmp_path`, with a `Machine`'s GPUs and options."""
    with ExitStack() as stack:

        def run(machine: Machine | None = None, plugins: Any = None, **options: Any) -> Asked:
            settings = local_options(tmp_path, allow_grpc=False, allow_metrics=False, **options)
            server = Server(settings, plugins=plugins, gpu_finder=machine or Machine())
            return Asked(stack.enter_context(server))

        yield run


@pytest.fixture
def machine() -> type[Machine]:
    """Make stand-in GPUs, by their compute capabilities."""
    return Machine


@pytest.fixture
def where() -> str:
    """A `model.py` that says where it runs."""
    return WHERE


@pytest.fixture
def config() -> dict[str, Any]:
    """The configuration of `where`."""
    return dict(CONFIG)
