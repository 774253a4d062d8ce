"""Where the hooks of a cache come from: an installed plugin, or files in `--cache-directory`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tritonpy.errors import InvalidArg, Unsupported
from tritonpy.plugin_files import bind_file, open_shared_object
from tritonpy.plugin_manager import Hook, PluginManager, bind_object

CACHE_FILENAME = "cache.py"
"""How a Python file in a cache's directory is called."""

Binder = Callable[[str], Hook | None]


class CacheFinder:
    """Finds caches by name.

    Args:
        caches: the installed ones.
        loaders: what opens shared objects.
        directory: `--cache-directory`.
    """

    def __init__(self, caches: PluginManager, loaders: PluginManager, directory: str) -> None:
        self._caches = caches
        self._loaders = loaders
        self._directory = directory

    def find(self, name: str) -> Binder:
        """Give what binds the hooks of a cache; blocking.

        Raises:
            InvalidArg: there is none, in Triton's words; says which there are.
            Unsupported: it is a shared object, and nothing installed opens it.
            Internal: it is disabled, or its import failed.
        """
        if name in self._caches.names():
            plugin = self._caches.load(name)
            return lambda hook: self._caches.bind(plugin, hook)
        library = f"libtritoncache_{name}.so"
        if Path(name).name == name:
            directory = Path(self._directory).absolute() / name
            if (directory / library).is_file():
                return bind_object("caches", self._open(name, directory / library), str(directory / library))
            if (directory / CACHE_FILENAME).is_file():
                return bind_file("caches", directory / CACHE_FILENAME, "response cache")
        raise InvalidArg(
            f"unable to find '{library}' for cache. Searched: {self._directory}; installed caches: "
            f"{', '.join(self._caches.names()) or 'none'}"
            + ("; to install it: pip install tritonpy-cache-redis" if name == "redis" else "")
        )

    def _open(self, name: str, library: Path) -> object:
        plugin = open_shared_object(self._loaders, "caches", library)
        if plugin is None:
            raise Unsupported(
                f"cache '{name}' is a shared object, {library}, and nothing is installed that opens it: "
                f"pip install tritonpy-abi"
            )
        return plugin
