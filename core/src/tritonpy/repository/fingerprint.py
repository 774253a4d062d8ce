"""What a model's files looked like at one moment, so that a change can be seen later."""

from __future__ import annotations

import os
from pathlib import Path

Fingerprint = frozenset[tuple[str, int | str, int]]
"""Path below the model's directory, mark and byte size of every file; of directories the path, with a size
of -1. The mark is what differs when the content does: the time of the last change in nanoseconds or, in an
object store, the object's tag."""

_IGNORED = {"__pycache__"}


def is_watched(name: str) -> bool:
    """Whether a file or directory of this name counts when changes are looked for."""
    return name not in _IGNORED and not name.startswith(".")


def read_fingerprint(directory: Path) -> Fingerprint:
    """Look at every file below `directory` once; blocking.

    Left out are what Python writes by itself (`__pycache__`) and names that begin with a dot, such as an
    editor's swap files. A file that vanishes meanwhile is left out, too: the next look sees the difference.
    """
    found: set[tuple[str, int | str, int]] = set()
    _collect(directory, "", found, ())
    return frozenset(found)


def _collect(
    directory: Path | str,
    prefix: str,
    found: set[tuple[str, int | str, int]],
    above: tuple[tuple[int, int], ...],
) -> None:
    try:
        status = os.stat(directory)
        here = (status.st_dev, status.st_ino)
        if here in above:  # a symbolic link to a directory that it lies in
            return
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        if not is_watched(entry.name):
            continue
        path = f"{prefix}{entry.name}"
        try:
            if entry.is_dir():
                found.add((path, 0, -1))
                _collect(entry.path, f"{path}/", found, (*above, here))
            else:
                status = entry.stat()
                found.add((path, status.st_mtime_ns, status.st_size))
        except OSError:
            continue
