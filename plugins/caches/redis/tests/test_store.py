"""The store against a server that does what a test wants."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tritonpy.plugin import Unavailable
from tritonpy_cache_redis.settings import read_settings
from tritonpy_cache_redis.store import RedisStore

from .resp_server import RespServer


@pytest.fixture
def server() -> Iterator[RespServer]:
    server = RespServer()
    yield server
    server.stop()


@pytest.fixture
async def store_of() -> AsyncIterator[Callable[..., RedisStore]]:
    made: list[RedisStore] = []

    def make(port: int, **settings: str) -> RedisStore:
        made.append(RedisStore(read_settings({"host": "127.0.0.1", "port": str(port), **settings}, {})))
        return made[-1]

    yield make
    for store in made:
        await store.close()


async def test_entries_come_back_under_their_prefix(server: RespServer, store_of: Any) -> None:
    store = store_of(server.port, key_prefix="mine:")
    entry = bytes(range(256)) + b"\r\n$-1\r\n"

    await store.set("k", entry)

    assert server.entries == {b"mine:k": entry}
    assert await store.get("k") == entry
    assert await store.get("other") is None


async def test_an_entry_may_have_an_end(server: RespServer, store_of: Any) -> None:
    await store_of(server.port, ttl="60").set("k", b"e")
    await store_of(server.port).set("k", b"e")

    assert server.arguments == [[b"tritonpy:k", b"e", b"PX", b"60000"], [b"tritonpy:k", b"e"]]


async def test_a_cancelled_lookup_never_answers_another_one(server: RespServer, store_of: Any) -> None:
    store = store_of(server.port, pool_size="1")
    server.entries |= {b"tritonpy:a": b"for a", b"tritonpy:b": b"for b"}
    await store.connect()
    server.gate.clear()
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await store.get("a")
    server.gate.set()

    assert [await store.get("b") for _ in range(5)] == [b"for b"] * 5


async def test_more_lookups_than_connections_wait_for_each_other(server: RespServer, store_of: Any) -> None:
    store = store_of(server.port, pool_size="2")
    server.entries |= {f"tritonpy:{number}".encode(): str(number).encode() for number in range(50)}

    found = await asyncio.gather(*(store.get(str(number)) for number in range(50)))

    assert found == [str(number).encode() for number in range(50)]


async def test_connections_that_were_closed_meanwhile_are_no_miss(server: RespServer, store_of: Any) -> None:
    store = store_of(server.port)
    await store.set("k", b"e")
    server.hang_up()

    assert await store.get("k") == b"e"


async def test_what_redis_refuses_is_no_failure_of_redis(server: RespServer, store_of: Any) -> None:
    store = store_of(server.port)
    server.refusal = "OOM command not allowed when used memory > 'maxmemory'."

    with pytest.raises(Unavailable, match=r"Redis refuses it: .*used memory"):
        await store.set("k", b"e")


async def test_a_required_redis_that_is_not_there_is_told_of(server: RespServer, store_of: Any) -> None:
    server.die()

    with pytest.raises(Unavailable, match=rf"cannot reach Redis at 127.0.0.1:{server.port}: ConnectionError"):
        await store_of(server.port).connect()


async def test_one_that_is_not_required_is_only_logged(
    server: RespServer, store_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server.die()

    await store_of(server.port, required="false").connect()

    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_a_wrong_password_is_told_of_and_not_shown(server: RespServer, store_of: Any) -> None:
    server.password = "right"

    with pytest.raises(Unavailable) as error:
        await store_of(server.port, password="wrong-secret").connect()

    assert "wrong-secret" not in error.value.message
    await store_of(server.port, user="me", password="right").connect()
