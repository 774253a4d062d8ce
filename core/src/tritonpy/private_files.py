"""Files that the server writes for its own user: the log, the access log and traces."""

from __future__ import annotations

import os


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file; one that is new may be read and written by its owner alone. For `open(…, opener=…)`."""
    return os.open(path, flags, 0o600)
