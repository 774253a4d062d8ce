"""Log lines of shared objects, in the server's log.

A thread takes them from the C library, where it waits and leaves the interpreter to others. In processes
without one, children of the server, the C library writes them to standard error instead; those of agents read
the levels in a file that has no name.
"""

from __future__ import annotations

import atexit
import logging
import mmap
import os
import threading

from tritonpy.abi_host import AdmittedRecord, LogSettings, follow, has_room, verbose

from tritonpy_abi.shim import CData, Shim

NAME = "tritonpy.abi"
"""The logger of their lines, and of ours about them."""

_log = logging.getLogger(NAME)

_INFO, _WARNING, _ERROR, _VERBOSE = range(4)
_LEVELS = {_INFO: logging.INFO, _WARNING: logging.WARNING, _ERROR: logging.ERROR, _VERBOSE: verbose(1)}
"""By the numbers of `TRITONSERVER_LogLevel`."""

_STOP_TIMEOUT_S = 2


class PluginLog:
    """Hands lines of shared objects to `logging`, at the levels that the server's log admits.

    A `LogFollower`.

    Begins at once, and goes on until the process ends; not in one that is forked from it.

    Attributes:
        levels_descriptor: to read from: a byte with what `TRITONPY_LogEnable` was told last.
    """

    def __init__(self, shim: Shim) -> None:
        self._shim = shim
        self._lock = threading.Lock()  # guards the next two
        self._settings: LogSettings | None = None
        self.levels_descriptor, self._levels = _shared_byte()
        self._lost = 0  # lines for which the log had no room; only the thread counts them
        self._taker = self._start()
        atexit.register(self._stop)
        follow(self)

    def refresh(self) -> None:
        """Look up the levels where the embedding program sets them: it does not say when they change."""
        with self._lock:
            self._enable()

    def settings_changed(self, settings: LogSettings | None) -> None:
        with self._lock:
            self._settings = settings
            self._enable()

    def flush(self) -> None:
        self._shim.lib.TRITONPY_LogFlush(_STOP_TIMEOUT_S * 1000)

    def admits(self, level: int) -> bool:
        """True if lines of a level of `logging` are written."""
        settings = self._settings
        return _log.isEnabledFor(level) if settings is None else settings.admits(level)

    def write(self, level: int, file: str, line: int, text: str, **attributes: object) -> None:
        """Hand a line to `logging` that was admitted when a plugin wrote it; levels may have changed since.

        Args:
            level: of `logging`.
            file: of the plugin's source.
            line: in it.
            text: what it says.
            attributes: of the record, where they are not those of this process and this moment.
        """
        # Changes of an embedder's log are heard late: it may not have been admitted after all.
        kind = logging.LogRecord if self._settings is None else AdmittedRecord
        record = kind(NAME, level, file, line, text, None, None)
        vars(record).update(attributes)
        if kind is AdmittedRecord or _log.isEnabledFor(level):
            _log.handle(record)

    def _enable(self) -> None:
        levels = sum(1 << number for number, level in _LEVELS.items() if self.admits(level))
        self._shim.lib.TRITONPY_LogEnable(levels)
        self._levels[0] = levels

    def _start(self) -> threading.Thread:
        self._shim.lib.TRITONPY_LogCollect()
        # A daemon: a log whose reader has stopped does not keep the process from ending.
        taker = threading.Thread(target=self._take, name="tritonpy-abi-log", daemon=True)
        taker.start()
        return taker

    def _stop(self) -> None:
        self._shim.lib.TRITONPY_LogStop()
        self._taker.join(_STOP_TIMEOUT_S)

    def _take(self) -> None:
        line: CData = self._shim.ffi.new("TRITONPY_LogLine *")
        while self._shim.lib.TRITONPY_LogTake(line):
            self._lost += line.dropped
            if not has_room():
                self._lost += line.level >= 0
                continue
            self._report_lost()
            if line.level >= 0:
                self._hand_over(line)
        self._report_lost()

    def _report_lost(self) -> None:
        if self._lost:
            _log.warning("%d log lines of shared objects were dropped: there were too many", self._lost)
            self._lost = 0

    def _hand_over(self, line: CData) -> None:
        message = self._shim.ffi.buffer(line.message, line.message_size)[:].decode(errors="replace")
        file = self._shim.text(line.file)
        self.write(_LEVELS[line.level], file, line.line, message, created=line.time_ns / 1e9)


def _shared_byte() -> tuple[int, mmap.mmap]:
    """A descriptor to map for reading, and what it shows; its holders may open it for writing, too."""
    writable = os.memfd_create("tritonpy-log-levels")
    try:
        os.ftruncate(writable, 1)
        return os.open(f"/proc/self/fd/{writable}", os.O_RDONLY | os.O_CLOEXEC), mmap.mmap(writable, 1)
    finally:
        os.close(writable)
