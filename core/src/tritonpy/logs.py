"""Log lines in Triton's shape or as JSON, written by a thread so that the loop never waits for a disk.

Modules log through `logging.getLogger("tritonpy.<module>")` and know nothing of this file. What a line is
about travels in `extra`: `request_id`, `model`, `version`, `instance`; and `table` for lines to follow below.

    log.warning("execution failed", extra={"model": "digits", "version": "1", "request_id": "42"})
    W1121 07:02:33.123456 4711 direct.py:88] "execution failed" model=digits version=1 request_id=42
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from io import TextIOWrapper
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from tritonpy.line_writer import LineWriter, open_private
from tritonpy.log_lines import make_formatter

if TYPE_CHECKING:
    from tritonpy.options import ServerOptions

MAX_WAITING_LINES = 10_000
"""Lines kept while the log's reader is stuck; further ones are counted and dropped."""

CLOSE_TIMEOUT_S = 2
"""How long `Logs.close` waits for a reader that does not read."""

_MAX_VERBOSE = logging.DEBUG  # one level of `logging` each, from DEBUG downwards

# Libraries whose warnings concern the operator of the server.
_LIBRARIES = ("aiohttp", "asyncio", "concurrent", "grpc", "opentelemetry")


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Settings of the log: levels, format and file.

    Attributes:
        log_verbose: the highest verbose level that is written; 0 for none.
        log_info, log_warning, log_error: whether such lines are written.
        log_format: `default`, `ISO8601` or `json`.
        log_file: a path, or "" for standard error.
    """

    log_verbose: int = 0
    log_info: bool = True
    log_warning: bool = True
    log_error: bool = True
    log_format: str = "default"
    log_file: str = ""

    def admits(self, level: int) -> bool:
        """True if lines of a `logging` level are written; a logger's level alone cannot say this."""
        if level >= logging.ERROR:
            return self.log_error
        if level >= logging.WARNING:
            return self.log_warning
        if level >= logging.INFO:
            return self.log_info
        return self.log_verbose > 0 and level >= verbose(self.log_verbose)

    @property
    def threshold(self) -> int:
        """The lowest level that may be written: below it, a logging call costs one comparison."""
        if self.log_verbose > 0:
            return verbose(self.log_verbose)
        levels = (logging.INFO, logging.WARNING, logging.ERROR)
        return next((level for level in levels if self.admits(level)), logging.CRITICAL + 1)


def verbose(level: int) -> int:
    """The `logging` level of Triton's verbose level `level`, which counts from 1."""
    return logging.DEBUG + 1 - min(max(level, 1), _MAX_VERBOSE)


