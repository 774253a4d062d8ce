"""A response cache called as a server calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any, TypeVar

from tritonpy.cache.finder import find_cache
from tritonpy.errors import InvalidArg
from tritonpy.handles import Cache, CacheUsage
from tritonpy.plugin_files import Binder, PluginOpener
from tritonpy.plugin_manager import Hook, PluginManager

T = TypeVar("T")


class OpenCache:
    """A cache between its initialisation and its end; see `open_cache`.

    Attributes:
        handle: what its hooks receive.
    """

    def __init__(self, name: str, settings: Mapping[str, str], bind: Binder) -> None:
        self.handle = Cache(dict(settings), name=name)
        self._bind = bind
        self._runner = asyncio.Runner()
        try:
            self._call("cache_initialize", self.handle)
        except BaseException:
            self._runner.close()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:  # Any: as in asyncio
        """Run on the loop on which the hooks are called."""
        return self._runner.run(coroutine)

    async def outcome(self, hook: str, *arguments: object) -> Any:  # Any: of each hook
        """What a hook comes to, called on the loop that this is awaited on.

        Raises:
            InvalidArg: the cache does not implement it.
        """
        return await _outcome(self._hook(hook)(self.handle, *arguments))

    def lookup(self, key: str) -> bytes | memoryview | None:
        """The entry under a key."""
        entry: bytes | memoryview | None = self._call("cache_lookup", self.handle, key, is_required=True)
        return entry

    def insert(self, key: str, entry: bytes) -> None:
        """Give it an entry.

        Raises:
            TritonError: it refuses this one.
        """
        self._call("cache_insert", self.handle, key, entry, is_required=True)

    def lookup_all(self, keys: list[str]) -> list[bytes | memoryview | None]:
        """Ask for many keys at the same time, as a busy server does."""

        async def ask_all() -> list[bytes | memoryview | None]:
            return list(await asyncio.gather(*(self.outcome("cache_lookup", key) for key in keys)))

        return self._runner.run(ask_all())

    @property
    def usage(self) -> CacheUsage | None:
        """Its usage; None when it does not tell."""
        usage: CacheUsage | None = self._call("cache_usage", self.handle)
        return usage

    def close(self) -> None:
        """Finalise it."""
        try:
            self._call("cache_finalize", self.handle)
        finally:
            self._runner.close()

    def _hook(self, name: str) -> Hook:
        hook = self._bind(name)
        if hook is None:
            raise InvalidArg(f"cache '{self.handle.name}' does not implement {name}")
        return hook

    def _call(self, name: str, *arguments: object, is_required: bool = False) -> Any:  # Any: of each hook
        hook = self._hook(name) if is_required else self._bind(name)
        if hook is None:
            return None

        async def call() -> Any:  # Any: see above
            return await _outcome(hook(*arguments))  # on the loop, as in a server

        return self._runner.run(call())


async def _outcome(outcome: Any) -> Any:  # Any: of each hook
    return await outcome if isawaitable(outcome) else outcome


@contextmanager
def open_cache(cache: str | object, settings: Mapping[str, str] | None = None) -> Iterator[OpenCache]:
    """Let a cache begin, and end afterwards.

    Example:
        >>> with open_cache("local", {"size": "1048576"}) as cache:
        ...     cache.insert("key", b"entry")
        ...     assert cache.lookup("key") == b"entry"

    Args:
        cache: the name of an installed cache, a plugin object, or the `Path` of a file: `.py`, or a shared
            object, which needs tritonpy-abi.
        settings: as `--cache-config NAME,key=value` gives them.

    Raises:
        TritonError: it cannot be opened, or does not want to begin.
    """
    manager, loaders = PluginManager("caches"), PluginManager("loaders")
    name = cache if isinstance(cache, str) else "cache under test"
    if isinstance(cache, Path):
        bind = PluginOpener(manager, loaders, "response cache").open(cache.absolute())
    else:
        if not isinstance(cache, str):
            manager.register(name, cache)
        bind = find_cache(PluginOpener(manager, loaders, "response cache"), "", name)
    opened = OpenCache(name, settings or {}, bind)
    try:
        yield opened
    finally:
        opened.close()
