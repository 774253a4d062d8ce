"""From what a server is told about its response cache to the cache."""

from __future__ import annotations

from tritonpy.cache.finder import CacheFinder
from tritonpy.cache.response_cache import ResponseCache
from tritonpy.errors import InvalidArg
from tritonpy.options import ServerOptions
from tritonpy.plugin_manager import PluginManager


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
