"""A model's key, and the contents of its directory."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tritonpy.config.config_error import shown as shown
from tritonpy.errors import InvalidArg


class ModelKey(NamedTuple):
    """The name of a model and, where names are not unique, its namespace.

    Attributes:
        name: as clients say it.
        namespace: the repository it comes from with `--model-namespacing`; "" without.
    """

    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """As errors and the log write it."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name


_log = logging.getLogger("tritonpy.repository")

CONFIG_FILENAME = "config.pbtxt"
_MOST_NAME_BYTES = 255  # what file systems take
_NOT_VERSIONS = {"warmup", "initial_state", "configs", "__pycache__"}
_HIGHEST_VERSION = 2**63 - 1  # versions are 64-bit integers in configurations, so in Triton everywhere
_MOST_DIGITS = len(str(_HIGHEST_VERSION))


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """One model on a local disk.

    Attributes:
        name: the directory's name.
        path: the directory.
        versions: version numbers that have a directory, ascending.
    """

    name: str
    path: Path
    versions: tuple[int, ...]


def check_model_name(name: str) -> None:
    """Refuse a name that is not the name of one directory inside a repository; for names from clients.

    Raises:
        InvalidArg: says what a name must not have.
    """
    if not name.strip():
        raise InvalidArg("Model name cannot be empty. Please enter a valid name to deploy.")
    if "/" in name or name in (".", ".."):
        raise InvalidArg(f"model name must not contain path traversal characters, got '{shown(name)}'")
    if name.startswith(".") or "\0" in name:
        raise InvalidArg(
            f"'{shown(name)}' is no name of a model: expected the name of a directory inside a "
            f"repository, without NUL and not beginning with '.'"
        )
    if len(name.encode(errors="surrogateescape")) > _MOST_NAME_BYTES:
        raise InvalidArg(
            f"'{shown(name)}' is no name of a model: expected the name of a directory inside a "
            f"repository, of at most {_MOST_NAME_BYTES} bytes"
        )


def read_model(path: Path) -> ModelDirectory:
    """Read the model in a directory; blocking."""
    return ModelDirectory(path.name, path, read_versions(path))


def read_versions(path: Path) -> tuple[int, ...]:
    """The version numbers that have a directory in a model's directory, ascending."""
    versions = []
    for child in path.iterdir():
        name = child.name
        if not child.is_dir() or name in _NOT_VERSIONS or name.startswith("."):
            continue
        objection = _objection(name)
        if objection:
            _log.warning("ignore version directory '%s' which %s, of model '%s'", name, objection, path.name)
            continue
        versions.append(int(name))
    return tuple(sorted(versions))


def _objection(name: str) -> str:
    """The objection, in Triton's words, to a directory of this name as a version's; "" if there is none."""
    if not name.isascii() or not name.isdigit():
        return "fails to convert to integral number"
    if len(name) > 1 and name[0] == "0":
        return "contains leading zeros in its directory name"
    if len(name) > _MOST_DIGITS or int(name) > _HIGHEST_VERSION:
        return f"fails to convert to integral number: the highest version is {_HIGHEST_VERSION}"
    return ""


def require_versions(model: ModelDirectory, selected: list[int]) -> None:
    """Refuse a model of which no version would be served.

    Raises:
        InvalidArg: in Triton's words.
    """
    if not selected:
        raise InvalidArg(
            f"at least one version must be available under the version policy of model '{model.name}'"
        )
