"""Output of a model: its prints go line by line into the server's log.

`sys.stdout` and `sys.stderr` are real text streams over a `LineSink`, which cuts what is written into lines
and sends each as a message. A line has left this process when `print` returns, so what a model said before it
crashed is in the log. What does not pass through these streams (native code, child processes, the interpreter
itself) writes to descriptors 1 and 2, which are pipes that the server reads.
"""

from __future__ import annotations

import ctypes
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from threading import get_ident
from typing import Any

MAX_LINE_BYTES = 64 * 1024
"""Longer lines are cut."""

MAX_PARTIAL_BYTES = 8 * 1024
"""What a thread has written of a line is sent, as if it were one, once it is longer than this."""

_MAX_IDS = 4
_LINE_BUFFERED = 1  # _IOLBF of glibc, musl and macOS

Send = Callable[[int, str, str, str, int, str], None]
"""Takes level, text, request id, file, line, traceback."""

own_requests: ContextVar[Sequence[tuple[Any, ...]]] = ContextVar("own_requests", default=())
"""The requests, as they came (see `frame.py`), that the present thread or coroutine works for."""


def current_request_id() -> str:
    """The request that log lines concern: its id, or a few ids; "" where that is unknown."""
    ids = [wire[1] for wire in own_requests.get() if wire[1]]
    if len(ids) > _MAX_IDS:
        ids[_MAX_IDS:] = ["…"]
    return ",".join(ids)


class LineSink(io.BufferedIOBase):
    """The binary end of a text stream: takes bytes in any pieces, sends lines.

    Needs no lock, and so cannot wait for one that its own thread holds, as a finalizer that prints would:
    each thread has a line of its own under construction.

    Args:
        name: `stdout` or `stderr`; stands for the file name in the log.
        descriptor: of the process: what child processes get when a model hands this stream on.
        level: of the lines; 0 info, 1 warning.
        send: takes the lines.
    """

    def __init__(self, name: str, descriptor: int, level: int, send: Send) -> None:
        super().__init__()
        self.name = f"<{name}>"
        self.mode = "wb"
        self._file = name
        self._descriptor = descriptor
        self._level = level
        self._send = send
        self._is_child = False
        self._partial: dict[int, bytes] = {}

    def write(self, data: bytes) -> int:  # type: ignore[override]  # and anything else with a buffer
        """Send the lines that `data` completes."""
        data = bytes(data)
        if self._is_child:
            return self._write_through(data)
        *lines, rest = data.split(b"\n")
        thread = get_ident()
        for line in lines:
            self._say(self._partial.pop(thread, b"") + line)
        if rest:
            rest = self._partial.pop(thread, b"") + rest
            if len(rest) > MAX_PARTIAL_BYTES:
                self._say(rest)
            else:
                self._partial[thread] = rest
        return len(data)

    @property
    def has_begun(self) -> bool:
        """True if any thread has written a part of a line."""
        return bool(self._partial)

    def end_line(self) -> None:
        """Send what this thread has written of a line, as if it were one."""
        partial = self._partial.pop(get_ident(), b"")
        if partial:
            self._say(partial)

    def end_all_lines(self) -> None:
        """The same for all threads."""
        while self._partial:
            self._say(self._partial.popitem()[1])

    def use_descriptor(self) -> None:
        """Write to the process's descriptor from now on: the channel belongs to this process's parent."""
        self._is_child = True
        self._partial.clear()

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """The descriptor that this stream stands for."""
        return self._descriptor

    def close(self) -> None:
        """Do nothing: others may print after a model has closed what is not its own."""

    def _write_through(self, data: bytes) -> int:
        written = 0
        while written < len(data):
            written += os.write(self._descriptor, data[written:])
        return written

    def _say(self, line: bytes) -> None:
        # A progress bar returns to the start of its line: what is left in the end is what a terminal shows.
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
        if not line:
            return
        text = line[:MAX_LINE_BYTES].decode("utf-8", "backslashreplace")
        if len(line) > MAX_LINE_BYTES:
            text += f" … [cut: {len(line) - MAX_LINE_BYTES} bytes more]"
        with suppress(OSError):  # the server is gone, and this process soon will be
            self._send(self._level, text, current_request_id(), self._file, 0, "")


_installed: list[LineSink] = []


def install_streams(send: Send) -> None:
    """Replace `sys.stdout` and `sys.stderr`, and have C's own `stdout` write each line at once."""
    _installed[:] = LineSink("stdout", 1, 0, send), LineSink("stderr", 2, 1, send)
    sys.stdout, sys.stderr = map(_text_stream, _installed)
    for sink in _installed:
        os.register_at_fork(after_in_child=sink.use_descriptor)
    _write_c_lines_at_once()


def end_line() -> None:
    """Send what this thread has begun to print; at the end of `execute`."""
    for sink in _installed:
        if sink.has_begun:
            sink.end_line()


def end_all_lines() -> None:
    """Send what any thread has begun to print."""
    for sink in _installed:
        sink.end_all_lines()


def _text_stream(sink: LineSink) -> io.TextIOWrapper:
    stream = io.TextIOWrapper(
        sink, encoding="utf-8", errors="backslashreplace", newline="\n", write_through=True
    )
    stream.mode = "w"  # type: ignore[misc]  # as that of the stream it replaces
    return stream


def _write_c_lines_at_once() -> None:
    """Native code that prints would otherwise fill a block first, and lose it in a crash."""
    try:
        library = ctypes.CDLL(None)
        name = "__stdoutp" if sys.platform == "darwin" else "stdout"
        library.setvbuf(ctypes.c_void_p.in_dll(library, name), None, _LINE_BUFFERED, ctypes.c_size_t(0))
    except (AttributeError, OSError, ValueError):  # a C library that hides its streams
        pass
