"""One line for each HTTP request that was answered, written by a thread: the loop never waits for a disk.

A line is a JSON object:

    {"time":"2026-03-01T12:00:00.123456Z","client":"10.0.0.7:51224","method":"POST",
     "path":"/v2/models/m/infer","status":200,"request_bytes":327,"response_bytes":119,
     "duration_us":412,"request_id":"42"}

`request_bytes` and `response_bytes` are those of the bodies, `duration_us` runs from the last byte of the
request to the last one of the answer that was handed to the system. What could not be read as a request has
the method and path "-". A file that was renamed or removed is begun anew: log rotation needs no signal.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from io import FileIO

import orjson

from tritonpy.errors import InvalidArg
from tritonpy.frontends.http.connection.message import HttpRequest
from tritonpy.line_writer import LineWriter, open_private

_log = logging.getLogger("tritonpy.http")

_MOST_WAITING = 100_000


def address_of(peer: object) -> str:
    """A client's address as text, from what the transport says."""
    match peer:
        case (str(host), int(port), *_):
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case _:
            return "-"


class Note:
    """One request on its way to its line; made by `AccessLog.begin`."""

    __slots__ = ("_begun_ns", "_body_size", "_client", "_log", "_method", "_path")

    def __init__(self, log: AccessLog, peer: object, request: HttpRequest | None) -> None:
        self._log = log
        self._client = address_of(peer)
        self._begun_ns = time.monotonic_ns()
        self._method = b"-" if request is None else request.method
        self._path = "-" if request is None else request.path
        self._body_size = 0 if request is None else len(request.body)

    def end(self, response: bytes, byte_size: int, request_id: str = "") -> None:
        """Hand the line to the writer.

        Args:
            response: the answer, or as much of it as holds its head.
            byte_size: of the whole answer with its head; 0 when the client was gone.
            request_id: as the client gave it.
        """
        said: dict[str, str | int] = {
            "time": "",
            "client": self._client,
            "method": self._method.decode("latin-1"),
            "path": self._path,
            "status": int(response[9:12]),
            "request_bytes": self._body_size,
            "response_bytes": max(0, byte_size - response.index(b"\r\n\r\n") - 4),
            "duration_us": (time.monotonic_ns() - self._begun_ns) // 1000,
        }
        if request_id:
            said["request_id"] = request_id
        self._log.add(time.time_ns(), said)


def _line(time_ns: int, said: dict[str, str | int]) -> bytes:
    seconds, rest_ns = divmod(time_ns, 1_000_000_000)
    until_second = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    said["time"] = f"{until_second}.{rest_ns // 1000:06d}Z"
    return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)


class AccessLog:
    """Writes lines to a file, or to standard output for the path "-".

    Args:
        path: of the file; lines are added to what is there.

    Raises:
        InvalidArg: the file cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: FileIO | None = None
        self._has_failed = False
        try:
            self._open()
        except OSError as exc:
            raise InvalidArg(f"--http-access-log: cannot write to '{path}': {exc.strerror}") from None
        self._writer = LineWriter("access-lines", self._write, self._say_dropped, self._end, _MOST_WAITING)

    def begin(self, peer: object, request: HttpRequest | None) -> Note:
        """Note that an answer is begun.

        Args:
            peer: the client's address, as the transport says it.
            request: None for what could not be read as one.
        """
        return Note(self, peer, request)

    def add(self, time_ns: int, said: dict[str, str | int]) -> None:
        """Hand a line to the writer; never waits. A slow disk loses lines, and the log says so."""
        self._writer.put((time_ns, said))

    def close(self) -> None:
        """Write what is left, as far as the disk takes it."""
        if not self._writer.close():
            _log.error("the access log '%s' could not be written to its end: lines are lost", self._path)

    def _open(self) -> None:
        if self._path == "-":
            self._file = FileIO(sys.stdout.fileno(), "w", closefd=False)
        else:
            self._file = FileIO(self._path, "a", opener=open_private)

    def _end(self) -> None:
        if self._file is not None and self._path != "-":
            self._file.close()

    def _say_dropped(self, count: int) -> None:
        _log.warning("%d lines of the access log were dropped: it is written too slowly", count)

    def _write(self, lines: Sequence[tuple[int, dict[str, str | int]]]) -> None:
        try:
            if self._path != "-" and self._was_moved():
                if self._file is not None:
                    self._file.close()
                    self._file = None
                self._open()
            left = memoryview(b"".join([_line(*line) for line in lines]))
            while left and self._file is not None:
                left = left[self._file.write(left) :]
            self._has_failed = False
        except OSError as exc:
            if not self._has_failed:  # once, not for each line
                _log.error("the access log '%s' cannot be written: %s", self._path, exc.strerror)
            self._has_failed = True

    def _was_moved(self) -> bool:
        if self._file is None:
            return True
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return True
        here = os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)
