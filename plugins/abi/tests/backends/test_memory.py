"""Memory that backends in C ask for: of the CPU, pinned and of GPUs; the driver is one of the tests' own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tritonpy_abi import build

from ..conftest import Compiled

ASK = """
import json, sys
from ctypes import CDLL, byref, c_char_p, c_int64, c_uint64, c_void_p, create_string_buffer, memset
lib = CDLL(sys.argv[1])
message = lib.TRITONSERVER_ErrorMessage
message.argtypes, message.restype = [c_void_p], c_char_p
lib.TRITONBACKEND_MemoryManagerAllocate.restype = lib.TRITONBACKEND_MemoryManagerFree.restype = c_void_p
manager, answers = c_void_p(), []
lib.TRITONBACKEND_BackendMemoryManager(create_string_buffer(1024), byref(manager))
for kind, device, size in json.load(sys.stdin):
    buffer = c_void_p()
    where = kind, c_int64(device)
    error = lib.TRITONBACKEND_MemoryManagerAllocate(manager, byref(buffer), *where, c_uint64(size))
    if error:
        answers.append(message(error).decode())
        assert buffer.value is None
        continue
    memset(buffer, 7, size)
    error = lib.TRITONBACKEND_MemoryManagerFree(manager, buffer, *where)
    answers.append(message(error).decode() if error else "")
if len(sys.argv) > 2:
    cuda = CDLL(sys.argv[2])
    assert (cuda.fake_depth(), cuda.fake_allocated()) == (0, 0)
json.dump(answers, sys.stdout)
"""
CPU, PINNED, GPU = range(3)


def asked(questions: list[tuple[int, int, int]], driver: Path | None = None, **environment: str) -> Any:
    """The errors of allocations, "" for those that went well; in a process of its own."""
    arguments = [str(build.library()), *([str(driver)] if driver is not None else [])]
    done = subprocess.run(
        [sys.executable, "-S", "-c", ASK, *arguments],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="there is a GPU")
def test_without_a_driver_there_is_memory_of_the_cpu_only(library: Path) -> None:
    assert asked([(CPU, 0, 4096), (CPU, 5, 0), (PINNED, 0, 4096), (GPU, 0, 4096), (9, 0, 4096)]) == [
        "",
        "",
        "failed to allocate pinned system memory: no pinned memory pool",
        "CudaMemoryManager has no preallocated CUDA memory",
        "unknown memory type 9",
    ]


def test_a_driver_that_is_found_gives_memory_of_all_kinds(
    library: Path, compiled: Compiled, tmp_path: Path
) -> None:
    driver = tmp_path / "libcuda.so.1"
    driver.symlink_to(compiled("libraries/cuda.c"))
    questions = [(CPU, 0, 10), (PINNED, 0, 10), (PINNED, 0, 0), (GPU, 0, 4096), (GPU, 0, 0)]
    refused = [(PINNED, 0, 1 << 40), (GPU, 0, 1 << 40), (GPU, 3, 10), (GPU, -1, 10)]

    answers = asked([*questions, *refused], driver, LD_LIBRARY_PATH=str(tmp_path))

    assert answers == [
        *[""] * len(questions),
        "failed to allocate pinned system memory: out of memory",
        "Failed to allocate CUDA memory: out of memory",
        "Failed to allocate CUDA memory: invalid device ordinal",
        "Failed to allocate CUDA memory: invalid device ordinal",
    ]
