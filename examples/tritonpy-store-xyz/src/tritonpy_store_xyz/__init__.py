"""The store `xyz`: a model repository that lies in a zip archive, `xyz://models.zip`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from tritonpy.plugin import (
    Fingerprint,
    Internal,
    InvalidArg,
    LocalFiles,
    NotFound,
    Store,
    StoreOptions,
    TemporaryDirectories,
    hookimpl,
    is_watched,
)


class ZipStore:
    """The models in one archive; each is a directory at its top."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._path = Path(root.partition("://")[2])
        self._copies = TemporaryDirectories()

    def model_names(self) -> list[str]:
        with self._opened() as archive:
            names = {name.partition("/")[0] for name in archive.namelist() if "/" in name}
        return sorted(filter(is_watched, names))

    def place_of(self, name: str) -> str:
        return f"zip:{self._path.resolve()}/{name}"

    def look(self, name: str) -> Fingerprint | None:
        with self._opened() as archive:
            return fingerprint_of(archive, name)

    def fetch(self, name: str) -> LocalFiles:
        with (
            self._opened() as archive
        ):  # once, so that all files are of one archive if another takes its place
            fingerprint = fingerprint_of(archive, name)
            if fingerprint is None:
                raise NotFound(f"model '{name}' not found in model repository {self.root}")
            directory = self._copies.make("xyz-")
            archive.extractall(
                directory, [file for file in archive.namelist() if file.startswith(f"{name}/")]
            )
        return LocalFiles(directory / name, fingerprint, is_temporary=True)

    def stop(self) -> None:
        pass  # nothing here takes long

    def close(self) -> None:
        self._copies.close()

    @contextmanager
    def _opened(self) -> Iterator[ZipFile]:
        try:
            with ZipFile(self._path) as archive:
                yield archive
        except (OSError, BadZipFile) as exc:
            raise Internal(f"model repository {self.root} cannot be read: {exc}") from exc


def fingerprint_of(archive: ZipFile, name: str) -> Fingerprint | None:
    """The files of a model, each with its checksum; None without the model."""
    files = [
        file for file in archive.infolist() if file.filename.startswith(f"{name}/") and not file.is_dir()
    ]
    return (
        frozenset((file.filename.removeprefix(f"{name}/"), file.CRC, file.file_size) for file in files)
        or None
    )


@hookimpl
def store_open(root: str, options: StoreOptions) -> Store:
    if not root.partition("://")[2]:
        raise InvalidArg(f"model repository {root}: expected the path of an archive behind ://")
    return ZipStore(root)
