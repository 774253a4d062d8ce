"""Directories that are there for a while, and go with the process that made them, even if it is killed.

All of a process lie in one directory, on which it holds a lock for as long as it lives. The system releases
the lock however the process ends, so a later process finds out which directories are abandoned.
The lock also tells programs that clean up old temporary files, such as systemd-tmpfiles, to keep away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import weakref
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: directories of a process that was killed stay
    fcntl = None  # type: ignore[assignment]

_PREFIX = "tritonpy-models-"


class TemporaryDirectories:
    """Makes directories for this process; any thread may ask.

    Args:
        parent: where they lie; None for the system's directory for temporary files.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent
        self._lock = threading.Lock()  # guards the making of `_own`
        self._own: Path | None = None
        self._remove: weakref.finalize[..., TemporaryDirectories] | None = None

    def make(self, prefix: str) -> Path:
        """An empty directory that only this user can read; the caller removes it.

        Raises:
            OSError: the disk does not take it.
        """
        with self._lock:
            if self._own is None or not self._own.is_dir():
                self._own = self._begin()
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self._own))

    def remove_abandoned(self) -> None:
        """Delete what processes of this user left that were killed; blocking."""
        if fcntl is None:
            return
        for directory in self._where().glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):  # not ours, no directory, in use, or gone meanwhile
                descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    if os.fstat(descriptor).st_uid == os.geteuid():
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        shutil.rmtree(directory, ignore_errors=True)
                finally:
                    os.close(descriptor)

    def close(self) -> None:
        """Delete everything now; the end of the process does it otherwise."""
        if self._remove is not None:
            self._remove()
            self._own = None

    def _where(self) -> Path:
        return self._parent or Path(tempfile.gettempdir())

    def _begin(self) -> Path:
        # It cannot be taken for abandoned before its lock is held: until then it has another name.
        hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=self._where()))
        descriptor = None
        if fcntl is not None:
            descriptor = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # a disk without locks: it is never found abandoned there
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        own = hidden.rename(hidden.with_name(hidden.name[1:]))
        self._remove = weakref.finalize(self, _remove, own, descriptor)
        return own


def _remove(directory: Path, descriptor: int | None) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    if descriptor is not None:
        os.close(descriptor)


OF_THIS_PROCESS = TemporaryDirectories()
"""Where models keep what comes with load requests and what agents make: a process has one lifetime, so one of
these, however many servers are in it."""
