"""The output of a worker on its way to the server's log: lines in messages, and its standard output.

A worker may say more than a log can take. Lines wait here, in a queue that takes turns with everything else
on the loop; while it is long, nothing more is read from that worker, which then waits in its `print`. So a
flood of output costs the model that makes it, not its neighbours, and none of it is lost. Only when
the reader of the server's log has stopped are lines dropped, and counted, by the log itself.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from tritonpy.logs import LogSettings, follow, has_room, verbose
from tritonpy.workers.worker_services import Caller

_log = logging.getLogger("tritonpy.worker")

LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.DEBUG)
"""By the level in a LOG frame, and by the bits of what workers are told of the log."""

MAX_LINE_BYTES = 64 * 1024
"""Longer lines are cut."""

_READ_BYTES = 64 * 1024
_MANY_LINES = 1000  # waiting; from here on nothing more is read
_TURN_S = 0.001  # how long lines are written before others on the loop have their turn
_RETRY_S = 0.02  # how soon a full log is looked at again
_MOST_LOOKS = 100  # then its reader is taken for stuck; no seconds: they pass while the process stands still

# A line of a library that was compiled for Triton, as it is in Triton's log. It comes in this way, and not as
# a message: then the last ones before a crash are there, too. What was printed before may not have ended.
_LOGGED = re.compile(
    rb"(.*?)([IWEV])\d{4} \d\d:\d\d:\d\d\.\d{6} \d{1,10} ([^\"]{0,255}):(\d{1,10})\] (\".*\")", re.DOTALL
)
_LETTERS = {b"I": logging.INFO, b"W": logging.WARNING, b"E": logging.ERROR, b"V": verbose(1)}

Line = tuple[int, str, str, str, int, str]
"""Level of `logging`, text, request id, file, line number, traceback."""


class WorkerLines:
    """The lines of one worker that wait to be written; on the loop only.

    Args:
        caller: the worker that writes the lines.
        set_reading: stops reading from the worker (False), or resumes it (True).

    Attributes:
        pid: the process that the log names; 0 for this one.
    """

    def __init__(self, caller: Caller, set_reading: Callable[[bool], None]) -> None:
        self.pid = 0
        self._caller = caller
        self._set_reading = set_reading
        self._waiting: deque[Line] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False
        self._is_reading = True
        self._full_looks = 0

    def add(
        self,
        level: int,
        text: str,
        request_id: str = "",
        file: str = "process.py",
        line: int = 0,
        trace: str = "",
    ) -> None:
        """Take one line, and a traceback for below it."""
        if not _log.isEnabledFor(level):
            return
        self._waiting.append((level, text, request_id, file, line, trace))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._write)
        if self._is_reading and len(self._waiting) >= _MANY_LINES:
            self._is_reading = False
            self._set_reading(False)

    async def written(self) -> None:
        """Wait until nothing waits."""
        pause_s = 0.0
        while self._waiting:
            await asyncio.sleep(pause_s)
            pause_s = _TURN_S

    async def end(self) -> None:
        """The same, and drop the reference to the worker, which has ended: a cycle would keep it alive."""
        self._set_reading = _ignore
        await self.written()

    def _write(self) -> None:
        self._is_scheduled = False
        if self._is_log_full():
            self._is_scheduled = True
            self._loop.call_later(_RETRY_S, self._write)
            return
        until = time.monotonic() + _TURN_S
        while self._waiting:
            self._write_one()
            if time.monotonic() > until:
                break
        if self._waiting:
            self._is_scheduled = True
            self._loop.call_soon(self._write)
        elif not self._is_reading:
            self._is_reading = True
            self._set_reading(True)

    def _is_log_full(self) -> bool:
        if has_room():
            self._full_looks = 0
            return False
        self._full_looks += 1
        return self._full_looks <= _MOST_LOOKS

    def _write_one(self) -> None:
        level, text, request_id, file, line, trace = self._waiting.popleft()
        caller = self._caller
        context = {
            "model": caller.model,
            "version": caller.version,
            "instance": caller.instance,
            "request_id": request_id,
        }
        record = _log.makeRecord(_log.name, level, file, line, text, (), None, None, context)
        record.process = self.pid or record.process
        record.exc_text = trace.rstrip() or None
        _log.handle(record)


class SeesLevels(Protocol):
    """A worker that can be told which levels the log admits."""

    def set_levels(self, admitted: int) -> None:
        """A bit for each of `LEVELS`; on any thread."""


class _Levels:
    """The levels of the log, for workers; a `LogFollower`."""

    def __init__(self) -> None:
        self._workers = WeakSet[SeesLevels]()
        self._settings: LogSettings | None = None
        self._lock = threading.Lock()  # guards both, so that no worker sees older settings last
        follow(self)

    def add(self, worker: SeesLevels) -> None:
        with self._lock:
            self._workers.add(worker)
            worker.set_levels(self._admitted())

    def settings_changed(self, settings: LogSettings | None) -> None:
        with self._lock:
            self._settings = settings
            for worker in self._workers:
                worker.set_levels(self._admitted())

    def flush(self) -> None:
        """Nothing waits here."""

    def _admitted(self) -> int:
        admits = self._settings.admits if self._settings is not None else _log.isEnabledFor
        return sum(1 << bit for bit, level in enumerate(LEVELS) if admits(level))


@functools.cache
def _levels() -> _Levels:
    return _Levels()


def show_levels(worker: SeesLevels) -> None:
    """Have a worker see which levels the log admits, from now on and for as long as it lives."""
    _levels().add(worker)


def _ignore(_: bool) -> None:
    return None


class PipeReader:
    """Reads what a worker writes to one of its standard descriptors, and makes lines of it; on the loop only.

    Args:
        descriptor: the end to read; closed by `close`.
        name: `stdout` or `stderr`.
        level: of the lines, in `logging`.
        lines: takes the lines.
    """

    def __init__(self, descriptor: int, name: str, level: int, lines: WorkerLines) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._name = name
        self._level = level
        self._lines = lines
        self._rest = b""
        self._cut_bytes = 0
        self._is_open = True
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)

    def set_reading(self, is_reading: bool) -> None:
        """Stop reading, or go on."""
        if not self._is_open:
            return
        if is_reading:
            self._loop.add_reader(self._descriptor, self._read)
        else:
            self._loop.remove_reader(self._descriptor)

    def close(self) -> None:
        """Take what is in the pipe still and close this end.

        Not at the end of the stream: a child of the worker may hold the other end open.
        """
        left = 2 * _READ_BYTES  # what a pipe holds, and more; a child may go on writing
        while self._is_open and left > 0 and (count := self._read()):
            left -= count
        self._end()

    def _read(self) -> int:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            data = b""
        if not data:
            self._end()
            return 0
        self._cut(data)
        return len(data)

    def _cut(self, data: bytes) -> None:
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._say(self._rest + part)
            self._rest = b""
            self._cut_bytes = 0
        rest = self._rest + rest
        self._rest = rest[:MAX_LINE_BYTES]
        self._cut_bytes += len(rest) - len(self._rest)

    def _say(self, line: bytes) -> None:
        if line.endswith(b'"') and (logged := _LOGGED.fullmatch(line)):
            printed, letter, file, number, quoted = logged.groups()
            try:
                text = json.loads(quoted, strict=False)
            except ValueError:  # it only looks like one, or was cut
                pass
            else:
                self._say(printed)
                self._lines.add(_LETTERS[letter], text, file=os.fsdecode(file), line=int(number))
                return
        # A progress bar returns to the start of its line: what is left in the end is what a terminal shows.
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
        if not line:
            return
        text = line[:MAX_LINE_BYTES].decode("utf-8", "backslashreplace")
        cut_bytes = self._cut_bytes + max(0, len(line) - MAX_LINE_BYTES)
        if cut_bytes:
            text += f" … [cut: {cut_bytes} bytes more]"
        self._lines.add(self._level, text, file=self._name)

    def _end(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._say(self._rest)
            self._rest = b""
