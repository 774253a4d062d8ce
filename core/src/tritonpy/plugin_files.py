"""Plugins that are files and no distributions: modules of Python, and shared objects compiled for Triton."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from tritonpy.errors import Internal
from tritonpy.plugin_manager import Hook, PluginManager, bind_object

_numbers = itertools.count(1)  # a file that is imported again is another module


def bind_file(kind: str, path: Path, what: str) -> Callable[[str], Hook | None]:
    """Import a file of Python and return a binder for its hooks, as `bind_object` does.

    The module can be found by its name, as pickle and dataclasses want it, while somebody holds the binder.

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
    and second, or of somebody's making, and none is written where models lie.

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
        raise Internal(f"{what} {path} failed to import: {type(exc).__name__}: {exc}") from exc
    return module


class _SourceLoader(SourceFileLoader):
    def path_stats(self, path: str) -> Mapping[str, Any]:  # Any: as in importlib
        """Give no date to compare a compiled file with; without one importlib neither reads nor writes it."""
        raise OSError(f"{path}: compiled files are not used")


def open_shared_object(loaders: PluginManager, kind: str, path: Path) -> object | None:
    """Have a shared object opened by an installed loader; None when none of them opens it. Blocking.

    Args:
        loaders: the plugins of kind `loaders`.
        kind: of which kind the plugin inside is.
        path: the file.
    """
    for loader in loaders.load_all():
        load = loaders.bind(loader, "load_shared_object")
        plugin: object | None = load(kind, str(path)) if load is not None else None
        if plugin is not None:
            return plugin
    return None
