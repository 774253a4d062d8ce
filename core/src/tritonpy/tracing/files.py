"""Trace files in Triton's format and under Triton's names, readable at any time.

Triton keeps traces in memory until it ends or has as many as it should. Here each is written when it is
complete: the file is a whole JSON array after every write, because the next one begins where the closing
bracket is. A file with a number in its name is made under another name and gets its own when it is complete,
so that a reader never sees half of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path

from tritonpy.line_writer import open_private
from tritonpy.tracing.json_text import trace_text
from tritonpy.tracing.trace import FinishedTrace

_log = logging.getLogger("tritonpy.tracing")


@dataclass(eq=False, slots=True)
class TraceStream:
    """The traces of one set of settings, from when they were set until they are replaced.

    Attributes:
        path: where traces are written.
        log_frequency: how many make a file with a number; 0 for one file.
        count: how many there will be; -1 for any number.
        written_count: how many are written, or could not be; on the writing thread only.
        dropped_count: how many found too much waiting.
        is_overdue: traces that are missing are no longer waited for.
        has_ended: the file has what there is.
    """

    path: str
    log_frequency: int = 0
    count: int = -1
    written_count: int = 0
    dropped_count: int = 0
    is_overdue: bool = False
    has_ended: bool = False

    @property
    def is_complete(self) -> bool:
        """All traces are written, or given up."""
        return self.has_ended or self.written_count + self.dropped_count >= self.count

    def ends_with(self, count: int) -> bool:
        """True if this number of further traces completes the stream."""
        return 0 < self.count <= self.written_count + self.dropped_count + count

    @property
    def per_file(self) -> int:
        """Traces in a file with a number; 0 when none is made."""
        return self.log_frequency or max(self.count, 0)


class TraceFiles:
    """Writes traces; satisfies `TraceDestination`."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        self._parts: dict[TraceStream, _Part] = {}
        self._part_count = 0
        self._failing: set[str] = set()

    def take(self, traces: Sequence[FinishedTrace]) -> None:
        start = 0
        while start < len(traces):
            stream = traces[start].stream
            assert isinstance(stream, TraceStream)
            most = min(start + self._room(stream, len(traces)), len(traces))
            end = start + 1
            while end < most and traces[end].stream is stream:
                end += 1
            self._write(stream, traces[start:end])
            start = end

    def end_stream(self, stream: object) -> None:
        """Make a file of the last traces, even if they are fewer than a file has."""
        assert isinstance(stream, TraceStream)
        part = self._parts.pop(stream, None)
        try:
            if part is None:
                pass
            elif stream.log_frequency or stream.is_overdue:
                self._file(stream.path).keep(part)
            else:
                self._file(stream.path).absorb(part)
        except OSError as exc:
            self._complain(stream.path, exc)
        stream.has_ended = True  # last: when it is set, the file is there

    def close(self) -> None:
        for stream in list(self._parts):
            self.end_stream(stream)

    def _room(self, stream: TraceStream, wanted: int) -> int:
        if not stream.per_file:
            return wanted
        part = self._parts.get(stream)
        return stream.per_file - (part.trace_count if part is not None else 0)

    def _write(self, stream: TraceStream, traces: Sequence[FinishedTrace]) -> None:
        text = b",".join(map(trace_text, traces))
        file = self._file(stream.path)
        try:
            if not stream.per_file:
                file.whole.append(text)
            else:
                part = self._parts.get(stream)
                if part is None:
                    self._part_count += 1
                    array = _JsonArray(Path(f"{stream.path}.part{self._part_count}"))
                    part = self._parts[stream] = _Part(array)
                part.trace_count += len(traces)
                part.array.append(text)
                if part.trace_count >= stream.per_file or stream.ends_with(len(traces)):
                    del self._parts[stream]
                    file.keep(part)
        except OSError as exc:
            self._complain(stream.path, exc)
        else:
            self._failing.discard(stream.path)
        stream.written_count += len(traces)  # last: when it is set, the file is there

    def _file(self, path: str) -> _File:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _File(Path(path))
        return file

    def _complain(self, path: str, exc: OSError) -> None:
        if path not in self._failing:
            self._failing.add(path)
            _log.error("traces cannot be written to '%s': %s; they are lost", path, exc.strerror or exc)


@dataclass(slots=True)
class _Part:
    """A file that is not complete."""

    array: _JsonArray
    trace_count: int = 0


class _File:
    """The files of one name: the file itself and those with a number."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0
        self.whole = _JsonArray(path)

    def keep(self, part: _Part) -> None:
        """Give a part the next number."""
        number, self._count = self._count, self._count + 1
        part.array.path.rename(f"{self._path}.{number}")

    def absorb(self, part: _Part) -> None:
        """Put a part into the file itself."""
        if self.whole.is_begun:
            self.whole.append(part.array.path.read_bytes()[1:-1])
            part.array.path.unlink()
        else:
            part.array.path.rename(self._path)
            self.whole.is_begun = True


@dataclass(slots=True)
class _JsonArray:
    """A file with an array in it; begun anew with the first write.

    Attributes:
        path: of the file.
        is_begun: it was written to.
    """

    path: Path
    is_begun: bool = False

    def append(self, text: bytes) -> None:
        """Add elements, separated by commas.

        Raises:
            OSError: they could not be written; the file is as it was.
        """
        if not self.is_begun:
            with open(self.path, "wb", buffering=0, opener=open_private) as file:
                _write_all(file, b"[" + text + b"]")
            self.is_begun = True
            return
        with self.path.open("r+b", buffering=0) as file:
            end = file.seek(-1, os.SEEK_END)
            try:
                _write_all(file, b"," + text + b"]")
            except OSError:
                file.truncate(end)
                file.seek(end)
                _write_all(file, b"]")
                raise


def _write_all(file: RawIOBase, text: bytes) -> None:
    view = memoryview(text)
    while view:
        view = view[file.write(view) or 0 :]
