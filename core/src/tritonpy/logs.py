"""Log lines in Triton's shape or as JSON, written by a thread so that the loop never waits for a disk.

Modules log through `logging.getLogger("tritonpy.<module>")` and know nothing of this file. What a line is
about travels in `extra`: `request_id`, `model`, `version`, `instance`; and `table` for lines to follow below.

    log.warning("execution failed", extra={"model": "digits", "version": "1", "request_id": "42"})
    W1121 07:02:33.123456 4711 direct.py:88] "execution failed" model=digits version=1 request_id=42
"""

from __future__ import annotations

import atexit
import copy
import json
import logging
import queue
import sys
import threading
from datetime import UTC, datetime
from logging.handlers import QueueHandler
from types import TracebackType
from typing import Protocol, Self

CONTEXT = ("model", "version", "instance", "request_id")
"""Keys of `extra` that say what a line is about."""

MAX_WAITING_LINES = 10_000
"""Lines kept while the log's reader is stuck; further ones are counted and dropped."""

CLOSE_TIMEOUT_S = 2
"""How long `Logs.close` waits for a reader that does not read."""

_MAX_VERBOSE = logging.DEBUG  # one level of `logging` each, from DEBUG downwards

# Libraries whose warnings concern whoever runs the server.
_LIBRARIES = ("aiohttp", "asyncio", "concurrent", "grpc")


class LogSettings(Protocol):
    """What `configure` reads; `ServerOptions` has it."""

    @property
    def log_verbose(self) -> int:
        """Highest verbose level that is written; 0 for none."""

    @property
    def log_info(self) -> bool:
        """Whether informational lines are written."""

    @property
    def log_warning(self) -> bool:
        """Whether warnings are written."""

    @property
    def log_error(self) -> bool:
        """Whether errors are written."""

    @property
    def log_format(self) -> str:
        """`default`, `ISO8601` or `json`."""

    @property
    def log_file(self) -> str:
        """A path, or "" for standard error."""


def verbose(level: int) -> int:
    """The `logging` level of Triton's verbose level `level`, which counts from 1."""
    return logging.DEBUG + 1 - min(max(level, 1), _MAX_VERBOSE)


class TritonFormatter(logging.Formatter):
    """Writes `LMMDD hh:mm:ss.uuuuuu pid file:line] "message"`, in UTC.

    Verbose lines carry the letter I, as Triton's do. The message is quoted and its control characters are
    escaped, so that a client's text cannot forge a line; a traceback is indented for the same reason.

    Args:
        iso8601: begin with `YYYY-MM-DDThh:mm:ssZ L` instead.
    """

    def __init__(self, *, iso8601: bool = False) -> None:
        super().__init__()
        self._iso8601 = iso8601

    def format(self, record: logging.LogRecord) -> str:
        """One line, and what belongs below it."""
        when = datetime.fromtimestamp(record.created, UTC)
        letter = "E" if record.levelno >= logging.ERROR else "W" if record.levelno >= logging.WARNING else "I"
        head = f"{when:%Y-%m-%dT%H:%M:%SZ} {letter}" if self._iso8601 else f"{letter}{when:%m%d %H:%M:%S.%f}"
        line = (
            f"{head} {record.process} {record.filename}:{record.lineno}] "
            f"{_quoted(record.getMessage())}{_context_text(record)}"
        )
        table = getattr(record, "table", "")
        if table:
            line += f"\n{table}"
        trace = _traceback(self, record)
        if trace:
            line += "".join(f"\n  {text}" for text in trace.splitlines())
        return line


class JsonFormatter(logging.Formatter):
    """Writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line: `time`, `level`, `pid`, `file`, `line`, `message`, then context and `exception`."""
        when = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "time": when.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname if record.levelno >= logging.INFO else "VERBOSE",
            "pid": record.process,
            "file": record.filename,
            "line": record.lineno,
            "message": record.getMessage(),
        }
        for key in CONTEXT:
            value = getattr(record, key, "")
            if value != "":
                fields[key] = str(value)
        table = getattr(record, "table", "")
        if table:
            fields["table"] = table
        trace = _traceback(self, record)
        if trace:
            fields["exception"] = trace
        return json.dumps(fields, ensure_ascii=False)


