"""Response caches that are shared objects: the hooks of a cache, carried out by four functions of C."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial

from tritonpy.abi_host import on_own_thread
from tritonpy.plugin import Cache, CacheUsage, NotFound, hookimpl

from tritonpy_abi.caches.calls import FUNCTIONS, CacheCalls
from tritonpy_abi.caches.usage import read_usage
from tritonpy_abi.libraries import Library, open_library
from tritonpy_abi.probe import try_cache
from tritonpy_abi.shim import CData, open_shim


class SharedCache:
    """The plugin of one library, which is opened with the cache; `cache.state` is a `CacheCalls`.

    Args:
        path: of the library.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    @hookimpl
    async def cache_initialize(self, cache: Cache) -> None:
        """Have the library make its cache; first in a process of its own, which it may end."""
        # Not on a thread that the end of the loop waits for: this may take long.
        library = await on_own_thread(partial(_open_tried, self._path, cache.settings), "cache")
        calls = CacheCalls(open_shim(), library, _functions_of(library))
        await calls.initialize(cache.settings)
        cache.state = calls
        # It cannot be known: it may be another Redis. Then keys must be the same wherever the files are.
        cache.is_shared = True

    @hookimpl
    def cache_lookup(self, cache: Cache, key: str) -> Awaitable[memoryview | None]:
        """Ask the library; that it has nothing is its NOT_FOUND."""
        calls: CacheCalls = cache.state
        return calls.look_up(key)

    @hookimpl
    def cache_insert(self, cache: Cache, key: str, entry: bytes) -> Awaitable[None]:
        """Give the library an entry."""
        calls: CacheCalls = cache.state
        return calls.insert(key, entry)

    @hookimpl
    def cache_usage(self) -> CacheUsage | None:
        """The usage that the library's own metrics show."""
        return read_usage(open_shim())

    @hookimpl
    async def cache_finalize(self, cache: Cache) -> None:
        """Have the library end its cache."""
        calls: CacheCalls = cache.state
        await calls.close()


def _open_tried(path: str, settings: Mapping[str, str]) -> Library:
    try_cache(path, settings)
    return open_library(path)


def _functions_of(library: Library) -> tuple[CData, ...]:
    """The addresses of a cache's functions, in the order of `FUNCTIONS`."""
    found = {name: library.function(name) for name in FUNCTIONS}
    if missing := [name for name, address in found.items() if address is None]:
        raise NotFound(
            f"unable to find required entrypoint {', '.join(map(repr, missing))} in shared library: "
            f"{library.path}; a response cache defines {', '.join(FUNCTIONS)}"
        )
    return tuple(found.values())
