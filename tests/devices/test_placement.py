"""Models on machines with GPUs, which are stand-ins here: what is placed where, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy_sdk.repository import ModelRepository

GIB = 1 << 30
GPU = (8, 6)


def slots(server: Any) -> list[tuple[str, str, int]]:
    """Name, kind and device of every instance of the only model, as its hooks are told."""
    (loaded,) = server.server.runtime.registry.all_models()
    return [(slot.name, slot.kind, slot.device_id) for slot in loaded.instance_set.slots]


def test_a_model_that_says_nothing_has_an_instance_on_each_gpu(
    start: Callable[..., Any], machine: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    ModelRepository(tmp_path).python("m", where, config)

    server = start(machine(GPU, GPU))

    (group,) = server.config("m")["instance_group"]
    assert (group["name"], group["kind"], group["count"], group["gpus"]) == ("m", "KIND_GPU", 1, [0, 1])
    assert slots(server) == [("m_0", "KIND_GPU", 0), ("m_0", "KIND_GPU", 1)]
    said = server.where("m")
    assert (said["model_instance_kind"], said["model_instance_name"]) == ("GPU", "m_0")


def test_instances_are_made_round_by_round_on_the_gpus_that_a_group_names(
    start: Callable[..., Any], machine: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    groups = [{"kind": "KIND_GPU", "gpus": [1, 0], "count": 2}, {"kind": "KIND_CPU"}]
    ModelRepository(tmp_path).python("m", where, {**config, "instance_group": groups})

    server = start(machine(GPU, GPU))

    assert slots(server) == [
        ("m_0_0", "KIND_GPU", 1),
        ("m_0_0", "KIND_GPU", 0),
        ("m_0_1", "KIND_GPU", 1),
        ("m_0_1", "KIND_GPU", 0),
        ("m_1_0", "KIND_CPU", 0),
    ]


def test_automatic_groups_go_to_the_cpu_where_a_gpu_they_name_is_not_there(
    start: Callable[..., Any], machine: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    ModelRepository(tmp_path).python("m", where, {**config, "instance_group": [{"gpus": [0]}]})

    assert slots(start(machine(GPU))) == [("m_0_0", "KIND_GPU", 0)]
    refused = start(machine(), exit_on_error=False)
    said = "instance group m_0 of model m has kind KIND_CPU but specifies one or more GPUs"
    assert said in refused.reason("m")


@pytest.mark.parametrize(
    ("group", "gpus", "text"),
    [
        (
            {"kind": "KIND_GPU"},
            [],
            "instance group m_0 of model m has kind KIND_GPU but no GPUs are available",
        ),
        (
            {"kind": "KIND_GPU", "gpus": [0]},
            [],
            "instance group m_0 of model m specifies invalid or unsupported gpu id 0. GPUs with at least the "
            "minimum required CUDA compute compatibility of 6.000000 are: ",
        ),
        (
            {"kind": "KIND_GPU", "gpus": [0, 2]},
            [GPU, GPU],
            "specifies invalid or unsupported gpu id 2. GPUs with at least the minimum required CUDA compute "
            "compatibility of 6.000000 are: 0, 1",
        ),
        (
            {"kind": "KIND_GPU", "gpus": [0]},
            [(5, 2), GPU],
            "gpu id 0. GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are: 1",
        ),
        ({"kind": "KIND_CPU", "gpus": [0]}, [GPU], "has kind KIND_CPU but specifies one or more GPUs"),
        ({"kind": "KIND_MODEL", "gpus": [0]}, [GPU], "has kind KIND_MODEL but specifies one or more GPUs"),
    ],
)
def test_what_the_machine_cannot_do_is_refused_in_tritons_words(
    start: Callable[..., Any],
    machine: Callable[..., Any],
    tmp_path: Path,
    where: str,
    config: dict[str, Any],
    group: dict[str, Any],
    gpus: list[tuple[int, int]],
    text: str,
) -> None:
    ModelRepository(tmp_path).python("m", where, {**config, "instance_group": [group]})

    server = start(machine(*gpus), exit_on_error=False)

    assert text in server.reason("m")


def test_the_least_compute_capability_is_that_of_the_flag(
    start: Callable[..., Any], machine: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    models = ModelRepository(tmp_path)
    models.python("m", where, {**config, "instance_group": [{"kind": "KIND_GPU", "gpus": [0]}]})

    server = start(machine((7, 0), GPU), exit_on_error=False, min_compute_capability=7.5)

    assert "compatibility of 7.500000 are: 1" in server.reason("m")


def test_a_load_waits_for_room_on_its_gpu_in_vain_and_may_be_asked_again(
    start: Callable[..., Any], machine: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    ModelRepository(tmp_path).python("m", where, config)
    gpus = machine(GPU, used=6 * GIB)
    server = start(gpus, model_control_mode="explicit", model_load_gpu_limits=((0, 0.5),))

    refused = server.post("repository/models/m/load")
    gpus.used = 4 * GIB
    loaded = server.post("repository/models/m/load")

    assert "can not create model 'm_0': memory limit set for GPU 0 has exceeded" in refused["error"]
    assert loaded == {}
    assert server.where("m")["model_instance_device_id"] == "0"


def test_a_reload_beyond_the_limit_leaves_the_old_instances_serving(
    start: Callable[..., Any], machine: Callable[..., Any], tmp_path: Path, where: str, config: dict[str, Any]
) -> None:
    models = ModelRepository(tmp_path)
    models.python("m", where, {**config, "instance_group": [{"kind": "KIND_CPU"}]})
    limits = {"model_load_gpu_limits": ((0, 0.5),)}
    server = start(machine(GPU, used=6 * GIB), model_control_mode="explicit", load_models=("m",), **limits)

    models.python("m", where, {**config, "instance_group": [{"kind": "KIND_GPU"}]})
    refused = server.post("repository/models/m/load")

    assert "can not create model 'm_0_0': memory limit set for GPU 0" in refused["error"]
    assert server.where("m")["model_instance_kind"] == "CPU"
