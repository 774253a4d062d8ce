"""The cache around a plugin that answers, waits, fails, lies or hangs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tritonpy.cache import response_cache
from tritonpy.cache.key import CacheKey
from tritonpy.cache.response_cache import WAITING, CacheHealth, ResponseCache
from tritonpy.errors import AlreadyExists, Internal, InvalidArg, Unsupported
from tritonpy.handles import CacheUsage
from tritonpy.plugin import Cache, hookimpl
from tritonpy.plugin_manager import bind_object
from tritonpy.response import InferResponse

Open = Callable[..., Any]

SLOW_S = 30.0
"""Longer than any timeout of these tests."""


def key(number: int = 1, model: str = "m:1") -> CacheKey:
    digest = number.to_bytes(16, "big")
    return CacheKey(f"{model}:{digest.hex()}", digest, model)


def response(number: int = 1) -> InferResponse:
    return InferResponse(parameters={"number": number}).add("O", np.full(3, number, np.int32))


class Plugin:
    """Keeps entries in a dict; `trouble`, when it is set, is called in their place."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self.calls: list[str] = []
        self.trouble: Callable[[], None] | None = None

    def _do(self, what: str) -> None:
        self.calls.append(what)
        if self.trouble is not None:
            self.trouble()

    @hookimpl
    def cache_lookup(self, key: str) -> Any:
        self._do("lookup")
        return self.entries.get(key)

    @hookimpl
    def cache_insert(self, key: str, entry: bytes) -> Any:
        self._do("insert")
        self.entries.setdefault(key, entry)


class AsyncPlugin(Plugin):
    """The same, but has to be waited for; `hangs` makes it wait for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs = False
        self.cancelled = 0

    async def _wait(self) -> None:
        try:
            await asyncio.sleep(SLOW_S if self.hangs else 0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    @hookimpl
    async def cache_lookup(self, key: str) -> Any:
        self._do("lookup")
        await self._wait()
        return self.entries.get(key)

    @hookimpl
    async def cache_insert(self, key: str, entry: bytes) -> None:
        self._do("insert")
        await self._wait()
        self.entries.setdefault(key, entry)


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Opens caches around plugins; they are closed when the test is over."""
    caches: list[ResponseCache] = []

    async def open(plugin: object, *, timeout_s: float = 20) -> ResponseCache:
        cache = ResponseCache("it", {}, lambda name: bind_object("caches", plugin, name), timeout_s)
        await cache.open()
        caches.append(cache)
        return cache

    yield open
    for cache in caches:
        await cache.close()


def insert(cache: ResponseCache, number: int = 1) -> None:
    cache.insert(key(number), response(number).outputs, response(number).parameters)


async def look_up(cache: ResponseCache, number: int = 1) -> InferResponse | None:
    answer: asyncio.Future[InferResponse | None] = asyncio.get_running_loop().create_future()
    found = cache.look_up(key(number), answer.set_result)
    return await answer if found is WAITING else found


async def settled(cache: ResponseCache) -> None:
    while cache._tasks:
        await asyncio.wait(cache._tasks)


@pytest.mark.parametrize("kind", [Plugin, AsyncPlugin])
async def test_what_was_inserted_is_found_under_its_key_only(opened: Open, kind: type[Plugin]) -> None:
    cache = await opened(kind())
    insert(cache, 1)
    await settled(cache)

    found = await look_up(cache, 1)

    assert found is not None
    assert found.parameters == {"number": 1}
    assert found.outputs[0].numpy().tolist() == [1, 1, 1]
    assert await look_up(cache, 2) is None
    figures = cache.figures
    assert (figures.lookup_count, figures.hit_count, figures.miss_count) == (2, 1, 1)
    assert figures.lookup_ns > 0
    assert figures.insertion_ns > 0
    assert not figures.errors


async def test_only_a_cache_that_waits_makes_others_wait(opened: Open) -> None:
    plain, waiting = await opened(Plugin()), await opened(AsyncPlugin())

    assert plain.look_up(key(), lambda found: None) is None
    assert waiting.look_up(key(), lambda found: None) is WAITING


