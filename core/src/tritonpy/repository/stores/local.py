"""A repository on a disk of this machine, or on one that is mounted."""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

from tritonpy.errors import Internal, InvalidArg, NotFound, Unavailable
from tritonpy.fingerprint import Fingerprint, read_fingerprint
from tritonpy.store import LocalFiles

_log = logging.getLogger("tritonpy.repository")

_NOTHING_THERE = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}
"""The errors of the system for a name behind which there is nothing; any other leaves that unknown."""


class LocalStore:
    """A directory with a directory for each model; see `Store`.

    Args:
        root: the directory.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._path = Path(root)
        self._unspeakable: set[str] = set()
        self._device: int | None = None

    def model_names(self) -> list[str]:
        try:
            if not self.root:  # as a path it would be the working directory
                raise FileNotFoundError
            names = [entry.name for entry in os.scandir(self._path) if _may_be_model(entry)]
            self._check_mounted(names)
        except FileNotFoundError:
            raise Internal(
                f"failed to stat file {self.root}: there is no such model repository (--model-repository)"
            ) from None
        except NotADirectoryError:
            raise InvalidArg(
                f"repository path is not a valid directory: {self.root} (--model-repository)"
            ) from None
        except OSError as exc:
            raise Internal(f"failed to read model repository {self.root}: {exc.strerror}") from exc
        return sorted(filter(self._is_speakable, names))

    def place_of(self, name: str) -> str:
        return str((self._path / name).resolve())

    def look(self, name: str) -> Fingerprint | None:
        """See `Store`; of a model that cannot be looked at the reason, which its load tells."""
        directory = self._path / name
        try:
            if not self.root or not stat.S_ISDIR(directory.stat().st_mode):
                return None
        except ValueError:  # a NUL in the name
            return None
        except OSError as exc:
            return None if exc.errno in _NOTHING_THERE else frozenset({("", str(exc.strerror), -1)})
        return read_fingerprint(directory)

    def fetch(self, name: str) -> LocalFiles:
        """See `Store`; the files stay where they are."""
        if not (self._path / name).is_dir():
            raise NotFound(f"model '{name}' not found in model repository {self.root}")
        return LocalFiles(self._path / name)

    def stop(self) -> None:
        """See `Store`; nothing is under way for long."""

    def close(self) -> None:
        """See `Store`; there are no copies."""

    def _check_mounted(self, names: list[str]) -> None:
        """Tell a file system that is not mounted any more from a repository without models."""
        device = os.stat(self._path).st_dev
        if names:
            self._device = device
        elif self._device not in (None, device):
            raise Unavailable(
                f"model repository {self.root} is empty and on another device than before: is the file "
                f"system that holds it still mounted?"
            )

    def _is_speakable(self, name: str) -> bool:
        """True if clients can say a name; a name that they cannot say is logged once."""
        try:
            name.encode()
        except UnicodeEncodeError:
            if name not in self._unspeakable:
                self._unspeakable.add(name)
                _log.warning("ignore model directory %a of %s, whose name is not UTF-8", name, self.root)
            return False
        return True


def _may_be_model(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith("."):
        return False
    try:
        return entry.is_dir()
    except OSError as exc:  # a link to a place without permission, or to a network drive whose server is gone
        return exc.errno not in _NOTHING_THERE
