"""Log lines of shared objects, in the server's log.

A thread takes them from the C library, where it waits and leaves the interpreter to others. In processes
without one, children of the server, the C library writes them to standard error instead.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable

from tritonpy.abi_host import AdmittedRecord, LogSettings, follow, has_room, verbose

from tritonpy_abi.shim import CData, Shim

NAME = "tritonpy.abi"
"""The logger of their lines, and of ours about them."""

_log = logging.getLogger(NAME)

_INFO, _WARNING, _ERROR, _VERBOSE = range(4)
_LEVELS = {_INFO: logging.INFO, _WARNING: logging.WARNING, _ERROR: logging.ERROR, _VERBOSE: verbose(1)}
"""By the numbers of `TRITONSERVER_LogLevel`."""

_STOP_TIMEOUT_S = 2


def enabled_levels(admits: Callable[[int], bool] = _log.isEnabledFor) -> int:
    """What `TRITONPY_LogEnable` is told: the bit `1 << number` for each level that is logged.

    Args:
        admits: whether lines of a level of `logging` are written.
    """
    return sum(1 << number for number, level in _LEVELS.items() if admits(level))


class PluginLog:
    """Hands lines of shared objects to `logging`, at the levels that the server's log admits.

    Begins at once, and goes on until the process ends; not in one that is forked from it.
    """

    def __init__(self, shim: Shim) -> None:
        self._shim = shim
        self._lost = 0  # lines for which the log had no room; only the thread counts them
        self._taker = self._start()
        atexit.register(self._stop)
        self._settings: LogSettings | None = None
        follow(self)

    def refresh(self) -> None:
        """Look what is logged now where whoever embeds the server decides: nobody says when that changes."""
        self.settings_changed(self._settings)

    def settings_changed(self, settings: LogSettings | None) -> None:
        """See `LogFollower`."""
        self._settings = settings
        admits = _log.isEnabledFor if settings is None else settings.admits
        self._shim.lib.TRITONPY_LogEnable(enabled_levels(admits))

    def flush(self) -> None:
        """See `LogFollower`."""
        self._shim.lib.TRITONPY_LogFlush(_STOP_TIMEOUT_S * 1000)

    def _start(self) -> threading.Thread:
        self._shim.lib.TRITONPY_LogCollect()
        # A daemon: a log that nobody reads does not keep the process from ending.
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
        file, level = self._shim.text(line.file), _LEVELS[line.level]
        # The server's log admitted it when the plugin wrote it; changes of an embedder's log are heard late.
        kind = logging.LogRecord if self._settings is None else AdmittedRecord
        record = kind(NAME, level, file, line.line, message, None, None)
        record.created = line.time_ns / 1e9
        if kind is AdmittedRecord or _log.isEnabledFor(level):
            _log.handle(record)
