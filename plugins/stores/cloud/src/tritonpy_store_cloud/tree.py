"""The objects below a prefix of an object store, as files and directories that a disk can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tritonpy.plugin import Fingerprint, InvalidArg, is_watched

_LONGEST_NAME = 255
_LONGEST_PATH = 2048


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as a store lists it.

    Attributes:
        key: its whole key; a slash at its end is not seen.
        tag: what differs when its content does.
        byte_size: of its content.
    """

    key: str
    tag: str
    byte_size: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of a model in an object store, as they were at one moment.

    Attributes:
        files: by path below the model's directory.
        directories: paths below the model's directory.
    """

    files: dict[str, StoredObject]
    directories: frozenset[str]

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the files, without those that `is_watched` leaves out."""
        return frozenset(
            [
                *((path, file.tag, file.byte_size) for path, file in self.files.items() if _is_watched(path)),
                *((path, 0, -1) for path in self.directories if _is_watched(path)),
            ]
        )


def build_tree(
    objects: Iterable[StoredObject], prefix: str, directories_below: Callable[[str], Sequence[str]]
) -> Tree | None:
    """Make files and directories of the objects below a prefix.

    Directories are not stored: they are what keys have before a slash. Programs that show a store as
    directories put an empty object for each, whose key ends in a slash; an empty directory exists only in
    this form.

    Args:
        objects: all whose keys begin with the prefix and a slash, and one with the prefix itself for a key
            that ends in a slash.
        prefix: without a slash at its end.
        directories_below: takes a key and lists the directories right below it, as whole keys.

    Returns:
        None when there is no object.

    Raises:
        InvalidArg: a key is none that a disk could hold, or two of them contradict each other.
    """
    files: dict[str, StoredObject] = {}
    directories: set[str] = set()
    is_there = False
    for found in objects:
        is_there = True
        path = found.key.removeprefix(prefix).lstrip("/")
        if not path:
            continue  # the directory of the model itself
        check_path(path, found.key)
        files[path] = found
        directories.update(_parents(path))
    if not is_there:
        return None
    empty = [path for path, file in files.items() if file.byte_size == 0 and path not in directories]
    listed = {
        parent: set(directories_below(f"{prefix}/{parent}".rstrip("/")))
        for parent in set(map(_parent, empty))
    }
    directories.update(path for path in empty if f"{prefix}/{path}" in listed[_parent(path)])
    for path in directories & files.keys():
        if files[path].byte_size:
            raise InvalidArg(
                f"'{files[path].key}' is both an object with content and the beginning of other keys; "
                f"expected one or the other: on a disk a name is a file or a directory"
            )
        del files[path]
    return Tree(files, frozenset(directories))


def check_path(path: str, key: str) -> None:
    """Refuse a path that would lead out of the directory it is put into, or that no disk takes.

    Raises:
        InvalidArg: names the key.
    """
    shown = repr(key if len(key) <= 200 else f"{key[:200]}…")
    for part in path.split("/"):
        if part in ("", ".", "..") or "\0" in part or "\\" in part:
            raise InvalidArg(
                f"the object {shown} cannot be a file of a model: '{part[:200]}' is no name of a file; "
                f"expected keys without '//', '.', '..', backslashes and NUL"
            )
        if len(part.encode("utf-8", "surrogatepass")) > _LONGEST_NAME:
            raise InvalidArg(
                f"the object {shown} cannot be a file of a model: a name in it has over {_LONGEST_NAME} bytes"
            )
    if len(path.encode("utf-8", "surrogatepass")) > _LONGEST_PATH:
        raise InvalidArg(
            f"the object {shown} cannot be a file of a model: its path has over {_LONGEST_PATH} bytes"
        )


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _parents(path: str) -> Iterable[str]:
    while path := _parent(path):
        yield path


def _is_watched(path: str) -> bool:
    return all(map(is_watched, path.split("/")))
