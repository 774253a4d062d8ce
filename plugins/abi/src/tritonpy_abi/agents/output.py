"""Output of an agent: its prints and log lines, line by line in the server's log."""

from __future__ import annotations

import json
import logging
import os
import re
import select
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tritonpy.abi_host import has_room, verbose

from tritonpy_abi.logs import PluginLog

_MOST_LINE_BYTES = 64 * 1024  # longer lines are cut
_READ_BYTES = 64 * 1024
_AFTERWARDS_S = 10.0  # for what is left of a process; a few milliseconds, unless the machine is busy
_RETRY_S = 0.02  # how soon a full log is looked at again
_MOST_LOOKS = 100  # then its reader is taken for stuck; no seconds: they pass while the process stands still

# The form of lines that are not collected in the library. They come in this way, and not as messages, because
# then the last ones before a crash are there, too. The line printed before may not have ended.
# Short counts keep what only looks like it from taking long.
_LOGGED = re.compile(
    rb"(.*?)([IWEV])\d{4} \d\d:\d\d:\d\d\.\d{6} \d{1,10} ([^\"]{0,255}):(-?\d{1,10})\] (\".*\")", re.DOTALL
)
_LEVELS = {b"I": logging.INFO, b"W": logging.WARNING, b"E": logging.ERROR, b"V": verbose(1)}


class AgentOutput:
    """Reads what an agent's process writes, on a thread.

    Args:
        path: of the library, which names lines that are not logged but printed.
        pid: of the process.
        descriptors: to read from, with the level of what is printed there; each is closed at its end.
        ended: an event, which is closed after it has come: `finish` is called.
        log: where the process looks what is logged.
    """

    def __init__(
        self, path: Path, pid: int, descriptors: Mapping[int, int], ended: int, log: PluginLog
    ) -> None:
        self._log = log
        self._path = path
        self._pid = pid
        self._streams = {descriptor: _Stream(level) for descriptor, level in descriptors.items()}
        self._is_stuck = False
        self._ended = ended
        self._is_all_taken = threading.Event()
        threading.Thread(target=self._read, name=f"output of {path.name}", daemon=True).start()

    def finish(self) -> None:
        """The process is gone: wait until what is left is logged. Blocking.

        Programs that it has started may live on and hold its streams: they are listened to for as long as
        they do, but not waited for.
        """
        os.eventfd_write(self._ended, 1)
        self._is_all_taken.wait(_AFTERWARDS_S)

    def _read(self) -> None:
        poll = select.poll()
        for descriptor in (self._ended, *self._streams):
            poll.register(descriptor, select.POLLIN)
        try:
            has_ended = False
            while not has_ended:
                ready = {descriptor for descriptor, _ in poll.poll()}
                has_ended = self._ended in ready
                self._take_from(ready - {self._ended}, poll)
            poll.unregister(self._ended)
            os.close(self._ended)
            while left := poll.poll(0):
                self._take_from({descriptor for descriptor, _ in left}, poll)
        finally:
            self._is_all_taken.set()
        while self._streams:
            self._take_from({descriptor for descriptor, _ in poll.poll()}, poll)

    def _take_from(self, ready: Iterable[int], poll: select.poll) -> None:
        for descriptor in ready:
            self._wait_for_room()
            if not self._take(descriptor, self._streams[descriptor]):
                poll.unregister(descriptor)
                del self._streams[descriptor]
                os.close(descriptor)

    def _wait_for_room(self) -> None:
        """Let the agent wait in its `printf` while the log has much to write and is being read."""
        looks = 0
        while not (has_room() or self._is_stuck):
            looks += 1
            self._is_stuck = looks > _MOST_LOOKS
            time.sleep(_RETRY_S)
        self._is_stuck = self._is_stuck and not has_room()

    def _take(self, descriptor: int, stream: _Stream) -> bool:
        """True if there may be more to read."""
        data = os.read(descriptor, _READ_BYTES)
        *lines, rest = (stream.rest + data).split(b"\n")
        stream.rest = rest[:_MOST_LINE_BYTES]
        for line in lines:
            self._say(line, stream.level)
        if not data:
            self._say(stream.rest, stream.level)
        return bool(data)

    def _say(self, line: bytes, level: int) -> None:
        if logged := _LOGGED.fullmatch(line):
            printed, letter, file, number, text = logged.groups()
            self._say(printed, level)
            self._write(_LEVELS[letter], os.fsdecode(file), int(number), _unquoted(text))
            return
        # A progress bar returns to the start of its line: what is left in the end is what a terminal shows.
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
        if line and self._log.admits(level):
            self._write(level, self._path.name, 0, line[:_MOST_LINE_BYTES].decode(errors="backslashreplace"))

    def _write(self, level: int, file: str, number: int, text: str) -> None:
        self._log.write(level, file, number, text, process=self._pid)


class _Stream:
    def __init__(self, level: int) -> None:
        self.level = level
        self.rest = b""


def _unquoted(quoted: bytes) -> str:
    try:
        text = json.loads(quoted.decode(errors="surrogateescape"), strict=False)
        assert isinstance(text, str)  # it stands between quotes
        return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except ValueError:  # a line that was cut, or is none of ours
        return quoted.decode(errors="backslashreplace")
