"""Facts that a backend in C asks for: of its instance, memory and inputs; on ours and on a real server."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
import tritonclient.http as httpclient
from tritonpy_sdk.repository import ModelRepository

from ..servers import OURS_AND_REAL, serving
from .conftest import Compiled

CORE = min(os.sched_getaffinity(0))
POLICIES = (
    ("mine", "numa-node", "0"),
    ("mine", "cpu-cores", f"{CORE}-{CORE}"),
    ("model", "cpu-cores", "0-4095"),
)
TENSORS = {
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
    "output": [{"name": "FACTS", "data_type": "TYPE_STRING", "dims": [-1]}],
}
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "placed": {
        "instance_group": [
            {
                "kind": "KIND_CPU",
                "host_policy": "mine",
                "secondary_devices": [{"kind": "KIND_NVDLA", "device_id": 3}],
            }
        ]
    },
    "whole": {"instance_group": [{"kind": "KIND_MODEL"}]},
    "several": {"instance_group": [{"kind": "KIND_CPU", "count": 2}]},
}
ISOLATIONS = ("process", "thread")


@pytest.fixture(scope="module", params=OURS_AND_REAL)
def url(
    request: pytest.FixtureRequest, compiled: Compiled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    root = tmp_path_factory.mktemp(request.param)
    (root / "backends/telling").mkdir(parents=True)
    shutil.copy(compiled("backends/telling.c"), root / "backends/telling/libtriton_telling.so")
    models = ModelRepository(root / "models")
    for name, config in MODELS.items():
        for isolation in ISOLATIONS:
            parameters = {"TRITONPY_ISOLATION": {"string_value": isolation}}
            whole = {"backend": "telling", **TENSORS, **config, "parameters": parameters}
            models.model(f"{name}_{isolation}", whole)
    with serving(
        request.param,
        request,
        models.path,
        f"--backend-directory={root / 'backends'}",
        *(f"--host-policy={name},{setting}={value}" for name, setting, value in POLICIES),
        backend_directory=str(root / "backends"),
        host_policies=POLICIES,
    ) as ports:
        yield f"127.0.0.1:{ports['http']}"


def facts(url: str, model: str) -> list[str]:
    """What the backend tells, a line each."""
    with httpclient.InferenceServerClient(url) as client:
        given = httpclient.InferInput("INPUT0", [2], "INT32")
        given.set_data_from_numpy(np.zeros(2, np.int32))
        answer = client.infer(model, [given]).as_numpy("FACTS")
    assert answer is not None
    return answer[0].decode().splitlines()


def told(lines: list[str], *subjects: str) -> list[str]:
    return [line for line in lines if line.startswith(subjects)]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize(
    ("model", "policy", "kind"),
    [
        ("plain", '{"cpu":{}}', "CPU"),
        ("placed", f'{{"mine":{{"cpu-cores":"{CORE}-{CORE}","numa-node":"0"}}}}', "CPU"),
        ("whole", '{"model":{"cpu-cores":"0-4095"}}', "MODEL"),
    ],
)
def test_an_instance_has_its_host_policy(
    request: pytest.FixtureRequest, url: str, model: str, policy: str, kind: str, isolation: str
) -> None:
    lines = facts(url, f"{model}_{isolation}")

    assert told(lines, "policy", "kind", "passive") == [f"kind: {kind}", f"policy: {policy}", "passive: 0"]
    cores = {CORE} if model == "placed" else os.sched_getaffinity(0)
    if model == "plain" and "real" in request.node.callspec.id:
        return  # there it may run on the processors of any policy, by chance
    assert told(lines, "cores") == [f"cores: {' '.join(map(str, sorted(cores)))}"]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_an_instance_has_secondary_devices_and_profiles(url: str, isolation: str) -> None:
    lines = facts(url, f"placed_{isolation}")

    bounds = "Invalid argument: out of bounds index {}: instance is configured with {}"
    assert told(lines, "secondary", "profile") == [
        "secondary devices: 1",
        "secondary device: KIND_NVDLA 3",
        f"secondary device: {bounds.format(1, '1 secondary devices')}",
        "profiles: 0",
        f"profile: {bounds.format(0, '0 profiles')}",
    ]


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU")
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_memory_is_there_as_far_as_there_are_devices(url: str, isolation: str) -> None:
    assert told(facts(url, f"plain_{isolation}"), "CPU", "GPU") == [
        "CPU: allocated",
        "CPU_PINNED: Internal: failed to allocate pinned system memory: no pinned memory pool",
        "GPU: Unavailable: CudaMemoryManager has no preallocated CUDA memory",
    ]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_an_input_has_one_buffer_for_each_host_policy(url: str, isolation: str) -> None:
    assert told(facts(url, f"plain_{isolation}"), "input", "buffer") == [
        "input: INPUT0 8 1",
        "buffer for policy: 1 8 0 0",
        "buffer with attributes: 1 8 0",
        "buffer for policy: 0 0 0 0",
    ]


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_memory_that_is_reported_is_in_the_statistics(url: str, isolation: str) -> None:
    model = f"whole_{isolation}"
    facts(url, model)

    (stats,) = json.load(urlopen(f"http://{url}/v2/models/{model}/stats"))["model_stats"]
    assert stats["memory_usage"] == [{"type": "CPU", "id": 0, "byte_size": 22000}]


def test_memory_of_several_instances_is_added_up(request: pytest.FixtureRequest, url: str) -> None:
    def reported(model: str) -> int:
        (stats,) = json.load(urlopen(f"http://{url}/v2/models/{model}/stats"))["model_stats"]
        (usage,) = stats["memory_usage"]
        return int(usage["byte_size"])

    assert reported("several_thread") == 10000 + 2 * 1000
    # Each process has the model for itself.
    is_real = "real" in request.node.callspec.id
    assert reported("several_process") == (12000 if is_real else 2 * 11000)
