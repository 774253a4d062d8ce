from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.errors import InvalidArg
from tritonpy.plugin import Cache, hookimpl
from tritonpy_sdk.testing import open_cache


class Waiting:
    """A cache that is asynchronous from begin to end."""

    def __init__(self) -> None:
        self.life: list[str] = []
        self.together = 0

    @hookimpl
    async def cache_initialize(self, cache: Cache) -> None:
        await asyncio.sleep(0)
        cache.state = {}
        self.life.append(f"begin {cache.settings['a']}")

    @hookimpl
    async def cache_finalize(self, cache: Cache) -> None:
        await asyncio.sleep(0)
        self.life.append("end")

    @hookimpl
    async def cache_lookup(self, cache: Cache, key: str) -> Any:
        self.together += 1
        await asyncio.sleep(0)
        waiting, self.together = self.together, 0
        self.life += [f"{waiting} together"] * (waiting > 1)
        return cache.state.get(key)

    @hookimpl
    async def cache_insert(self, cache: Cache, key: str, entry: bytes) -> None:
        await asyncio.sleep(0)
        cache.state[key] = entry


def test_a_cache_lives_from_its_settings_to_its_end() -> None:
    plugin = Waiting()
    with open_cache(plugin, {"a": "1"}) as cache:
        cache.insert("k", b"entry")

        assert cache.lookup("k") == b"entry"
        assert cache.lookup("other") is None
        assert cache.usage is None

    assert plugin.life == ["begin 1", "end"]


def test_many_are_asked_for_at_the_same_time() -> None:
    plugin = Waiting()
    with open_cache(plugin, {"a": "1"}) as cache:
        cache.insert("k", b"entry")

        assert cache.lookup_all(["k", "x", "k"]) == [b"entry", None, b"entry"]
    assert "3 together" in plugin.life


def test_an_installed_cache_is_opened_by_its_name() -> None:
    with open_cache("local", {"size": "65536"}) as cache:
        cache.insert("k", b"entry")

        assert cache.lookup("k") == b"entry"
        assert cache.usage is not None
        assert cache.usage.entry_count == 1


def test_what_a_server_would_refuse_is_raised() -> None:
    with pytest.raises(InvalidArg, match="'size' is 'x'"), open_cache("local", {"size": "x"}):
        pass
    with pytest.raises(InvalidArg, match="unable to find"), open_cache("nope"):
        pass
    with (
        open_cache(SimpleNamespace()) as empty,
        pytest.raises(InvalidArg, match="not implement cache_lookup"),
    ):
        empty.lookup("k")
