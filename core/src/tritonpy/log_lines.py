"""Formats of a log record: Triton's shape, or a JSON object."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

CONTEXT = ("model", "version", "instance", "request_id")
"""Keys of `extra` that say what a line is about."""


class TritonFormatter(logging.Formatter):
    """Writes `LMMDD hh:mm:ss.uuuuuu pid file:line] "message"`, in UTC.

    Verbose lines carry the letter I, as Triton's do. The message is quoted and what it holds beside printable
    characters is escaped, so that a client's text cannot forge a line; a traceback is indented for the same
    reason. What the line is about follows the message, but for an id that it begins with, as Triton's do. A
    table stands below a line without a message, with an empty line behind it.

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
        line = f"{head} {record.process} {record.filename}:{record.lineno}] "
        table = getattr(record, "table", "")
        line += f"\n{table}\n" if table else f"{_quoted(record.getMessage())}{_context_text(record)}"
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
        return _printable(json.dumps(fields, ensure_ascii=False))


def make_formatter(name: str) -> logging.Formatter:
    """The formatter of lines in the format called `name`, of `LogFormat`."""
    if name == "json":
        return JsonFormatter()
    return TritonFormatter(iso8601=name == "ISO8601")


def _quoted(text: str) -> str:
    return _printable(json.dumps(text, ensure_ascii=False))


def _printable(text: str) -> str:
    """The JSON with its unprintable characters escaped, such as those that move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def _context_text(record: logging.LogRecord) -> str:
    parts = []
    for key in CONTEXT:
        value = str(getattr(record, key, ""))
        is_said = key == "request_id" and record.getMessage().startswith(f"[request id: {value}] ")
        if value and not is_said:
            plain = value.isprintable() and not any(char in value for char in ' "=')
            parts.append(f" {key}={value if plain else _quoted(value)}")
    return "".join(parts)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info and not record.exc_text:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""
