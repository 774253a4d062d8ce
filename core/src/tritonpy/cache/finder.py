"""The response cache that the server's options ask for: an installed plugin, or files."""

from __future__ import annotations

from pathlib import Path

from tritonpy.cache.response_cache import ResponseCache
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy.plugin_files import Binder, PluginOpener, first_file
from tritonpy.plugin_manager import PluginManager, install_hint

CACHE_FILENAME = "cache.py"
"""The Python file in a cache's directory."""


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


def make_cache(options: ServerOptions, caches: PluginManager, loaders: PluginManager) -> ResponseCache | None:
    """The cache that the options ask for, not open yet; None when they ask for none.

    Args:
        options: of the server.
        caches: the installed caches.
        loaders: what opens shared objects.

    Raises:
        InvalidArg: they ask for several.
    """
    names = sorted({name for name, _, _ in options.cache_config})
    if not names:
        return None
    if len(names) > 1:
        raise InvalidArg(
            f"found multiple cache configurations, but only a single cache is currently supported; "
            f"got {', '.join(names)}"
        )
    finder = CacheFinder(caches, loaders, options.cache_directory)
    settings = {key: value for _, key, value in options.cache_config}
    return ResponseCache(names[0], settings, finder.find, options.cache_timeout_ms / 1000)
