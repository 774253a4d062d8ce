"""Where the hooks of a cache come from: an installed plugin, or files in `--cache-directory`."""

from __future__ import annotations

from pathlib import Path

from tritonpy.errors import InvalidArg
from tritonpy.plugin_files import Binder, PluginOpener, first_file
from tritonpy.plugin_manager import PluginManager, install_hint

CACHE_FILENAME = "cache.py"
"""How a Python file in a cache's directory is called."""


class CacheFinder:
    """Finds caches by name.

    Args:
        caches: the installed ones.
        loaders: what opens shared objects.
        directory: `--cache-directory`.
    """

    def __init__(self, caches: PluginManager, loaders: PluginManager, directory: str) -> None:
        self._opener = PluginOpener(caches, loaders, "response cache")
        self._directory = directory

    def find(self, name: str) -> Binder:
        """Give what binds the hooks of a cache; blocking.

        Raises:
            InvalidArg: there is none, in Triton's words; says which there are.
            Unsupported: it is a shared object, and nothing installed opens it.
            Internal: it is disabled, or its import failed.
            TritonError: what opens shared objects does not open it.
        """
        if name in self._opener.names():
            return self._opener.load(name)
        library = f"libtritoncache_{name}.so"
        if Path(name).name == name:
            path = first_file([Path(self._directory).absolute() / name], (library, CACHE_FILENAME))
            if path is not None:
                return self._opener.open(path)
        raise InvalidArg(
            f"unable to find '{library}' for cache. Searched: {self._directory}; installed caches: "
            f"{', '.join(self._opener.names()) or 'none'}" + install_hint("caches", name)
        )