@pytest.mark.parametrize("kind", [Plugin, AsyncPlugin])
@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3), asyncio.CancelledError(), KeyError("x")])
async def test_a_lookup_that_raises_is_a_miss(
    opened: Open, kind: type[Plugin], error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = kind()
    cache = await opened(plugin)
    insert(cache)
    await settled(cache)

    def trouble() -> None:
        raise error

    plugin.trouble = trouble

    assert await look_up(cache) is None
    assert cache.figures.errors == {("lookup", "failure"): 1}
    assert f"Failed to look up key [{key().text}] in response cache: {type(error).__name__}" in caplog.text


@pytest.mark.parametrize("kind", [Plugin, AsyncPlugin])
async def test_an_insertion_that_raises_is_logged_and_counted(
    opened: Open, kind: type[Plugin], caplog: pytest.LogCaptureFixture
) -> None:
    plugin = kind()
    cache = await opened(plugin)

    def trouble() -> None:
        raise OSError("disk full")

    plugin.trouble = trouble
    insert(cache)
    await settled(cache)

    assert cache.figures.errors == {("insert", "failure"): 1}
    assert f"Failed to insert key [{key().text}] into response cache: OSError: disk full" in caplog.text


async def test_a_lookup_that_takes_too_long_is_cancelled_and_a_miss(opened: Open) -> None:
    plugin = AsyncPlugin()
    cache = await opened(plugin, timeout_s=0.05)
    plugin.hangs = True

    assert await look_up(cache) is None
    assert plugin.cancelled == 1
    assert cache.figures.errors == {("lookup", "timeout"): 1}


@pytest.mark.parametrize("entry", [b"", b"no entry", "text", 5, memoryview(b"x" * 90)])
async def test_what_is_no_entry_is_a_miss(
    opened: Open, entry: object, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = Plugin()
    cache = await opened(plugin)
    plugin.entries[key().text] = entry

    assert await look_up(cache) is None
    assert cache.figures.errors == {("lookup", "corrupt"): 1}
    assert "Response cache 'it' has no entry at key" in caplog.text


async def test_an_entry_of_another_key_is_a_miss(opened: Open) -> None:
    plugin = Plugin()
    cache = await opened(plugin)
    insert(cache, 1)
    plugin.entries[key(2).text] = plugin.entries[key(1).text]

    assert await look_up(cache, 2) is None
    assert cache.figures.errors == {("lookup", "corrupt"): 1}


async def test_a_refused_entry_is_an_error_once_for_each_model(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tritonpy.cache")
    plugin = Plugin()
    cache = await opened(plugin)

    def trouble() -> None:
        raise InvalidArg("Requested byte_size: 9 is greater than total cache size: 8")

    plugin.trouble = trouble
    for number, model in enumerate(("m:1", "m:1", "n:1", "m:1")):
        cache.insert(key(number, model), [], {})

    lines = [record for record in caplog.records if "Failed to insert key" in record.message]
    assert [record.levelname for record in lines] == ["ERROR", "DEBUG", "ERROR", "DEBUG"]
    assert lines[0].message.endswith(
        "into response cache: Requested byte_size: 9 is greater than total cache size: 8"
    )
    assert cache.figures.errors == {("insert", "refused"): 4}
    plugin.trouble = None
    assert await look_up(cache) is None  # it is asked: a refusal is no failure
    assert plugin.calls[-1] == "lookup"


async def test_a_key_that_exists_is_no_error(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    plugin = Plugin()
    cache = await opened(plugin)

    def trouble() -> None:
        raise AlreadyExists("there it is")

    plugin.trouble = trouble
    insert(cache)

    assert not cache.figures.errors
    assert not caplog.records


async def test_a_cache_that_hangs_is_left_alone_and_named_once(
    opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = AsyncPlugin()
    cache = await opened(plugin, timeout_s=0.01)
    now = 5
    cache._health = CacheHealth("it", lambda: now)
    plugin.hangs = True
    for _ in range(10):
        await look_up(cache)
        insert(cache)
    await settled(cache)

    asked = len(plugin.calls)
    assert asked < 8  # insertions were on their way when the third failure came
    assert cache.figures.errors["lookup", "skipped"] > 5
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == [
        "response cache 'it' has failed 3 times in a row, the last time with \"no answer in 10 ms "
        '(--cache-timeout-ms)"; requests go on without it, and it is asked once a second until it answers'
    ]

    now += 1_000_000_000
    plugin.hangs = False
    caplog.set_level(logging.INFO, "tritonpy.cache")
    assert [await look_up(cache) for _ in range(3)] == [None] * 3
    assert len(plugin.calls) == asked + 3
    assert "response cache 'it' answers again" in caplog.text


def test_while_a_cache_fails_one_caller_a_second_may_ask() -> None:
    now = 0
    health = CacheHealth("it", lambda: now)
    for _ in range(3):
        assert health.may_ask()
        health.failed("why")

    asked = []
    for now in range(0, 3_000_000_000, 250_000_000):  # noqa: B007
        asked.append(health.may_ask())
    assert [index for index, may in enumerate(asked) if may] == [4, 8]
    health.succeeded()
    assert health.may_ask()


async def test_insertions_into_a_slow_cache_hold_bounded_memory(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_cache, "MOST_WAITING_BYTES", 10_000)
    plugin = AsyncPlugin()
    cache = await opened(plugin)
    outputs = InferResponse().add("O", np.zeros(4000, np.int8)).outputs
    for number in range(5):
        cache.insert(key(number), outputs, {})
    assert cache.figures.errors == {("insert", "overload"): 3}

    await settled(cache)
    cache.insert(key(9), outputs, {})
    await settled(cache)

    assert len(plugin.entries) == 3


async def test_the_end_waits_for_insertions(opened: Open) -> None:
    plugin = AsyncPlugin()
    finalized: list[int] = []
    plugin.cache_finalize = hookimpl(lambda: finalized.append(len(plugin.entries)))  # type: ignore[attr-defined]
    cache = await opened(plugin)
    insert(cache)

    await cache.close()
    await cache.close()

    assert finalized == [1]


def failing(error: Exception) -> Callable[[], None]:
    def initialize() -> None:
        raise error

    return initialize


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (InvalidArg("no host"), InvalidArg, "no host"),
        (ValueError("odd"), Internal, "cache 'it' failed to initialize: ValueError: odd"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_cache_that_does_not_want_to_begin_says_why(
    opened: Open, error: Exception, kind: type[Exception], text: str, is_async: bool
) -> None:
    async def initialize() -> None:
        raise error

    plugin = Plugin()
    begin = initialize if is_async else failing(error)
    plugin.cache_initialize = hookimpl(begin)  # type: ignore[attr-defined]

    with pytest.raises(kind, match=text):
        await opened(plugin)


async def test_a_cache_that_never_begins_is_given_up(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_cache, "_INITIALIZE_S", 0.01)

    async def initialize() -> None:
        await asyncio.sleep(SLOW_S)

    plugin = Plugin()
    plugin.cache_initialize = hookimpl(initialize)  # type: ignore[attr-defined]

    with pytest.raises(Internal, match=r"no end after 0.01 seconds"):
        await opened(plugin)


async def test_a_cache_without_the_two_hooks_is_refused(opened: Open) -> None:
    plugin = SimpleNamespace(cache_lookup=hookimpl(lambda: None))

    with pytest.raises(InvalidArg, match="cache 'it' does not implement cache_insert"):
        await opened(plugin)


async def test_a_finder_that_fails_fails_the_start() -> None:
    def find(name: str) -> Any:
        raise Unsupported(f"no {name}")

    with pytest.raises(Unsupported, match="no it"):
        await ResponseCache("it", {}, find, 1).open()


async def test_usage_is_what_the_plugin_tells(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    plugin = Plugin()
    plugin.cache_usage = hookimpl(lambda: CacheUsage(1, 2, 0.5))  # type: ignore[attr-defined]
    told = await opened(plugin)
    assert told.usage() == CacheUsage(1, 2, 0.5)
    assert (await opened(Plugin())).usage() is None

    plugin.cache_usage = hookimpl(failing(ValueError("odd")))  # type: ignore[attr-defined]
    broken = await opened(plugin)
    assert [broken.usage(), broken.usage()] == [None, None]
    assert caplog.text.count("cache_usage failed") == 1


async def test_a_plugin_gets_its_settings_and_name(opened: Open) -> None:
    seen: list[Cache] = []

    def initialize(cache: Cache) -> None:
        seen.append(cache)

    plugin = Plugin()
    plugin.cache_initialize = hookimpl(initialize)  # type: ignore[attr-defined]
    cache = await opened(plugin)

    assert seen == [cache.handle]
    assert cache.handle.name == "it"
