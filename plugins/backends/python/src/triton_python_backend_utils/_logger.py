"""Lines for the server's log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum, IntEnum

from ._arguments import text
from ._current import Current


class LogLevel(IntEnum):
    """The levels; models write `Logger.WARNING`."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3

    __str__ = Enum.__str__


def _to_stderr(level: int, message: str, file: str, line: int) -> None:
    print(f"{LogLevel(level).name}: {message}", file=sys.stderr)


Sink = Callable[[int, str, str, int], None]
"""Takes the level, the message, and the file and line that say it."""

_current: Current[Sink] = Current("log")


def set_sink(sink: Sink) -> None:
    """Say where lines go; called by the worker."""
    _current.set(sink)


def forget_sink(sink: Sink) -> None:
    """The model is gone."""
    _current.forget(sink)


def _write(message: str, level: LogLevel) -> None:
    message = text("Logger: message", message)
    caller = sys._getframe(2)  # the model's, beyond the method of `Logger`
    (_current.get() or _to_stderr)(level, message, caller.f_code.co_filename, caller.f_lineno)


class Logger:
    """Writes to the server's log, with file and line of the call; to standard error where no server is."""

    INFO = LogLevel.INFO
    WARNING = LogLevel.WARNING
    ERROR = LogLevel.ERROR
    VERBOSE = LogLevel.VERBOSE

    @staticmethod
    def log(message: str, level: LogLevel = LogLevel.INFO) -> None:
        """Write one message; `VERBOSE` shows only when the server was told to log verbosely.

        Raises:
            TypeError: the message is no text, or the level none of these.
        """
        if level not in tuple(LogLevel):
            raise TypeError(f"Logger: level must be one of Logger's levels, got {level!r}")
        _write(message, LogLevel(level))

    @staticmethod
    def log_info(message: str) -> None:
        """Something worth knowing."""
        _write(message, LogLevel.INFO)

    @staticmethod
    def log_warn(message: str) -> None:
        """Something is odd."""
        _write(message, LogLevel.WARNING)

    @staticmethod
    def log_error(message: str) -> None:
        """Something went wrong."""
        _write(message, LogLevel.ERROR)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Log a detail, for debugging."""
        _write(message, LogLevel.VERBOSE)


setattr(Logger, "LogLevel", LogLevel)  # noqa: B010  # in its body it would hide the class from type checkers
