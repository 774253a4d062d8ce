"""GPUs as they are found on a machine that has some, and models placed on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tritonpy.devices.device import Device, NoDevices
from tritonpy.devices.nvml import NvmlFinder
from tritonpy_sdk.repository import ModelRepository

pytestmark = pytest.mark.gpu

CONFIG = {
    "backend": "python",
    "input": [{"name": "X", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "DEVICE", "data_type": "TYPE_STRING", "dims": [2]}],
}
MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.device = [args["model_instance_kind"], args["model_instance_device_id"]]

    def execute(self, requests):
        tensor = pb_utils.Tensor("DEVICE", np.array(self.device, object))
        return [pb_utils.InferenceResponse([tensor]) for _ in requests]
"""


@pytest.fixture
def devices() -> list[Device]:
    """What is here; without anything, or where its numbers would be others, the test is skipped."""
    try:
        return list(NvmlFinder().find())
    except NoDevices as exc:
        pytest.skip(str(exc))


def queried(*fields: str) -> list[list[str]]:
    """What `nvidia-smi` says of each device."""
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines]


def post(url: str, document: object = None) -> Any:
    try:
        with urlopen(Request(url, json.dumps(document or {}).encode()), timeout=60) as answer:
            body = answer.read()
    except HTTPError as error:
        with error:
            body = error.read()
    return json.loads(body) if body else {}


def test_devices_are_described_as_by_nvidia_smi(devices: list[Device]) -> None:
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        pytest.skip("nvidia-smi does not heed CUDA_VISIBLE_DEVICES")
    rows = queried("uuid", "name", "compute_cap", "pci.bus_id", "memory.total")

    for device in devices:
        uuid, name, capability, bus, memory_mib = rows[device.id]
        assert (device.uuid, device.name, device.capability_text) == (uuid, name, capability)
        assert bus.lower().endswith(device.pci_bus)
        assert abs(device.memory_byte_size / (1 << 20) - float(memory_mib)) <= 1
        assert 0 < device.free_memory_byte_size <= device.memory_byte_size


@pytest.mark.parametrize("written", ["uuid", "beginning", "none"])
def test_what_is_visible_is_what_cuda_would_see(devices: list[Device], written: str) -> None:
    chosen = devices[-1].uuid
    setting = {"uuid": chosen, "beginning": chosen[:20], "none": ""}[written]
    program = (
        "from tritonpy.devices.gpus import Gpus; gpus = Gpus(); gpus.discover(); print(gpus.ids)\n"
        "from cuda.bindings import runtime; print(runtime.cudaGetDeviceCount()[1] or 0)"
    )
    pytest.importorskip("cuda.bindings.runtime")

    output = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": setting},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")

    assert output[:2] == (["[]", "0"] if written == "none" else ["[0]", "1"])


def test_a_model_that_says_nothing_has_an_instance_on_each_device(
    devices: list[Device], corectl: Callable[..., Any], tmp_path: Path
) -> None:
    ModelRepository(tmp_path).python("where", MODEL, CONFIG)
    server = corectl(f"--model-repository={tmp_path}")
    url = f"http://127.0.0.1:{server.ports['HTTPService']}/v2/models/where"
    document = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1], "data": [0]}]}

    answers = {tuple(post(f"{url}/infer", document)["outputs"][0]["data"]) for _ in range(50)}
    with urlopen(f"{url}/config", timeout=60) as answer:
        (group,) = json.load(answer)["instance_group"]

    usable = [device.id for device in devices if device.compute_capability >= (6, 0)]
    assert (group["kind"], group["gpus"]) == ("KIND_GPU", usable)
    assert answers <= {("GPU", str(id)) for id in usable}
    for id in usable:
        assert f"where_0 (GPU device {id})" in server.log


def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(
    devices: list[Device], corectl: Callable[..., Any], tmp_path: Path
) -> None:
    missing = max(device.id for device in devices) + 1
    group = {"kind": "KIND_GPU", "gpus": [missing]}
    ModelRepository(tmp_path).python("where", MODEL, {**CONFIG, "instance_group": [group]})

    server = corectl(f"--model-repository={tmp_path}", "--exit-on-error=false")

    usable = ", ".join(str(device.id) for device in devices if device.compute_capability >= (6, 0))
    assert f"unsupported gpu id {missing}. GPUs with at least the minimum" in server.log
    assert f"are: {usable}" in server.log


def test_no_instance_is_started_beyond_the_limit_of_memory(
    devices: list[Device], corectl: Callable[..., Any], tmp_path: Path
) -> None:
    """A driver takes some memory of a device that nobody uses: a limit of nothing is always exceeded."""
    first = devices[0].id
    group = {"kind": "KIND_GPU", "gpus": [first]}
    ModelRepository(tmp_path).python("where", MODEL, {**CONFIG, "instance_group": [group]})
    server = corectl(
        f"--model-repository={tmp_path}",
        "--model-control-mode=explicit",
        f"--model-load-gpu-limit={first}:0.0",
    )

    refused = post(f"http://127.0.0.1:{server.ports['HTTPService']}/v2/repository/models/where/load")

    assert f"memory limit set for GPU {first} has exceeded, model loading is rejected" in refused["error"]


def test_onnx_runtime_runs_on_the_gpu_when_its_wheel_can(
    devices: list[Device], corectl: Callable[..., Any], tmp_path: Path
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("the CPU wheel of onnxruntime is installed")
    from onnx import parser

    text = '<ir_version: 8, opset_import: ["" : 17]> net (float[N,3] X) => (float[N,3] Y) { Y = Neg(X) }'
    ModelRepository(tmp_path).onnx("net", parser.parse_model(text).SerializeToString())
    server = corectl(f"--model-repository={tmp_path}")
    document = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}

    answer = post(f"http://127.0.0.1:{server.ports['HTTPService']}/v2/models/net/infer", document)

    assert answer["outputs"][0]["data"] == [-1, -2, -3]
    assert f"net_0 (GPU device {devices[0].id})" in server.log
