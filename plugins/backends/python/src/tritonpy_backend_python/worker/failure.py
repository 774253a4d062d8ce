"""The text about an exception in a model for clients and logs, in Triton's form."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import TracebackType

import triton_python_backend_utils as pb_utils
import tritonpy_model
from triton_python_backend_utils._strings import printable

Failure = tuple[int, str]
"""Code and text of an error."""

_own_directories = [
    os.path.dirname(os.path.abspath(__file__)),
    os.path.abspath(os.path.dirname(pb_utils.__file__)),
    os.path.abspath(os.path.dirname(tritonpy_model.__file__)),
]


def hide_lines_of(directory: str) -> None:
    """Hide the lines of files below `directory`, too: they run models and do not interest their authors."""
    _own_directories.append(os.path.abspath(directory))


class BadResult(Exception):
    """`execute` returned what it must not; the text says what."""


def describe(exc: BaseException) -> str:
    """An exception's type and text, then the lines it passed through, innermost first.

    Only lines of the model and of what it calls are shown: none of ours, none of the import machinery.
    """
    if isinstance(exc, BadResult):
        return str(exc)
    try:
        text = str(exc) or "<EMPTY MESSAGE>"
    except Exception:
        text = "<UNPRINTABLE MESSAGE>"
    lines = list(_lines(exc.__traceback__))
    described = f"{type(exc).__name__}: {text}"
    if lines:
        described += "\n\nAt:\n" + "".join(reversed(lines))
    return printable(described)


def full_traceback(exc: BaseException) -> str:
    """The traceback for the log, from the model's first line on; "" where the text alone says it all."""
    if isinstance(exc, (BadResult, pb_utils.TritonError)):
        return ""
    import traceback  # late: few workers ever need it

    entry = exc.__traceback__
    while entry is not None and _is_foreign(entry):
        entry = entry.tb_next
    return printable("".join(traceback.format_exception(type(exc), exc, entry)))


def as_failure(exc: BaseException) -> Failure:
    """The code and text for an exception while a model is loaded."""
    if isinstance(exc, pb_utils.TritonError):
        return int(exc.code()), printable(exc.message())
    return int(pb_utils.TritonError.INTERNAL), describe(exc)


def as_execution_failure(exc: BaseException, instance: str) -> Failure:
    """The code and text for an exception in `execute`."""
    if isinstance(exc, pb_utils.TritonError):
        return as_failure(exc)
    text = f"Failed to process the request(s) for model '{instance}', message: {describe(exc)}"
    return int(pb_utils.TritonError.INTERNAL), text


def _lines(traceback: TracebackType | None) -> Iterator[str]:
    while traceback is not None:
        if not _is_foreign(traceback):
            code = traceback.tb_frame.f_code
            yield f"  {code.co_filename}({traceback.tb_lineno}): {code.co_name}\n"
        traceback = traceback.tb_next


def _is_foreign(entry: TracebackType) -> bool:
    """True if a line is ours or the import machinery's, and so of no use to the model's author."""
    return entry.tb_frame.f_code.co_filename.startswith(("<frozen importlib", *_own_directories))
