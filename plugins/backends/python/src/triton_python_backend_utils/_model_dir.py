"""Where the model's files are."""

from __future__ import annotations

from contextvars import ContextVar

from ._errors import TritonModelException

# As with the link: a model's own thread has its own, threads that a model starts take the latest.
_own: ContextVar[str] = ContextVar("triton_python_backend_model_dir", default="")
_latest: list[str] = []


def get_model_dir() -> str:
    """The version directory of the model, the one `model.py` lies in.

    Raises:
        TritonModelException: no server has started this process.
    """
    directory = _own.get() or (_latest[-1] if _latest else "")
    if not directory:
        raise TritonModelException("the model directory is known only in a process that a server started")
    return directory


def set_model_dir(directory: str) -> None:
    """Called by the worker before it imports the model."""
    _own.set(directory)
    _latest.append(directory)


def forget_model_dir(directory: str) -> None:
    """The model is gone; called by whoever goes on in the same process."""
    if directory in _latest:
        _latest.remove(directory)
