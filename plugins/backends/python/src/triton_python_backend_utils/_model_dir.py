"""Where the model's files are."""

from __future__ import annotations

from ._errors import TritonModelException

_directory: list[str] = []


def get_model_dir() -> str:
    """The version directory of the model, the one `model.py` lies in.

    Raises:
        TritonModelException: no server has started this process.
    """
    if not _directory:
        raise TritonModelException("the model directory is known only in a process that a server started")
    return _directory[0]


def set_model_dir(directory: str) -> None:
    """Called by the worker before it imports the model."""
    _directory[:] = [directory]
