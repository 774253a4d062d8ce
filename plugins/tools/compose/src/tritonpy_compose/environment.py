"""An environment that may be moved: what an image would have, in a directory."""

from __future__ import annotations

import os
import venv
from pathlib import Path

from tritonpy.errors import InvalidArg

from tritonpy_compose.pip import install
from tritonpy_compose.progress import step

# A shell finds the directory of the script; for Python, the same lines are a string.
_FINDS_PYTHON = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")/python" "$0" "$@"
' '''
"""


def check_empty(directory: Path) -> None:
    """Refuse a directory that has something in it.

    Raises:
        InvalidArg: names it.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InvalidArg(f"--venv '{directory}' is there already: expected a new or empty directory")


def make_environment(directory: Path, requirements: Path, wheels: Path) -> None:
    """Make an environment with the packages of a locked requirement file; its scripts find it wherever it is.

    Args:
        directory: new or empty.
        requirements: with hashes.
        wheels: a folder with those that no index has.

    Raises:
        InvalidArg: pip cannot install it.
    """
    directory = directory.resolve()
    with step("make the environment"):
        venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
    install(directory / "bin/python", requirements, wheels)
    for script in (directory / "bin").iterdir():
        if script.name.lower().startswith("activate"):
            script.unlink()  # it has the directory's name in it, and `bin/corectl` needs no activation
        elif script.is_file() and not script.is_symlink():
            _make_movable(script, directory)


def _make_movable(script: Path, directory: Path) -> None:
    text = script.read_bytes()
    head, _, body = text.partition(b"\n")
    place = os.fsencode(directory / "bin")
    if head == b"#!/bin/sh" and place in body.partition(b"\n")[0]:  # pip's way with long or odd paths
        body = body.split(b"\n", 2)[2]
    elif not head.startswith(b"#!" + place):
        return
    script.write_bytes(_FINDS_PYTHON + body)


def byte_size(directory: Path) -> int:
    """The bytes of all files in a directory, each once; links count nothing."""
    sizes = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            status = os.lstat(os.path.join(folder, name))
            if not os.path.islink(os.path.join(folder, name)):
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
