"""The directory of the model's files."""

from __future__ import annotations

from ._current import Current
from ._errors import TritonModelException

_current: Current[str] = Current("model_dir")


def get_model_dir() -> str:
    """The version directory of the model, the one `model.py` lies in.

    Raises:
        TritonModelException: no server has started this process.
    """
    directory = _current.get()
    if directory is None:
        raise TritonModelException("the model directory is known only in a process that a server started")
    return directory


def set_model_dir(directory: str) -> None:
    """Called by the worker before it imports the model."""
    _current.set(directory)


def forget_model_dir(directory: str) -> None:
    """The model is gone; called where the same process goes on without it."""
    _current.forget(directory)
