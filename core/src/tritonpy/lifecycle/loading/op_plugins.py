"""Plugins that bring custom operators, asked for the libraries of each model before it is loaded."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from tritonpy.errors import Internal, TritonError, exception_text
from tritonpy.handles import Model, OpLibrary
from tritonpy.plugin_manager import Hook, PluginManager


class OpPlugins:
    """The installed plugins that bring custom operators; thread-safe.

    Args:
        plugins: the manager of kind `op_libraries`.
    """

    def __init__(self, plugins: PluginManager) -> None:
        self._plugins = plugins
        self._lock = threading.Lock()  # guards _plugins: several models are loaded at once

    def libraries_of(self, framework: str, model: Model) -> Sequence[OpLibrary]:
        """The libraries that all plugins name for a model, in the order of the plugins' names. Blocking.

        Args:
            framework: as the backend's attributes name it.
            model: its configuration has not been completed yet.

        Raises:
            TritonError: a plugin cannot be used, fails, or names something that is no absolute path; names
                the plugin.
        """
        names = [info.name for info in self._plugins.info() if info.state != "disabled"]
        return [library for name in names for library in self._ask(name, framework, model)]

    def _ask(self, name: str, framework: str, model: Model) -> list[OpLibrary]:
        plugin = f"plugin '{name}' of kind '{self._plugins.kind}'"
        hook = self._bound(name, plugin)
        where = f"{plugin} failed to name libraries for model '{model.name}'"
        try:
            paths = hook(framework, model)
            if not isinstance(paths, Iterable) or isinstance(paths, str):
                raise Internal(f"got {paths!r}, expected a list of absolute paths")
            return [OpLibrary(_absolute(path), plugin) for path in paths]
        except TritonError as exc:
            raise TritonError(f"{where}: {exc}", exc.code) from exc
        except Exception as exc:
            raise Internal(f"{where}: {exception_text(exc)}") from exc

    def _bound(self, name: str, plugin: str) -> Hook:
        with self._lock:
            hook = self._plugins.bind(self._plugins.load(name), "op_library_paths")
        if hook is None:
            raise Internal(f"{plugin} has no hook 'op_library_paths'")
        return hook


def _absolute(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, (str, os.PathLike)) or not os.path.isabs(path):
        raise Internal(f"got {path!r}, expected an absolute path")
    return Path(path)
