"""Distributions that are at hand as files: wheels, and folders that wheels are built from."""

from __future__ import annotations

import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, PathDistribution
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from tritonpy.errors import InvalidArg

_GROUP = "tritonpy."


@dataclass(frozen=True, slots=True)
class Offer:
    """A distribution in a file.

    Attributes:
        name: of the distribution, in its normalized form.
        path: the wheel, or the folder with its `pyproject.toml`.
        extras: what may stand in brackets behind its name.
        plugins: by kind, the names of the plugins that it offers.
        version: of a wheel; None for a folder, which tells only when it is built.
    """

    name: str
    path: Path
    extras: frozenset[str] = frozenset()
    plugins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: Version | None = None


def find_offers(paths: Iterable[Path]) -> list[Offer]:
    """The distributions at some paths, each once: the first path that has it wins, there the newest wheel.

    Args:
        paths: wheels, folders of distributions, folders with wheels.

    Raises:
        InvalidArg: a path is nothing of the kind.
    """
    found: dict[str, Offer] = {}
    for path in paths:
        for offer in _at(path):
            found.setdefault(offer.name, offer)
    return list(found.values())


def _at(path: Path) -> list[Offer]:
    if (path / "pyproject.toml").is_file():
        return [read_folder(path)]
    if path.is_dir():
        wheels = [wheel for wheel in sorted(path.glob("*.whl")) if fits(wheel)]
        if wheels:
            return sorted(map(read_wheel, wheels), key=_version, reverse=True)
    elif path.is_file() and path.suffix == ".whl":
        if fits(path):
            return [read_wheel(path)]
        raise InvalidArg(f"'{path}' is a wheel for another Python or another kind of machine than this one")
    raise InvalidArg(
        f"--find-links '{path}': expected a wheel, a folder with wheels for this Python, or the folder of a "
        f"distribution, which has a pyproject.toml"
    )


def _version(offer: Offer) -> Version:
    return offer.version or Version("0")


def fits(wheel: Path) -> bool:
    """True if a wheel is for the running interpreter."""
    try:
        _, _, _, tags = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as exc:
        raise InvalidArg(f"'{wheel}' is not named as a wheel is: {exc}") from exc
    return not tags.isdisjoint(sys_tags())


def read_wheel(path: Path) -> Offer:
    """What a wheel says of itself.

    Raises:
        InvalidArg: it is none.
    """
    name, version, _, _ = parse_wheel_filename(path.name)
    try:
        with zipfile.ZipFile(path) as archive:
            [info] = {
                entry.partition("/")[0] + "/"
                for entry in archive.namelist()
                if entry.partition("/")[0].endswith(".dist-info")
            }
            described = PathDistribution(zipfile.Path(archive, info))
            extras = frozenset(described.metadata.get_all("Provides-Extra") or [])
            return Offer(name, path, extras, _plugins(described.entry_points), version)
    except (OSError, ValueError, zipfile.BadZipFile) as exc:
        raise InvalidArg(f"'{path}' cannot be read as a wheel: {exc}") from exc


def _plugins(entries: Iterable[EntryPoint]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        if entry.group.startswith(_GROUP):
            kind = entry.group.removeprefix(_GROUP)
            found[kind] = (*found.get(kind, ()), entry.name)
    return found


def read_folder(path: Path) -> Offer:
    """What the `pyproject.toml` of a folder says.

    Raises:
        InvalidArg: it has no project, or cannot be read.
    """
    file = path / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError) as exc:
        raise InvalidArg(f"'{file}' cannot be read: {exc}") from exc
    if "name" not in project:
        raise InvalidArg(f"'{file}' has no [project] with a name: expected the folder of a distribution")
    plugins = {
        group.removeprefix(_GROUP): tuple(entries)
        for group, entries in project.get("entry-points", {}).items()
        if group.startswith(_GROUP)
    }
    extras = frozenset(project.get("optional-dependencies", {}))
    return Offer(canonicalize_name(project["name"]), path.absolute(), extras, plugins)
