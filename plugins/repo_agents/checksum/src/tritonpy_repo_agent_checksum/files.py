"""Files of a model compared with what they have to be."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Callable, Container, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tritonpy.plugin import Internal, InvalidArg, NotFound, RepoAgentModel

from tritonpy_repo_agent_checksum.parameters import EVERY_FILE, Checksum

# MD5 is for files that change by accident; it is allowed where policy forbids it for security.
_HASHES: dict[str, Callable[[], Any]] = {  # Any: hashlib names no type for its objects
    "MD5": partial(hashlib.md5, usedforsecurity=False),
    "SHA256": hashlib.sha256,
}

_CONFIGURATION = re.compile(r"(config|configs/[^/]+)\.(pbtxt|json|yaml|yml)")
_COMPILED = re.compile(r"(.*/)?__pycache__/[^/]+\.pyc")


def check_file(model: RepoAgentModel, checksum: Checksum) -> None:
    """Compare one file; however large, it is read in small pieces.

    Raises:
        InvalidArg: it is another file than the one the checksum was made of, or no file at all.
        NotFound: it is not there.
        Internal: it cannot be read.
    """
    path = model.directory / checksum.path
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise InvalidArg(
                f"model '{model.name}': {path} is no file, so it has no {checksum.algorithm} checksum"
            )
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, _HASHES[checksum.algorithm]).hexdigest()
    except FileNotFoundError:
        raise NotFound(
            f"model '{model.name}': {path} is not there; its {checksum.algorithm} checksum is expected to be "
            f"{checksum.digest}"
        ) from None
    except OSError as exc:
        raise Internal(
            f"model '{model.name}': {path} cannot be read to make its {checksum.algorithm} checksum: "
            f"{exc.strerror}"
        ) from exc
    if digest != checksum.digest:
        raise InvalidArg(
            f"Mismatched {checksum.algorithm} hash for file {path}, expect: {checksum.digest}, got: {digest} "
            f"(model '{model.name}')"
        )


def check_nothing_else(model: RepoAgentModel, listed: Container[str]) -> None:
    """Refuse a model that has files beside those that were compared.

    A configuration cannot hold its own checksum, and what Python compiles is not a part of the model: it is
    never run in place of its source.

    Args:
        model: the model.
        listed: their paths relative to its directory.

    Raises:
        InvalidArg: names the first of them.
    """
    for path in _files(model.directory):
        relative = path.relative_to(model.directory).as_posix()
        if (
            relative not in listed
            and not _CONFIGURATION.fullmatch(relative)
            and not _COMPILED.fullmatch(relative)
        ):
            raise InvalidArg(
                f"model '{model.name}': {path} has no checksum, and {EVERY_FILE} asks for one of every file"
            )


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        if path.is_dir() and not path.is_symlink():  # what a link leads to has no path inside
            yield from _files(path)
        else:
            yield path
