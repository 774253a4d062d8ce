"""What the sequences of a model begin with, from its configuration and the files beside it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from tritonpy.config.named_files import read_named_file
from tritonpy.errors import InvalidArg
from tritonpy.handles import JsonObject
from tritonpy.states import StateSpecs

DIRECTORY = "initial_state"
"""Where the files lie, in the model's directory."""


def read_states(config: JsonObject, directory: Path) -> StateSpecs | None:
    """The states that a normalised configuration describes, None where there are none; blocking.

    Raises:
        InvalidArg: the data of an initial state does not fit it, or it names no file of its directory.
        Internal: a file cannot be read.
    """
    states = config.get("sequence_batching", {}).get("state", ())
    if not states:
        return None
    names = {
        initial["data_file"]
        for state in states
        for initial in state.get("initial_state", ())
        if "data_file" in initial
    }
    return StateSpecs(config, {name: _read(name, directory / DIRECTORY) for name in names})


def _read(name: str, directory: Path) -> bytes:
    path = PurePosixPath(name)
    if not path.name or "\0" in name or path.is_absolute() or ".." in path.parts:
        raise InvalidArg(
            f"initial_state setting expects 'data_file' to name a file below '{directory}', got '{name}'"
        )
    return read_named_file(directory / path)
