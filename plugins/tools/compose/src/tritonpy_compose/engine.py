"""The programs that build images: docker, podman or buildah, whichever is there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tritonpy.errors import Internal, NotFound

from tritonpy_compose.recipe import CONTAINERFILE

ENGINES = ("docker", "podman", "buildah")
_VARIABLES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that builds images.

    Attributes:
        name: one of `ENGINES`.
        path: of the program.
    """

    name: str
    path: str

    def build_command(self, folder: Path, image: str, *, skips_pull: bool) -> list[str]:
        """The command that builds the recipe in a folder.

        Args:
            folder: with the recipe.
            image: its name.
            skips_pull: take the base image that is there, instead of asking for a newer one.
        """
        command = [self.path, "build", "--file", str(folder / CONTAINERFILE), "--tag", image]
        if self.name == "docker":  # it has no word for never: an image that is not there is pulled
            command += [] if skips_pull else ["--pull"]
        else:
            command.append("--pull=never" if skips_pull else "--pull=always")
            command.append("--format=docker")  # the other form has no health checks
        for variable in _VARIABLES:
            # The value is taken from the environment, so that no list of processes has it.
            if variable in os.environ:
                command += ["--build-arg", variable]
        return [*command, str(folder)]


def find_engine(name: str | None) -> Engine | None:
    """The engine of that name, or the first that is there; None where there is none.

    Raises:
        NotFound: it was named, and is not on the PATH.
    """
    for each in [name] if name else ENGINES:
        if path := shutil.which(each):
            return Engine(each, path)
    if name:
        raise NotFound(f"--engine {name}: no program of that name is on the PATH")
    return None


def build(command: Sequence[str]) -> None:
    """Build an image; what the engine says is seen as it says it.

    Raises:
        Internal: it fails.
    """
    status = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    if status != 0:
        raise Internal(
            f"{command[0]} ended with status {status}; the recipe stays where it is: {command[-1]}"
        )
