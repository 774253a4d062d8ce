"""The response cache `redis`: servers share what they have answered, and keep it over restarts."""

from __future__ import annotations

import os

from tritonpy.plugin import Cache, hookimpl

from tritonpy_cache_redis.settings import read_settings


@hookimpl
async def cache_initialize(cache: Cache) -> None:
    """Read the settings and see whether Redis answers."""
    from tritonpy_cache_redis.store import RedisStore  # the client takes its time to import

    settings = read_settings(cache.settings, os.environ)
    cache.is_shared = True
    cache.state = RedisStore(settings)
    await cache.state.connect()


@hookimpl
async def cache_finalize(cache: Cache) -> None:
    """Close the connections."""
    await cache.state.close()


@hookimpl
async def cache_lookup(cache: Cache, key: str) -> bytes | None:
    """One GET."""
    entry: bytes | None = await cache.state.get(key)
    return entry


@hookimpl
async def cache_insert(cache: Cache, key: str, entry: bytes) -> None:
    """One SET."""
    await cache.state.set(key, entry)
