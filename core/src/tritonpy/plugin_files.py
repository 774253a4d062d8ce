"""Plugins that are files and no distributions: modules of Python, and shared objects compiled for Triton."""

from __future__ import annotations

import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from tritonpy.errors import Internal, TritonError, Unsupported, exception_text
from tritonpy.plugin_manager import Hook, PluginManager, bind_object

Binder = Callable[[str], Hook | None]
"""Gives a plugin's implementation of the hook of a name, or None."""

_LONGEST_NAME = 255  # bytes; what file systems take

_numbers = itertools.count(1)  # a file that is imported again is another module


def bind_file(kind: str, path: Path, what: str) -> Binder:
    """Import a file of Python and return a binder for its hooks, as `bind_object` does.

    The module can be found by its name, as pickle and dataclasses want it, while the binder is alive.

    Args:
        kind: of plugin.
        path: ends in `.py`.
        what: what it is, for errors.

    Raises:
        Internal: the import failed, or a hook does not fit its spec.
    """
    module = import_file(path, what)
    try:
        bind = bind_object(kind, module, str(path))
    except Internal:
        del sys.modules[module.__name__]
        raise
    weakref.finalize(bind, sys.modules.pop, module.__name__, None).atexit = False
    return bind


def import_file(path: Path, what: str) -> ModuleType:
    """Import a file of Python as a module of its own, also when it was imported before.

    It is always compiled from its source: a compiled file beside it may be of another source of the same size
    and second, or be forged, and none is written where models lie.

    Args:
        path: ends in `.py`.
        what: what it is, for errors.

    Raises:
        Internal: the import failed.
    """
    name = f"tritonpy_plugin_{path.stem}_{next(_numbers)}"
    spec = spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Dataclasses and pickles look their module up by name while the body still runs.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:
        del sys.modules[spec.name]
        raise Internal(f"{what} {path} failed to import: {exception_text(exc)}") from exc
    return module


class _SourceLoader(SourceFileLoader):
    def path_stats(self, path: str) -> Mapping[str, Any]:  # Any: as in importlib
        """Give no date to compare a compiled file with; without one importlib neither reads nor writes it."""
        raise OSError(f"{path}: compiled files are not used")


class PluginOpener:
    """Gives the hooks of plugins of one kind: of installed ones, of shared objects, of files of Python.

    Args:
        installed: those that distributions offer.
        loaders: what opens shared objects.
        what: what they are, for errors.
    """

    def __init__(self, installed: PluginManager, loaders: PluginManager, what: str) -> None:
        self._installed = installed
        self._loaders = loaders
        self._what = what

    def names(self) -> list[str]:
        """Names of installed ones, whether they can be used or not."""
        return self._installed.names()

    def load(self, name: str) -> Binder:
        """The binder of the hooks of an installed plugin; blocking.

        Raises:
            TritonError: see `PluginManager.load`; or it is a library that cannot be opened.
        """
        plugin = self._installed.load(name)
        if isinstance(plugin, Path):
            return self.open(plugin)
        return lambda hook: self._installed.bind(plugin, hook)

    def find(self, name: str, directory: str, filenames: Sequence[str]) -> Binder | None:
        """The binder of an installed plugin, or of a file in the directory of its name; blocking.

        Args:
            name: the plugin's.
            directory: holds the directories of plugins that are files.
            filenames: such files, the first one that is there counts.

        Returns:
            None when there is neither.

        Raises:
            TritonError: see `load` and `open`.
        """
        if name in self.names():
            return self.load(name)
        if not is_filename(name):
            return None
        path = first_file([Path(directory).absolute() / name], filenames)
        return self.open(path) if path is not None else None

    def open(self, path: Path) -> Binder:
        """The binder of the hooks of a file: of Python if it ends in `.py`, else a shared object; blocking.

        Raises:
            Unsupported: it is a shared object, and nothing installed opens it.
            TritonError: why it cannot be opened.
            Internal: it failed to import, or a hook does not fit its spec.
        """
        if path.suffix == ".py":
            return bind_file(self._installed.kind, path, self._what)
        return bind_object(self._installed.kind, self._open_shared_object(path), str(path))

    def _open_shared_object(self, path: Path) -> object:
        faults = []
        for name in self._loaders.names():
            try:
                load = self._loaders.bind(self._loaders.load(name), "load_shared_object")
            except TritonError as fault:  # broken, or disabled: another one may open it
                faults.append(f"; {fault}")
                continue
            if load is None:
                continue
            try:
                plugin: object | None = load(self._installed.kind, str(path.absolute()))
            except TritonError:
                raise
            except Exception as exc:
                raise Internal(
                    f"{self._what} {path}: plugin '{name}' of kind 'loaders' failed to open it: "
                    f"{type(exc).__name__}: {exc}"
                ) from exc
            if plugin is not None:
                return plugin
        raise Unsupported(
            f"{self._what} {path} is a shared object, and nothing is installed that opens it"
            f"{''.join(faults) or ': pip install tritonpy-abi'}"
        )


def is_filename(name: str) -> bool:
    """True if a name can be that of a directory, and leads nowhere else."""
    return name not in ("", "..") and Path(name).name == name and len(name.encode()) <= _LONGEST_NAME


def first_file(directories: Iterable[Path], filenames: Sequence[str]) -> Path | None:
    """The first of these files that there is, looked for in one directory after the other; blocking."""
    paths = (directory / filename for directory in directories for filename in filenames)
    return next((path for path in paths if os.path.isfile(path)), None)
