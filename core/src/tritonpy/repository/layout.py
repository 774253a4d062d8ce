"""What lies in a model repository on disk."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from tritonpy.errors import InvalidArg, NotFound

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
        NotFound: a root does not exist or is no directory.
    """
    found: dict[str, ModelDirectory] = {}
    refused: dict[str, str] = {}
    for root in map(Path, roots):
        if not root.is_dir():
            raise NotFound(f"failed to read model repository '{root}': not a directory (--model-repository)")
        for path in sorted(root.iterdir()):
            if not path.is_dir() or path.name.startswith("."):
                continue
            rival = found.get(path.name)
            if rival is not None and rival.path.resolve() != path.resolve():
                refused[path.name] = (
                    f"model '{path.name}' is not unique across all model repositories: "
                    f"{rival.path} and {path}"
                )
                continue
            found[path.name] = ModelDirectory(path.name, path, _versions(path))
    return [model for name, model in found.items() if name not in refused], refused


def _versions(path: Path) -> tuple[int, ...]:
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
