"""Plugins that are files and no distributions: modules of Python, and shared objects compiled for Triton."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

from tritonpy.errors import Internal
from tritonpy.plugin_manager import PluginManager

_numbers = itertools.count(1)  # a file that is imported again is another module


def import_file(path: Path, what: str) -> object:
    """Import a file of Python as a module of its own, also when it was imported before.

    Args:
        path: ends in `.py`.
        what: what it is, for errors.

    Raises:
        Internal: the import failed.
    """
    spec = importlib.util.spec_from_file_location(f"tritonpy_plugin_{path.stem}_{next(_numbers)}", path)
    assert spec is not None  # the name ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up by name while the body still runs.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:
        del sys.modules[spec.name]
        raise Internal(f"{what} {path} failed to import: {type(exc).__name__}: {exc}") from exc
    return module


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
