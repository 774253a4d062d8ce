"""A machine without GPUs refuses what tritonserver refuses there, and binds instances as it does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tritonpy_sdk.repository import ModelRepository

pytestmark = pytest.mark.parity

LAST = max(os.sched_getaffinity(0))
GROUPS: dict[str, list[dict[str, Any]]] = {
    "gpu": [{"kind": "KIND_GPU"}],
    "gpu_zero": [{"kind": "KIND_GPU", "gpus": [0]}],
    "gpus_twice": [{"kind": "KIND_GPU", "gpus": [0, 1], "count": 2}],
    "cpu_with_gpus": [{"kind": "KIND_CPU", "gpus": [0]}],
    "auto_with_gpus": [{"gpus": [0]}],
    "auto_with_no_such_gpu": [{"gpus": [-1]}],
    "model_with_gpus": [{"kind": "KIND_MODEL", "gpus": [0]}],
    "of_the_model": [{"kind": "KIND_MODEL"}],
    "dla": [{"kind": "KIND_CPU", "secondary_devices": [{"device_id": 1}]}],
    "several": [{"count": 2}, {"name": "mine"}, {"kind": "KIND_MODEL", "count": -1}],
    "bound": [{"host_policy": "last"}],
    "unknown_policy": [{"host_policy": "nobody"}],
    "no_such_core": [{"host_policy": "far"}],
    "no_such_node": [{"host_policy": "node"}],
}
POLICIES = (
    ("last", "cpu-cores", f"{LAST}-{LAST}"),
    ("far", "cpu-cores", "900-901"),
    ("node", "numa-node", "63"),
)
OURS_SAYS_MORE = {"no_such_core", "no_such_node"}  # which policy it is, and what is there


def index(url: str) -> dict[str, tuple[str, str]]:
    """State and reason of each model."""
    with urlopen(Request(f"{url}/repository/index", b"{}"), timeout=60) as answer:
        return {entry["name"]: (entry["state"], entry.get("reason", "")) for entry in json.load(answer)}


def groups(url: str, model: str) -> Any:
    with urlopen(f"{url}/models/{model}/config", timeout=60) as answer:
        shown = json.load(answer)["instance_group"]
    for group in shown:
        for device in group["secondary_devices"]:
            device["device_id"] = int(device["device_id"])  # Triton shows 64-bit ones as text
    return shown


@pytest.mark.timeout(180)
def test_groups_are_placed_or_refused_as_by_the_real_server(
    start: Callable[..., Any],
    real_triton: Callable[..., dict[str, int]],
    tmp_path: Path,
    where: str,
    config: dict[str, Any],
) -> None:
    models = ModelRepository(tmp_path)
    for name, given in GROUPS.items():
        models.python(name, where, {**config, "instance_group": given})
    flags = [f"--host-policy={name},{setting}={value}" for name, setting, value in POLICIES]
    ports = real_triton(tmp_path, *flags, "--exit-on-error=false", "--strict-readiness=false")
    theirs = f"http://127.0.0.1:{ports['http']}/v2"
    ours = start(host_policies=POLICIES, exit_on_error=False)

    expected, got = index(theirs), index(ours.url)

    assert sorted(got) == sorted(expected) == sorted(GROUPS)
    for name, (state, reason) in expected.items():
        assert got[name][0] == state, name
        said = got[name][1]
        if name in OURS_SAYS_MORE:
            assert said.split(":")[:2] == reason.split(":")[:2], name
            continue
        assert said == reason, name
        if state == "READY":
            assert groups(ours.url, name) == groups(theirs, name), name
    assert ours.where("bound")["cores"] == [LAST]
