"""What one load of a model is made from: its directory in a repository, or what came with a load request."""

from __future__ import annotations

import posixpath
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tritonpy.errors import InvalidArg
from tritonpy.repository.fingerprint import Fingerprint, read_fingerprint
from tritonpy.repository.layout import ModelDirectory, check_model_name, find_model, read_versions

FILE_PREFIX = "file:"
"""How a load request writes the path of a file it brings: `file:1/model.py`."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model comes from, as it was when its load began.

    Attributes:
        directory: the model's directory and versions.
        fingerprint: its files, looked at before any of them was read.
        config_override: the configuration as JSON that stands in for `config.pbtxt`; None for the file.
        is_temporary: the directory was made for this load and goes with it.
    """

    directory: ModelDirectory
    fingerprint: Fingerprint
    config_override: str | None = None
    is_temporary: bool = False

    @property
    def is_overridden(self) -> bool:
        """Whether a part of it came with a load request."""
        return self.config_override is not None

    def serves(self, wanted: ModelSource) -> bool:
        """Whether a model loaded from this source is what a load of `wanted` would give.

        A load that brings no configuration keeps the one that an earlier load brought, as in Triton, until
        the files change.
        """
        return (
            not wanted.is_temporary
            and self.directory.path == wanted.directory.path
            and self.fingerprint == wanted.fingerprint
            and wanted.config_override in (None, self.config_override)
        )

    def remove(self) -> None:
        """Delete the directory if it was made for this load; blocking."""
        if self.is_temporary:
            shutil.rmtree(self.directory.path.parent, ignore_errors=True)


def open_source(
    roots: tuple[str, ...], name: str, config_override: str | None, files: Mapping[str, bytes] | None
) -> ModelSource:
    """Find the model, or lay out the files that came with the request; blocking.

    Args:
        roots: the repositories.
        name: the model.
        config_override: its configuration as JSON; None for what lies in its directory.
        files: contents by path, such as `file:1/model.py`. With any, these are all the files there are.

    Raises:
        TritonError: there is no such model, or the files cannot be laid out; nothing is left behind.
    """
    if not files:
        directory = find_model(roots, name)
        return ModelSource(directory, read_fingerprint(directory.path), config_override)
    check_model_name(name)
    if config_override is None:
        raise InvalidArg("Load parameter 'config' must be specified for model file override")
    own = Path(tempfile.mkdtemp(prefix="tritonpy-model-"))
    path = own / name
    try:
        path.mkdir()
        for key, content in files.items():
            _write(path, key, content)
        directory = ModelDirectory(name, path, read_versions(path))
        return ModelSource(directory, read_fingerprint(path), config_override, is_temporary=True)
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        raise


def _write(directory: Path, key: str, content: bytes) -> None:
    path = directory / relative_path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as exc:
        raise InvalidArg(f"load parameter '{key}' cannot be written to {path}: {exc.strerror}") from exc


def relative_path(key: str) -> str:
    """The path that the key of a file says, below the model's directory.

    Raises:
        InvalidArg: it does not begin with `file:`, names no file, or leads out of the directory.
    """
    if not key.startswith(FILE_PREFIX):
        raise InvalidArg(f"unrecognized load parameter '{key}'; files are called 'file:<version>/<path>'")
    path = key.removeprefix(FILE_PREFIX)
    normalized = posixpath.normpath(path)
    if not path or path.endswith("/") or normalized == "." or "\0" in path:
        raise InvalidArg(
            f"Invalid file parameter '{key}': expected the path of a file, 'file:<version>/<path>'"
        )
    if normalized.startswith(("/", "../")) or normalized == "..":
        raise InvalidArg(
            f"Invalid file parameter '{key}' with normalized path '{normalized}' must stay within model "
            f"directory."
        )
    return normalized