class Logs:
    """The running log: made by `configure`, ended by `close` (or by leaving its `with` block)."""

    def __init__(self, settings: LogSettings) -> None:
        self._output: logging.Handler
        if settings.log_file:
            self._output = _FileOutput(settings.log_file, encoding="utf-8", errors="backslashreplace")
        else:
            self._output = logging.StreamHandler(sys.stderr)
        self._output.setFormatter(make_formatter(settings.log_format))
        self._settings = settings
        self._writer = LineWriter(
            "log-lines", self._write, self._say_dropped, self._end, MAX_WAITING_LINES + 1, most_at_once=1
        )  # the one more is the one that is being written
        self._handler = _LoopHandler(self._writer)
        self._handler.addFilter(self._admits)
        self._restore: list[tuple[logging.Logger, int, bool]] = []
        self._open = True
        _running.append(self)
        for name in ("tritonpy", *_LIBRARIES):
            self._take_over(logging.getLogger(name))
        atexit.register(self.close)
        _tell_followers()

    @property
    def settings(self) -> LogSettings:
        """The settings in effect now."""
        return self._settings

    def change(self, settings: LogSettings) -> None:
        """Write from now on what `settings` say; the file stays the one that is open.

        Lines that wait to be written are written in the new format.
        """
        self._output.setFormatter(make_formatter(settings.log_format))
        self._settings = replace(settings, log_file=self._settings.log_file)
        for logger, _, _ in self._restore:
            logger.setLevel(self._level(logger))
        _tell_followers()

    @property
    def descriptor(self) -> int:
        """Of the file that lines are written to."""
        stream = getattr(self._output, "stream", None)  # None while a file that was lost is not open again
        return stream.fileno() if stream is not None else 2

    @property
    def is_half_full(self) -> bool:
        """True if a few thousand more lines would be dropped."""
        return self._writer.held > MAX_WAITING_LINES // 2

    def close(self) -> None:
        """Write what is waiting, give the loggers back and close the file; gives up on a stuck reader."""
        if not self._open:
            return
        for follower in _followers:
            follower.flush()
        self._open = False
        _running.remove(self)
        atexit.unregister(self.close)
        for logger, level, propagate in self._restore:
            logger.removeHandler(self._handler)
            logger.setLevel(level)
            logger.propagate = propagate
        _tell_followers()
        self._writer.close(CLOSE_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _admits(self, record: logging.LogRecord) -> bool:
        return isinstance(record, AdmittedRecord) or self._settings.admits(record.levelno)

    def _write(self, records: Sequence[logging.LogRecord]) -> None:
        for record in records:
            self._output.handle(record)

    def _say_dropped(self, count: int) -> None:
        text = f"{count} log lines were dropped because the log could not be written fast enough"
        self._output.handle(_own_line(text))

    def _end(self) -> None:
        with contextlib.suppress(OSError):  # the disk is full, which has been said
            self._output.close()

    def _take_over(self, logger: logging.Logger) -> None:
        self._restore.append((logger, logger.level, logger.propagate))
        logger.addHandler(self._handler)
        logger.setLevel(self._level(logger))
        logger.propagate = False  # the root logger belongs to the program that embeds us

    def _level(self, logger: logging.Logger) -> int:
        threshold = self._settings.threshold
        return max(threshold, logging.WARNING) if logger.name in _LIBRARIES else threshold


class AdmittedRecord(logging.LogRecord):
    """A line that the settings admitted when it began: it is written even if they have changed since."""


class LogFollower(Protocol):
    """Has lines that begin where `logging` does not reach, and hands them to its loggers by a thread."""

    def settings_changed(self, settings: LogSettings | None) -> None:
        """The log's settings from now on; None if the embedding program writes the log. On any thread."""

    def flush(self) -> None:
        """Return when all lines are handed over: the log is about to close. Blocking."""


_running: list[Logs] = []
_followers: list[LogFollower] = []
_telling = threading.Lock()  # so that no follower hears of older settings last


def follow(follower: LogFollower) -> None:
    """Notify `follower` of the log's settings, now and at each change, for as long as the process lives."""
    with _telling:
        _followers.append(follower)
        follower.settings_changed(_settings())


def _settings() -> LogSettings | None:
    return _running[-1].settings if _running else None


def _tell_followers() -> None:
    with _telling:
        for follower in _followers:
            follower.settings_changed(_settings())


_admitted: memoryview | None = None


def follow_server(admitted: memoryview) -> None:
    """In a worker: the server writes its log, and says in a byte of shared memory what that admits.

    Args:
        admitted: bit 0 for information, 1 for warnings, 2 for errors, 3 for the first verbose level.
    """
    global _admitted
    _admitted = admitted


def admitted_by_server() -> memoryview | None:
    """That byte, for as long as the process lives; None in a process that is no worker.

    Lines in Triton's shape that a worker writes to its standard error are lines of the server's log.
    """
    return _admitted


def has_room() -> bool:
    """True if thousands of lines can be logged; asked before lines of others are passed on."""
    return not any(logs.is_half_full for logs in _running)


def running() -> Logs | None:
    """The log that was begun last; None when the program that embeds the server writes its lines."""
    return _running[-1] if _running else None


def descriptor() -> int:
    """Of the file that lines are written to, or of standard error, for code that cannot call a logger."""
    log = running()
    return log.descriptor if log is not None else 2


def configure(options: ServerOptions) -> Logs:
    """Begin to write the lines of the server's loggers where and how `options` say.

    Raises:
        OSError: the log file cannot be opened.
    """
    return Logs(LogSettings(*(getattr(options, field.name) for field in fields(LogSettings))))


class _FileOutput(logging.FileHandler):
    """Writes to a file; while that fails, standard error says so once and lines are counted."""

    _lost = 0

    def _open(self) -> TextIOWrapper:
        return open(  # type: ignore[return-value]  # "a" is text
            self.baseFilename,
            self.mode,
            encoding=self.encoding,
            errors=self.errors,
            opener=open_private,
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, and behind the first one that can be written again how many are missing."""
        lost = self._lost
        super().emit(record)
        if lost and self._lost == lost:
            self._lost = 0
            text = f"{lost} log lines could not be written to the log file when they were due"
            super().emit(_own_line(text))

    def handleError(self, record: logging.LogRecord) -> None:
        """Called by `emit` while it handles an exception."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        if not self._lost:
            text = f"the log file '{self.baseFilename}' cannot be written: {error.strerror}"
            with contextlib.suppress(OSError):
                print(f"{text}; its lines are dropped until it can", file=sys.stderr, flush=True)
        self._lost += 1


class _LoopHandler(logging.Handler):
    """Has records written without ever waiting."""

    def __init__(self, writer: LineWriter[logging.LogRecord]) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        """Settle everything that may have changed by the time the record is written."""
        try:
            record = copy.copy(record)
            record.msg = record.getMessage()
            record.args = None
            if record.exc_info:
                record.exc_text = logging.Formatter().formatException(record.exc_info)
                record.exc_info = None
        except Exception:  # as handlers do: the arguments are not those of the message
            self.handleError(record)
        else:
            self._writer.put(record)


def _own_line(text: str) -> logging.LogRecord:
    return logging.LogRecord("tritonpy.logs", logging.WARNING, __file__, 0, text, None, None)
