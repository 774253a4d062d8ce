"""Fingerprint of a model's files at one moment, so that a change can be seen later."""

from __future__ import annotations

import os
from pathlib import Path

Fingerprint = frozenset[tuple[str, int | str, int]]
"""A tuple for each file: its path below the model's directory, a mark, and its byte size. Of directories
there are the path and a size of -1. The mark differs when the content does: the time of the last change
in nanoseconds or, in an object store, the object's tag."""

_IGNORED = {"__pycache__"}


def is_watched(name: str) -> bool:
    """True if a file or directory of this name counts when changes are looked for."""
    return name not in _IGNORED and not name.startswith(".")


def read_fingerprint(directory: Path) -> Fingerprint:
    """Look at every file below `directory` once; blocking.

    Left out are what Python writes by itself (`__pycache__`) and names that begin with a dot, such as an
    editor's swap files. A file that vanishes meanwhile is left out, too: the next look sees the difference.
    Nothing is opened but directories, so no pipe or device holds it up.
    """
    found: set[tuple[str, int | str, int]] = set()
    seen: set[tuple[int, int]] = (
        set()
    )  # directories by device and number: links may lead to one again and again
    pending: list[tuple[Path | str, str]] = [(directory, "")]
    while pending:  # in a fixed order, or a directory of two names could be seen under either
        path, prefix = pending.pop()
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            entries = sorted(os.scandir(path), key=_name)
        except OSError:
            continue
        for entry in entries:
            if not is_watched(entry.name):
                continue
            name = f"{prefix}{entry.name}"
            try:
                if entry.is_dir():
                    found.add((name, 0, -1))
                    pending.append((entry.path, f"{name}/"))
                else:
                    status = entry.stat()
                    found.add((name, status.st_mtime_ns, status.st_size))
            except OSError:
                continue
    return frozenset(found)


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
