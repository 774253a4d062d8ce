"""Backends that are files: a `model.py` in the backend directory, run for every model of that backend."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from tritonpy.config.retired import advice_on
from tritonpy.config.schema import ModelConfig
from tritonpy.errors import InvalidArg, NotFound

_RUNNERS = {"model.py": "python"}
"""Which backend runs a file, by what the configuration's `runtime` calls it."""

_LONGEST_NAME = 255  # bytes; what file systems take


@dataclass(frozen=True, slots=True)
class BackendFiles:
    """A backend that consists of files.

    Attributes:
        runtime: the name of its file, as `runtime` in configurations says it.
        runner: the installed backend that runs it.
        directory: where it lies.
    """

    runtime: str
    runner: str
    directory: Path


def find_backend_files(
    config: ModelConfig, backend_directory: Path, installed: Container[str]
) -> BackendFiles | None:
    """The files behind a model's backend; None when it is a plugin, or nothing at all.

    An installed plugin of that name wins, unless the configuration asks for the file.

    Args:
        config: its `backend` and `runtime` count.
        backend_directory: `--backend-directory`.
        installed: names of installed backends.

    Raises:
        InvalidArg: the configuration asks for a file that is not there, or that this server cannot run.
        NotFound: the file is there, and nothing that could run it; or it is one that nobody serves any more.
    """
    name = config.backend
    directory = backend_directory / name
    if config.runtime not in ("", f"libtriton_{name}.so", *_RUNNERS):  # the second is how Triton calls ours
        raise InvalidArg(
            f"unable to find backend library '{config.runtime}' for model '{config.name}', searched: "
            f"'{directory / config.runtime}'"
        )
    for runtime, runner in _RUNNERS.items():
        is_wanted = config.runtime == runtime
        if not is_wanted and (config.runtime or name in installed):
            continue
        if _is_filename(name) and (directory / runtime).is_file():
            if runner not in installed:
                raise NotFound(
                    f"backend '{name}' is {directory / runtime}, which needs backend '{runner}', and that is "
                    f"not installed: pip install tritonpy-backend-{runner}"
                )
            return BackendFiles(runtime, runner, directory.absolute())
        if is_wanted:
            raise InvalidArg(
                f"unable to find Python backend based backend library '{runtime}' for model '{config.name}', "
                f"searched: '{directory / runtime}'"
            )
    if name not in installed and (advice := advice_on(name)):
        raise NotFound(f"no installed plugin of kind 'backend' is called '{name}': {advice}")
    return None


def _is_filename(name: str) -> bool:
    """Whether a name from a configuration can be that of a directory, and leads nowhere else."""
    return name not in ("", "..") and Path(name).name == name and len(name.encode()) <= _LONGEST_NAME
