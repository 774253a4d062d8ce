"""Compile the operators for each framework that is installed here, with the headers in its wheel."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent
LIBRARIES = ROOT / "src/tritonpy_ops_xyz/lib"


class BuildError(Exception):
    """The operators cannot be compiled; says why."""


def pytorch_flags() -> list[str]:
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    return ["-std=c++20", f"-I{root / 'include'}", f"-L{root / 'lib'}", "-ltorch_cpu"]


def tensorflow_flags() -> list[str]:
    import tensorflow as tf

    return [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]


FLAGS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "pytorch": ("torch", pytorch_flags),
    "tensorflow": ("tensorflow", tensorflow_flags),
}
"""By framework: its module, and the flags for compiler and linker."""


def installed() -> list[str]:
    """The frameworks that operators can be compiled for here."""
    return [framework for framework, (module, _) in FLAGS.items() if find_spec(module) is not None]


def build(framework: str, folder: Path = LIBRARIES) -> Path:
    """Compile `<framework>.cc` to a library in a folder.

    Raises:
        BuildError: there is no compiler, or it refused; with what it says.
    """
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if shutil.which(compiler[0]) is None:
        raise BuildError(f"there is no compiler '{compiler[0]}'; the variable CXX names another")
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / f"{framework}.so"
    command = [*compiler, "-shared", "-fPIC", "-O2", str(ROOT / f"{framework}.cc"), "-o", str(output)]
    done = subprocess.run([*command, *FLAGS[framework][1]()], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{shlex.join(command)} failed:\n{done.stderr}")
    return output


def build_all(folder: Path = LIBRARIES) -> list[Path]:
    """Compile for every framework that is installed.

    Raises:
        BuildError: none is, or the compiler refused.
    """
    frameworks = installed()
    if not frameworks:
        raise BuildError(
            "neither PyTorch nor TensorFlow is installed here; pip builds in an environment of its own "
            "without them, unless it is told --no-build-isolation"
        )
    shutil.rmtree(folder, ignore_errors=True)  # of a framework that is here no longer
    return [build(framework, folder) for framework in frameworks]


if __name__ == "__main__":
    for path in build_all():
        print(f"made {path}")
