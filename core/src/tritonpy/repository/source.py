"""The source of one load of a model: its directory in a repository, or the content of a load request."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tritonpy.errors import InvalidArg
from tritonpy.fingerprint import Fingerprint, read_fingerprint
from tritonpy.repository.layout import ModelDirectory, ModelKey, check_model_name, read_model, shown
from tritonpy.repository.repositories import FoundModel
from tritonpy.temporary import OF_THIS_PROCESS

FILE_PREFIX = "file:"
"""How a load request writes the path of a file it brings: `file:1/model.py`."""


_MOST_DIRECTORIES = 100
"""In the path of a file that came with a request; to make and remove them, functions call each other."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The source that a model was loaded from, as it was when its load began.

    Attributes:
        key: the model.
        directory: its directory and versions.
        fingerprint: its files, looked at before any of them was read.
        root: the repository it comes from; "" for a model whose files came with a load request.
        config_override: the configuration as JSON that stands in for the file; None for the file.
        is_temporary: the directory was made for this load and goes with it.
    """

    key: ModelKey
    directory: ModelDirectory
    fingerprint: Fingerprint
    root: str
    config_override: str | None = None
    is_temporary: bool = False

    @property
    def is_overridden(self) -> bool:
        """True if a part of it came with a load request."""
        return self.config_override is not None

    def serves(self, found: FoundModel, config_override: str | None) -> bool:
        """True if a model loaded from this source is what a load of `found` would give.

        A load that brings no configuration keeps the one that an earlier load brought, as in Triton, until
        the files change.
        """
        return (
            self.root == found.store.root
            and self.fingerprint == found.fingerprint
            and config_override in (None, self.config_override)
        )

    def remove(self) -> None:
        """Delete the directory if it was made for this load; blocking."""
        if self.is_temporary:
            shutil.rmtree(self.directory.path.parent, ignore_errors=True)


def fetch_source(found: FoundModel, config_override: str | None) -> ModelSource:
    """Bring a model's files to a local disk; blocking.

    Args:
        found: the model.
        config_override: its configuration as JSON; None for what lies in its directory.

    Raises:
        TritonError: the files cannot be had; nothing is left behind.
    """
    files = found.store.fetch(found.key.name)
    try:
        directory = read_model(files.directory)
    except BaseException:
        if files.is_temporary:
            shutil.rmtree(files.directory.parent, ignore_errors=True)
        raise
    seen = found.fingerprint if files.fingerprint is None else files.fingerprint
    return ModelSource(found.key, directory, seen, found.store.root, config_override, files.is_temporary)


def lay_out_source(name: str, config_override: str | None, files: Mapping[str, bytes]) -> ModelSource:
    """Make a directory of the files that came with a request; blocking.

    Args:
        name: the model.
        config_override: its configuration as JSON, which must be there.
        files: contents by path, such as `file:1/model.py`; these are all the files there are.

    Raises:
        InvalidArg: the files cannot be laid out; nothing is left behind.
    """
    check_model_name(name)
    if config_override is None:
        raise InvalidArg("Load parameter 'config' must be specified for model file override")
    own = OF_THIS_PROCESS.make("model-")
    path = own / name
    try:
        path.mkdir()
        for key, content in files.items():
            _write(path, key, content)
        return ModelSource(
            ModelKey(name), read_model(path), read_fingerprint(path), "", config_override, is_temporary=True
        )
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        raise


def _write(directory: Path, key: str, content: bytes) -> None:
    relative = relative_path(key)
    path = directory / relative
    if relative.count("/") > _MOST_DIRECTORIES:
        raise InvalidArg(f"load parameter '{shown(key)}' has more than {_MOST_DIRECTORIES} directories")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:  # not twice, also where the file system takes two spellings for one
            file.write(content)
    except OSError as exc:
        raise InvalidArg(f"load parameter '{shown(key)}' cannot be written: {exc.strerror}") from exc


def relative_path(key: str) -> str:
    """The path that the key of a file says, below the model's directory.

    Raises:
        InvalidArg: it does not begin with `file:`, names no file, or leads out of the directory.
    """
    if not key.startswith(FILE_PREFIX):
        raise InvalidArg(
            f"unrecognized load parameter '{shown(key)}'; files are called 'file:<version>/<path>'"
        )
    path = key.removeprefix(FILE_PREFIX).lstrip("/")  # clients write `file:/1/model.py`, too
    normalized = posixpath.normpath(path)
    if not path or path.endswith("/") or normalized == "." or "\0" in path:
        raise InvalidArg(
            f"Invalid file parameter '{shown(key)}': expected the path of a file, 'file:<version>/<path>'"
        )
    if normalized.startswith(("/", "../")) or normalized == "..":
        raise InvalidArg(
            f"Invalid file parameter '{shown(key)}' with normalized path '{shown(normalized)}' must stay "
            f"within model directory."
        )
    return normalized
