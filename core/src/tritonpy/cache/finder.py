"""The response cache that the server's options ask for: an installed plugin, or files."""

from __future__ import annotations

from functools import partial

from tritonpy.cache.response_cache import ResponseCache
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy.plugin_files import Binder, PluginOpener
from tritonpy.plugin_manager import PluginManager, install_hint

CACHE_FILENAME = "cache.py"
"""The Python file in a cache's directory."""


def find_cache(opener: PluginOpener, directory: str, name: str) -> Binder:
    """The binder of the hooks of a cache; blocking.

    Args:
        opener: of caches.
        directory: `--cache-directory`.
        name: the cache's.

    Raises:
        InvalidArg: there is none, in Triton's words; says which there are.
        Unsupported: it is a shared object, and nothing installed opens it.
        Internal: it is disabled, or its import failed.
        TritonError: what opens shared objects does not open it.
    """
    library = f"libtritoncache_{name}.so"
    found = opener.find(name, directory, (library, CACHE_FILENAME))
    if found is None:
        raise InvalidArg(
            f"unable to find '{library}' for cache. Searched: {directory}; installed caches: "
            f"{', '.join(opener.names()) or 'none'}" + install_hint("caches", name)
        )
    return found


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
    find = partial(find_cache, PluginOpener(caches, loaders, "response cache"), options.cache_directory)
    settings = {key: value for _, key, value in options.cache_config}
    return ResponseCache(names[0], settings, find, options.cache_timeout_ms / 1000)
