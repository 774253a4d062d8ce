"""A repository on a disk of this machine, or on one that is mounted."""

from __future__ import annotations

from pathlib import Path

from tritonpy.errors import Internal, InvalidArg, NotFound
from tritonpy.repository.fingerprint import Fingerprint, read_fingerprint
from tritonpy.repository.stores.store import LocalFiles


class LocalStore:
    """A directory with a directory for each model; see `Store`.

    Args:
        root: the directory.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._path = Path(root)

    def model_names(self) -> list[str]:
        """See `Store`."""
        try:
            return sorted(
                path.name for path in self._path.iterdir() if not path.name.startswith(".") and path.is_dir()
            )
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

    def place_of(self, name: str) -> str:
        """See `Store`."""
        return str((self._path / name).resolve())

    def look(self, name: str) -> Fingerprint | None:
        """See `Store`."""
        directory = self._path / name
        return read_fingerprint(directory) if directory.is_dir() else None

    def fetch(self, name: str) -> LocalFiles:
        """See `Store`; the files stay where they are."""
        fingerprint = self.look(name)
        if fingerprint is None:
            raise NotFound(f"model '{name}' not found in model repository {self.root}")
        return LocalFiles(self._path / name, fingerprint)

    def stop(self) -> None:
        """See `Store`; nothing is under way for long."""

    def close(self) -> None:
        """See `Store`; there are no copies."""
