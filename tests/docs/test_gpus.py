"""What the page on GPUs and processors shows is what the server takes and says."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tritonpy.config.complete import normalize
from tritonpy.config.load import parse_config
from tritonpy.config.validate import check_instance_groups
from tritonpy.config.write import config_to_dict
from tritonpy.devices.device import Device, DeviceSample
from tritonpy.devices.gpus import Gpus
from tritonpy.model.placement import place_instances
from tritonpy_sdk.repository import ModelRepository

PAGE = (Path(__file__).parent.parent.parent / "docs/how-to/gpus.md").read_text()
COMMANDS = re.findall(r"^\$ (corectl serve .*)$", PAGE, re.MULTILINE)
GROUPS, FILES, POLICY = re.findall(r"```protobuf\n(.*?)```", PAGE, re.DOTALL)
(LINE,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL)
IDENTITY = {
    "backend": "identity",
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [1]}],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_start_a_server(served: Callable[..., Any], tmp_path: Path, command: str) -> None:
    ModelRepository(tmp_path).model("m", IDENTITY)
    flags = shlex.split(command)[4:]

    server = served(f"--model-repository={tmp_path}", *flags)

    assert len(COMMANDS) == 2
    if "0-1" in command and len(os.sched_getaffinity(0)) > 1:
        assert "does not have" not in server.log


def test_the_instances_of_the_page_are_where_it_says() -> None:
    config = parse_config(f'name: "m" backend: "python" {GROUPS}', "config.pbtxt")
    normalize(config, gpus=[0, 1])
    check_instance_groups(config, [0, 1])

    slots = place_instances(config_to_dict(config))

    assert [(slot.name, slot.device) for slot in slots] == [
        ("m_0_0", "GPU device 0"),
        ("m_0_0", "GPU device 1"),
        ("m_0_1", "GPU device 0"),
        ("m_0_1", "GPU device 1"),
        ("m_1_0", "CPU device 0"),
    ]


def test_the_other_fragments_are_configurations() -> None:
    files = parse_config(FILES, "config.pbtxt")
    policy = parse_config(POLICY, "config.pbtxt")

    assert dict(files.cc_model_filenames) == {"8.6": "model_ampere.onnx", "9.0": "model_hopper.onnx"}
    assert [group.host_policy for group in policy.instance_group] == ["near"]
    assert any(f"--host-policy={policy.instance_group[0].host_policy}," in command for command in COMMANDS)


def test_the_line_of_the_log_is_as_shown(caplog: pytest.LogCaptureFixture) -> None:
    class Hopper:
        def find(self) -> list[Device]:
            mib = 1 << 20
            memory = 81559 * mib, 80994 * mib
            return [Device(0, "NVIDIA H100", "GPU-0", (9, 0), *memory, "0000:3b:00.0", 0)]

        def used_memory_byte_size(self, device: Device) -> int:
            return 0

        def sample(self, device: Device) -> DeviceSample:
            return DeviceSample()

    caplog.set_level(logging.INFO)

    Gpus(Hopper()).discover()

    assert caplog.messages == [LINE]
