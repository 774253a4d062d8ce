"""Imports of a model's own files: always from their source, never from a compiled file beside it.

Python takes a compiled file for current as long as size and time (in whole seconds) of the source are what
they were. A model that is edited and loaded again within a second would run its old code. Nor is anything
compiled written: a model's directory belongs to its author and often cannot be written to.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import spec_from_file_location
from typing import Any


class SourceLoader(SourceFileLoader):
    """Compiles a module's source every time."""

    def path_stats(self, path: str) -> dict[str, Any]:  # Any: as in importlib
        """Give no date to compare a compiled file with; without one importlib neither reads nor writes it."""
        raise OSError(f"{path}: compiled files are not used")


_directories: list[str] = []  # of several models where they share a process
_find = FileFinder.path_hook(
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


def import_from_source(directory: str) -> None:
    """From now on import what lies in `directory`, however deep, from its source.

    The running environment is left alone, also where it lies in there: compiling all of its packages would
    take long, and they do not change between two loads.
    """
    _directories.append(directory)
    if _find_own not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_own)
    for path in _own_in_cache():
        sys.path_importer_cache.pop(path, None)  # a finder made before would go on with compiled files


def forget_directory(directory: str) -> None:
    """The model in `directory` is gone; for a process that goes on without it."""
    own = _own_in_cache()
    _directories.remove(directory)
    for path in own:
        if not _is_own(path):
            sys.path_importer_cache.pop(path, None)
    if not _directories:
        sys.path_hooks.remove(_find_own)


def _find_own(path: str) -> Any:  # Any: a finder, whose type is importlib's own
    if not _is_own(path):
        raise ImportError(f"{path} is no model's", path=path)
    return _find(path)


def _own_in_cache() -> list[str]:
    """The cached finders of models' directories; other threads import meanwhile, and add more."""
    return [path for path in list(sys.path_importer_cache) if _is_own(path)]


def _is_own(path: str) -> bool:
    return any(is_below(path, directory) for directory in _directories) and not is_below(path, sys.prefix)


def is_below(path: str, directory: str) -> bool:
    """True if `path` is `directory` or lies in it, at any depth."""
    return os.path.join(os.path.abspath(path), "").startswith(os.path.join(os.path.abspath(directory), ""))


def spec_of(name: str, path: str) -> ModuleSpec | None:
    """The spec that imports the file at `path` as `name`; None for a file that is no Python module."""
    if path.endswith(tuple(SOURCE_SUFFIXES)):
        return spec_from_file_location(name, path, loader=SourceLoader(name, path))
    return spec_from_file_location(name, path)
