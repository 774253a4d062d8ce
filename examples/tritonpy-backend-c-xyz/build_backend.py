"""Compile the backend, with the headers of tritonpy-sdk; it links with nothing."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from tritonpy_sdk.headers import DIRECTORY

ROOT = Path(__file__).resolve().parent
NAME = "libtriton_c-xyz.so"
PACKAGE = "tritonpy_backend_c_xyz"


class BuildError(Exception):
    """The backend cannot be compiled; says why."""


def build(folder: Path = ROOT / "src" / PACKAGE) -> Path:
    """Compile the library into a folder.

    Raises:
        BuildError: there is no compiler, or it refused; with what it says.
    """
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if shutil.which(compiler[0]) is None:
        raise BuildError(f"there is no compiler '{compiler[0]}'; the variable CXX names another")
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden"]
    flags += shlex.split(os.environ.get("CXXFLAGS", ""))
    output = folder / NAME
    command = [*compiler, *flags, f"-I{DIRECTORY}", str(ROOT / "backend.cc"), "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr}")
    return output


if __name__ == "__main__":
    print(f"made {build()}")