class Logs:
    """The running log: made by `configure`, ended by `close` (or by leaving its `with` block)."""

    def __init__(self, settings: LogSettings) -> None:
        self._output: logging.Handler
        if settings.log_file:
            self._output = logging.FileHandler(settings.log_file, encoding="utf-8", errors="backslashreplace")
        else:
            self._output = logging.StreamHandler(sys.stderr)
        self._output.setFormatter(_formatter(settings.log_format))
        self._waiting: queue.Queue[logging.LogRecord | None] = queue.Queue(MAX_WAITING_LINES)
        self._handler = _LoopHandler(self._waiting)
        self._handler.addFilter(_Switches(settings))
        # A daemon, so that a log nobody reads cannot keep the process alive.
        self._writer = threading.Thread(target=self._write, name="tritonpy-log", daemon=True)
        self._restore: list[tuple[logging.Logger, int, bool]] = []
        self._open = True
        _running.append(self)
        threshold = _threshold(settings)
        self._take_over("tritonpy", threshold)
        for name in _LIBRARIES:
            self._take_over(name, max(threshold, logging.WARNING))
        self._writer.start()
        atexit.register(self.close)

    @property
    def is_half_full(self) -> bool:
        """Whether so many lines wait that a few thousand more would be dropped."""
        return self._waiting.qsize() > MAX_WAITING_LINES // 2

    def close(self) -> None:
        """Write what is waiting, give the loggers back and close the file; gives up on a stuck reader."""
        if not self._open:
            return
        self._open = False
        _running.remove(self)
        atexit.unregister(self.close)
        for logger, level, propagate in self._restore:
            logger.removeHandler(self._handler)
            logger.setLevel(level)
            logger.propagate = propagate
        self._handler.report_dropped(wait=True)
        try:
            self._waiting.put(None, timeout=CLOSE_TIMEOUT_S)
        except queue.Full:
            return
        self._writer.join(CLOSE_TIMEOUT_S)
        if not self._writer.is_alive():
            self._output.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self) -> None:
        while (record := self._waiting.get()) is not None:
            self._output.handle(record)

    def _take_over(self, name: str, level: int) -> None:
        logger = logging.getLogger(name)
        self._restore.append((logger, logger.level, logger.propagate))
        logger.addHandler(self._handler)
        logger.setLevel(level)
        logger.propagate = False  # whoever embeds us keeps the root logger for their own lines


_running: list[Logs] = []


def has_room() -> bool:
    """Whether lines can be logged in thousands; who passes on what others say asks this first."""
    return not any(logs.is_half_full for logs in _running)


def configure(settings: LogSettings) -> Logs:
    """Begin to write the lines of the server's loggers where and how `settings` say.

    Raises:
        OSError: the log file cannot be opened.
    """
    return Logs(settings)


class _LoopHandler(QueueHandler):
    """Puts records into the queue without ever waiting; counts what finds no room."""

    def __init__(self, waiting: queue.Queue[logging.LogRecord | None]) -> None:
        super().__init__(waiting)
        self._waiting = waiting
        self._dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Settle everything that may have changed by the time the record is written."""
        record = copy.copy(record)
        record.msg = record.getMessage()
        record.args = None
        if record.exc_info:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Called by `emit` with the handler's lock held."""
        if self._dropped:
            self.report_dropped()
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._dropped += 1

    def report_dropped(self, *, wait: bool = False) -> None:
        """Put a line that says how many are missing, once there is room for it."""
        if not self._dropped:
            return
        text = f"{self._dropped} log lines were dropped because the log could not be written fast enough"
        record = logging.LogRecord("tritonpy.logs", logging.WARNING, __file__, 0, text, None, None)
        try:
            self._waiting.put(record, block=wait, timeout=CLOSE_TIMEOUT_S if wait else None)
        except queue.Full:
            return
        self._dropped = 0


class _Switches(logging.Filter):
    """Lets a record pass when its kind is switched on; the logger's level alone cannot say this."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self._verbose = settings.log_verbose
        self._info = settings.log_info
        self._warning = settings.log_warning
        self._error = settings.log_error

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether `record` is written."""
        level = record.levelno
        if level >= logging.ERROR:
            return self._error
        if level >= logging.WARNING:
            return self._warning
        if level >= logging.INFO:
            return self._info
        return self._verbose > 0 and level >= verbose(self._verbose)


def _threshold(settings: LogSettings) -> int:
    """The lowest level that may be written: below it, a logging call costs one comparison."""
    if settings.log_verbose > 0:
        return verbose(settings.log_verbose)
    if settings.log_info:
        return logging.INFO
    if settings.log_warning:
        return logging.WARNING
    return logging.ERROR if settings.log_error else logging.CRITICAL + 1


def _formatter(name: str) -> logging.Formatter:
    if name == "json":
        return JsonFormatter()
    return TritonFormatter(iso8601=name == "ISO8601")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _context_text(record: logging.LogRecord) -> str:
    parts = []
    for key in CONTEXT:
        value = str(getattr(record, key, ""))
        if value:
            plain = value.isprintable() and not any(char in value for char in ' "=')
            parts.append(f" {key}={value if plain else _quoted(value)}")
    return "".join(parts)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""
