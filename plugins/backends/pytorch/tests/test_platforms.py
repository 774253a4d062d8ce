"""Packages that were compiled for another machine are refused before their library is opened."""

from __future__ import annotations

import io
import json
import platform
import sys
import zipfile

import pytest
from tritonpy.plugin import Unsupported
from tritonpy_backend_pytorch.platforms import cpu_flags, unfit_reason

HERE = {"AOTI_PLATFORM": sys.platform, "AOTI_MACHINE": platform.machine()}
FLAGS = frozenset({"sse4_2", "avx2", "fma", "avx512f", "avx512dq", "avx512vl", "avx512bw"})


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, ""),
        (HERE, ""),
        (HERE | {"AOTI_CPU_ISA": "AVX512"}, ""),
        (HERE | {"AOTI_CPU_ISA": "SOMETHING_NEW"}, ""),
        ({"AOTI_PLATFORM": "win32"}, f"it was compiled for win32, this is {sys.platform}"),
        (
            HERE | {"AOTI_MACHINE": "riscv128"},
            f"it was compiled for riscv128, this is {platform.machine()}",
        ),
        (
            HERE | {"AOTI_CPU_ISA": "AVX512 AVX512_VNNI AMX_TILE"},
            "it was compiled for processors with AVX512_VNNI, and this one lacks avx512_vnni",
        ),
    ],
)
def test_the_metadata_are_compared_with_the_machine(metadata, reason):
    assert unfit_reason(metadata, FLAGS) == reason


def test_a_system_that_does_not_tell_its_instructions_refuses_nothing(tmp_path):
    assert cpu_flags(tmp_path / "cpuinfo") == frozenset()
    assert unfit_reason({"AOTI_CPU_ISA": "AVX512"}, frozenset()) == ""


def test_flags_are_those_of_the_first_processor(tmp_path):
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n"
    )

    assert cpu_flags(tmp_path / "cpuinfo") == {"fpu", "avx2"}


def package(**metadata):
    folder = "net/data/aotinductor/model/"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("net/archive_format", "pt2")
        archive.writestr(folder + "x.wrapper_metadata.json", json.dumps(metadata))
        archive.writestr(folder + "x.wrapper.so", "no library")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"AOTI_MACHINE": "riscv128"}, "cannot run here: it was compiled for riscv128"),
        ({"AOTI_DEVICE_KEY": "cuda"}, "it was compiled for cuda, and the instance is on cpu"),
    ],
)
def test_a_package_for_another_machine_is_refused_and_never_opened(load, metadata, message):
    pytest.importorskip("torch")
    tensor = {"name": "X", "data_type": "TYPE_FP32", "dims": [1]}

    with pytest.raises(Unsupported, match=message):
        load(
            package(**metadata),
            {"platform": "torch_aoti", "input": [tensor], "output": [tensor | {"name": "Y"}]},
        )
