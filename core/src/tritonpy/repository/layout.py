"""What lies in a model repository on disk."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tritonpy.errors import Internal, InvalidArg, NotFound, TritonError

_log = logging.getLogger("tritonpy.repository")

CONFIG_FILENAME = "config.pbtxt"
_NOT_VERSIONS = {"warmup", "initial_state", "configs", "__pycache__"}


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """One model as found in a repository.

    Attributes:
        name: the directory's name.
        path: the directory.
        versions: version numbers that have a directory, ascending.
    """

    name: str
    path: Path
    versions: tuple[int, ...]

    @property
    def config_path(self) -> Path:
        """Where its configuration would be; it may be absent."""
        return self.path / CONFIG_FILENAME


def read_repositories(roots: tuple[str, ...]) -> tuple[list[ModelDirectory], dict[str, str]]:
    """List the models of all repositories, by name.

    Returns:
        The models, and for each name that lies in several repositories why it is left out.

    Raises:
        Internal: a root does not exist.
        InvalidArg: a root is no directory.
    """
    found: dict[str, Path] = {}
    refused: dict[str, str] = {}
    for root in map(Path, roots):
        for path in _model_paths(root):
            rival = found.setdefault(path.name, path)
            if rival.resolve() != path.resolve():
                refused[path.name] = _not_unique(rival, path)
    return [read_model(path) for name, path in found.items() if name not in refused], refused


def find_model(roots: tuple[str, ...], name: str) -> ModelDirectory:
    """The model called `name`, in whichever repository it lies.

    Raises:
        InvalidArg: this cannot be a model's name, or several repositories have it.
        NotFound: no repository has it.
    """
    check_model_name(name)
    paths = [path for path in (Path(root) / name for root in roots) if path.is_dir()]
    if not paths:
        raise NotFound(f"model '{name}' not found in any model repository")
    for path in paths[1:]:
        if path.resolve() != paths[0].resolve():
            raise InvalidArg(_not_unique(paths[0], path))
    return read_model(paths[0])


def check_model_name(name: str) -> None:
    """Refuse a name that is not the name of one directory inside a repository; for names from clients.

    Raises:
        InvalidArg: says what a name must not have.
    """
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise InvalidArg(
            f"'{name}' is no name of a model: expected the name of a directory inside a repository, "
            f"without '/' and NUL and not beginning with '.'"
        )


def list_models(roots: tuple[str, ...]) -> dict[str, Path]:
    """The directory of every model in the repositories that can be read, by name; of rivals the first."""
    found: dict[str, Path] = {}
    for root in map(Path, roots):
        try:
            for path in _model_paths(root):
                found.setdefault(path.name, path)
        except (TritonError, OSError) as exc:
            _log.error("failed to list model repository '%s': %s", root, exc)
    return found


def read_model(path: Path) -> ModelDirectory:
    """What lies in one model's directory."""
    return ModelDirectory(path.name, path, read_versions(path))


def _model_paths(root: Path) -> Iterator[Path]:
    if not root.is_dir():
        if not root.exists():
            raise Internal(
                f"failed to stat file {root}: there is no such model repository (--model-repository)"
            )
        raise InvalidArg(f"repository path is not a valid directory: {root} (--model-repository)")
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            yield path


def _not_unique(one: Path, other: Path) -> str:
    return f"model '{one.name}' is not unique across all model repositories: {one} and {other}"


def read_versions(path: Path) -> tuple[int, ...]:
    """The version numbers that have a directory in a model's directory, ascending."""
    versions = []
    for child in path.iterdir():
        name = child.name
        if not child.is_dir() or name in _NOT_VERSIONS or name.startswith("."):
            continue
        if not name.isascii() or not name.isdigit() or (len(name) > 1 and name[0] == "0"):
            _log.warning(
                "ignore version directory '%s' of model '%s' which fails to convert to integral number",
                name,
                path.name,
            )
            continue
        versions.append(int(name))
    return tuple(sorted(versions))


def require_versions(model: ModelDirectory, selected: list[int]) -> None:
    """Refuse a model of which no version would be served.

    Raises:
        InvalidArg: in Triton's words.
    """
    if not selected:
        raise InvalidArg(
            f"at least one version must be available under the version policy of model '{model.name}'"
        )
