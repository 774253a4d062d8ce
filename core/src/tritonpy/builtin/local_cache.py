"""The response cache `local`: entries in this process's memory, the least recently used ones go first.

`--cache-config local,size=<bytes>`. What an entry costs is counted with its key and Python's own bookkeeping,
so that the process grows by no more than `size`.
"""

from __future__ import annotations

import sys
from collections import OrderedDict

from tritonpy.plugin import Cache, CacheUsage, InvalidArg, hookimpl

_PER_ENTRY = 128
"""Bytes that an `OrderedDict` takes for each entry: measured, with room for its growth."""


class LocalCache:
    """Entries by key, up to a number of bytes; on the loop only.

    Args:
        byte_size: how much it may hold.
    """

    def __init__(self, byte_size: int) -> None:
        self.byte_size = byte_size
        self.used = 0
        self.eviction_count = 0
        self._entries: OrderedDict[str, bytes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> bytes | None:
        """The entry, which is the most recently used one from now on."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def add(self, key: str, entry: bytes) -> None:
        """Keep an entry, unless there is one for this key.

        Raises:
            InvalidArg: it alone is larger than the cache, in Triton's words.
        """
        if key in self._entries:
            return
        cost = _cost(key, entry)
        if cost > self.byte_size:
            raise InvalidArg(
                f"Requested byte_size: {cost} is greater than total cache size: {self.byte_size}"
            )
        while self.used + cost > self.byte_size:
            self.used -= _cost(*self._entries.popitem(last=False))
            self.eviction_count += 1
        self._entries[key] = entry
        self.used += cost


def _cost(key: str, entry: bytes) -> int:
    return sys.getsizeof(key) + sys.getsizeof(entry) + _PER_ENTRY


@hookimpl
def cache_initialize(cache: Cache) -> None:
    """Read the size; there is no default."""
    settings = dict(cache.settings)
    text = settings.pop("size", "")
    if not text:
        raise InvalidArg(
            "Failed to initialize LocalCache: config didn't contain a valid 'size' field. Expected "
            "--cache-config local,size=<bytes>"
        )
    if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) == 0:
        raise InvalidArg(f"Failed to initialize LocalCache: 'size' is '{text}', expected a number of bytes")
    if settings:
        raise InvalidArg(
            f"Failed to initialize LocalCache: unknown settings {', '.join(sorted(settings))}; it has 'size'"
        )
    cache.state = LocalCache(int(text))


@hookimpl
def cache_lookup(cache: Cache, key: str) -> bytes | None:
    """Give the entry of a key, if there is one."""
    local: LocalCache = cache.state
    return local.get(key)


@hookimpl
def cache_insert(cache: Cache, key: str, entry: bytes) -> None:
    """Keep an entry."""
    cache.state.add(key, entry)


@hookimpl
def cache_usage(cache: Cache) -> CacheUsage:
    """Count entries and evictions for the metrics."""
    local: LocalCache = cache.state
    return CacheUsage(len(local), local.eviction_count, local.used / local.byte_size)
