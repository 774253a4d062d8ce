"""The tests that every response cache has to pass."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, ClassVar

import numpy as np
import pytest
from tritonpy.cache.entry import BadEntry, decode_entry, encode_entry
from tritonpy.datatypes import DATATYPES
from tritonpy.errors import AlreadyExists, ErrorCode, TritonError
from tritonpy.handles import CacheUsage
from tritonpy.tensor import Tensor

from tritonpy_sdk.testing.cache import OpenCache, open_cache
from tritonpy_sdk.testing.patience import DEADLINE_S
from tritonpy_sdk.testing.refusals import check_refusals
from tritonpy_sdk.testing.rules import rule
from tritonpy_sdk.testing.samples import sample_array
from tritonpy_sdk.testing.traces import check_no_growth, nothing_printed, process_as_it_was

_PAGE = "how-to/write-a-cache.md"
_HOOKS = "reference/hooks.md"
_LONGEST_STEP_US = 5000.0
_TIME_LIMIT_S = 1.0
"""What `--cache-timeout-ms` might be where people wait for their cache."""
_ENDS_S = DEADLINE_S / 6
_TRIES = 20
_MANY = 64
_LARGE = 8 * 1024 * 1024


class CacheConformance:
    """Subclass this in a test module and every rule of the cache hooks is tested with your cache.

    ```python
    class TestXyz(CacheConformance, cache="xyz", settings={"size": "1048576"}, room=1048576): ...
    ```

    Class arguments:
        cache: the name of an installed one, a module or object, or the `Path` of a file: `.py`, or a shared
            object, which needs tritonpy-abi. A function that returns one will do, too.
        settings: as `--cache-config NAME,key=value` gives them.
        wrong_settings: settings that the cache has to refuse, alone.
        lost_settings: settings with which the cache begins, although what it keeps entries in cannot be
            reached, such as the port of no server.
        room: bytes that it may keep at most; None for a cache whose settings do not say.

    Settings that are known only when a test runs are set by a fixture of the class: `self.settings = …`.
    """

    cache: ClassVar[str | os.PathLike[str] | object]
    settings: Mapping[str, str]
    wrong_settings: Sequence[Mapping[str, str]]
    lost_settings: Mapping[str, str] | None
    room: int | None

    def __init_subclass__(
        cls,
        *,
        cache: str | os.PathLike[str] | object = "",
        settings: Mapping[str, str] | None = None,
        wrong_settings: Sequence[Mapping[str, str]] = (),
        lost_settings: Mapping[str, str] | None = None,
        room: int | None = None,
        **rest: object,
    ) -> None:
        super().__init_subclass__(**rest)
        if cache:
            cls.cache = staticmethod(cache) if inspect.isfunction(cache) else cache
            cls.settings = dict(settings or {})
            cls.wrong_settings = wrong_settings
            cls.lost_settings = lost_settings
            cls.room = room

    # Beginning and end.

    @rule(
        "cache_initialize and cache_finalize frame the life of a server, and another one may follow",
        "set cache.state anew in cache_initialize, keep no globals, and let cache_finalize raise nothing",
        _HOOKS,
    )
    def test_it_begins_and_ends_with_its_server(self) -> None:
        for _ in range(2):
            with self._open() as cache:
                cache.lookup(_key(0))
                cache.insert(_key(0), b"entry")
        with self._open():
            pass  # a server that never got a request

    @rule(
        "cache_initialize refuses settings that it does not understand by an error for the user",
        "raise InvalidArg with the setting, what came and what was expected; refuse unknown names, too",
        _PAGE,
    )
    def test_wrong_settings_are_refused_with_words(self) -> None:
        def begin(settings: Mapping[str, str]) -> None:
            with open_cache(self._new(), settings):
                pass

        check_refusals(begin, self.wrong_settings, "wrong_settings")

    @rule(
        "what a cache holds is given back in cache_finalize",
        "close connections and files and end threads there",
        _HOOKS,
    )
    def test_nothing_is_left_when_the_server_has_stopped(self) -> None:
        plugin = self._new()

        def live() -> None:
            with open_cache(plugin, self.settings) as cache:
                cache.insert(_key(0), b"entry")
                cache.lookup(_key(0))

        check_no_growth(live, "each life of a server")

    @rule(
        "servers of one process have caches of their own, unless cache.is_shared is set",
        "keep entries in cache.state; set cache.is_shared in cache_initialize if others see them",
        _HOOKS,
    )
    def test_servers_see_each_others_entries_only_if_it_says_so(self) -> None:
        plugin = self._new()
        with open_cache(plugin, self.settings) as one, open_cache(plugin, self.settings) as other:
            one.insert(_key(0), b"entry of one server")
            if one.handle.is_shared:
                pytest.skip("the cache says that others may see its entries")
            assert other.lookup(_key(0)) is None, "gave one server the entry of another"

    # Entries.

    @rule(
        "a hit is what was inserted, byte for byte, whatever its tensors are",
        "keep the bytes as they are: do not decode, strip or cut them, and let the empty ones be entries",
        _HOOKS,
    )
    def test_a_hit_is_what_was_inserted(self) -> None:
        with self._open() as cache:
            for number, (what, tensors, parameters) in enumerate(_responses()):
                digest = number.to_bytes(16)
                entry = encode_entry(digest, tensors, parameters)
                assert entry is not None  # no tensor lies on a device
                cache.insert(_key(number), entry)
                found = cache.lookup(_key(number))
                assert found is not None, f"does not have {what}, which was inserted just now"
                assert bytes(found) == entry, f"gives {what} back with other bytes"
                try:
                    read = decode_entry(digest, found)
                except BadEntry as error:
                    raise AssertionError(f"gives {what} back so that {error}") from error
                assert [bytes(tensor.wire()) for tensor in read.outputs] == [
                    bytes(tensor.wire()) for tensor in tensors
                ]

    @rule(
        "cache_lookup returns bytes or a memoryview of bytes",
        "return bytes(entry), or memoryview(entry).cast('B') of memory that does not change",
        _HOOKS,
    )
    def test_an_entry_is_bytes(self) -> None:
        with self._open() as cache:
            cache.insert(_key(0), b"entry")
            found: object = cache.lookup(_key(0))
            assert isinstance(found, bytes | memoryview), f"returned {type(found).__name__} for an entry"
            view = memoryview(found)
            assert view.c_contiguous, "returned a view whose bytes do not lie one after the other"
            assert view.format == "B", f"returned a view of elements of the format '{view.format}'"

    @rule(
        "a key that nothing was inserted under is answered by None",
        "return None; neither raise nor return b''",
        _HOOKS,
    )
    def test_an_unknown_key_is_a_miss(self) -> None:
        with self._open() as cache:
            for inserted in (False, True):
                found: object = cache.lookup(_key(1))
                assert found is None, f"returned {found!r} for a key that is not there"
                if not inserted:
                    cache.insert(_key(0), b"entry")

    @rule(
        "keys that differ anywhere are different keys",
        "use the whole key; where it is hashed or cut, keep it beside the entry and compare it",
        _PAGE,
    )
    def test_an_entry_is_found_under_its_own_key_only(self) -> None:
        hexadecimal = "0123456789abcdef" * 2
        keys = [_key(number) for number in range(_MANY)]
        keys += [
            f"model:1:{hexadecimal}",
            f"Model:1:{hexadecimal}",
            f"model:11:{hexadecimal}",
            f"model:1:{hexadecimal[1:]}0",
            f"model:1:f{hexadecimal[1:]}",
            f"{'m' * 300}:1:{hexadecimal}",
            f"{'m' * 301}:1:{hexadecimal}",
            f"with/slash:1:{hexadecimal}",
            f"with.slash:1:{hexadecimal}",
            f"grün:1:{hexadecimal}",
        ]
        with self._open() as cache:
            for key in keys:
                cache.insert(key, key.encode())
            for key in keys:
                found = cache.lookup(key)
                assert found is None or bytes(found) == key.encode(), (
                    f"gave the entry of the key {bytes(found).decode(errors='replace')[:60]} for {key[:60]}"
                )

    @rule(
        "a second insertion under a key keeps the entry there, or puts the new one in its place",
        "return, replace the entry whole, or raise AlreadyExists",
        _HOOKS,
    )
    def test_an_entry_may_be_inserted_again(self) -> None:
        old, new = b"the first entry", b"second"
        with self._open() as cache:
            cache.insert(_key(0), old)
            with suppress(AlreadyExists):
                cache.insert(_key(0), new)
            found = cache.lookup(_key(0))
            assert found is None or bytes(found) in (old, new), (
                f"made {bytes(found)!r} of {old!r} and {new!r}"
            )

    @rule(
        "what a lookup has given does not change while somebody reads it",
        "return bytes, or a view of memory that is not used again while the view lives",
        _HOOKS,
    )
    def test_a_hit_stays_as_it_is_while_somebody_reads_it(self) -> None:
        size = min((self.room or 64 * 1024) // 8, 4096)
        with self._open() as cache:
            cache.insert(_key(0), b"a" * size)
            found = cache.lookup(_key(0))
            with suppress(TritonError):
                cache.insert(_key(0), b"b" * size)
            for number in range(1, 20):
                with suppress(TritonError):
                    cache.insert(_key(number), b"c" * size)
                cache.lookup(_key(number))
            assert found is None or bytes(found) == b"a" * size, "changed bytes that it had given before"
        assert found is None or bytes(found) == b"a" * size, "changed bytes that it had given, when it ended"

    # Room.

    @rule(
        "an entry that is too large is refused by a TritonError, and the cache goes on",
        "raise InvalidArg with the entry's size and yours before anything is evicted for it",
        _PAGE,
    )
    def test_a_large_entry_is_kept_or_refused(self) -> None:
        large = bytes(_LARGE if self.room is None else self.room + 1)
        with self._open() as cache:
            cache.insert(_key(0), b"small")
            try:
                cache.insert(_key(1), large)
            except TritonError as error:
                if error.code is ErrorCode.INTERNAL:
                    raise AssertionError(f"refused {len(large)} bytes by {error}") from error
            found = cache.lookup(_key(1))
            assert found is None or bytes(found) == large, (
                f"gave {len(found)} bytes for an entry of {len(large)}"
            )
            if self.room is not None:
                assert found is None, f"keeps {len(large)} bytes, and has room for {self.room}"
            cache.insert(_key(2), b"small, too")
            assert _bytes(cache.lookup(_key(2))) == b"small, too", "takes nothing after a large entry"

    @rule(
        "a cache keeps to the room that its settings give it, and makes room for new entries",
        "count the bytes of what is kept, and let go of entries before the new one would go beyond",
        _PAGE,
    )
    def test_it_keeps_to_its_room(self) -> None:
        if self.room is None:
            pytest.skip("the suite names no room")
        size = self.room // 16
        with self._open() as cache:
            for number in range(64):
                cache.insert(_key(number), bytes([number]) * size)
            found = {number: cache.lookup(_key(number)) for number in range(64)}
            kept = [number for number, entry in found.items() if entry is not None]
            assert len(kept) * size <= self.room, (
                f"keeps {len(kept)} entries of {size} bytes, and has room for {self.room}"
            )
            assert kept, f"keeps none of the entries of {size} bytes, and has room for {self.room}"
            assert 63 in kept, "does not keep the newest entry"
            for number in kept:
                assert _bytes(found[number]) == bytes([number]) * size, "mixes entries up when it makes room"

    @rule(
        "cache_usage returns a CacheUsage with counts, and a fraction from 0 to 1",
        "return CacheUsage(entry_count, eviction_count, used / size), or leave the hook out",
        _HOOKS,
    )
    def test_its_usage_is_told_in_numbers(self) -> None:
        with self._open() as cache:
            if cache.usage is None:
                pytest.skip("the cache does not tell")
            for number in range(32):
                with suppress(TritonError):
                    cache.insert(_key(number), bytes((self.room or 65536) // 16))
                usage: object = cache.usage
                assert isinstance(usage, CacheUsage), f"returned {usage!r}"
                assert 0 <= usage.fraction <= 1, f"told a fraction of {usage.fraction}"
                assert usage.entry_count + usage.eviction_count == number + 1, (
                    f"told {usage.entry_count} entries and {usage.eviction_count} evictions after "
                    f"{number + 1} insertions"
                )

    # The loop.

    @rule(
        "hooks are called on the server's loop, and nothing but memory is waited for without an await",
        "make the hook `async def`, and wait by await: asyncio.to_thread for what blocks",
        _PAGE,
    )
    def test_the_loop_goes_on(self) -> None:
        with self._open() as cache:
            for hook, *arguments in (("cache_lookup", _key(0)), ("cache_insert", _key(1), b"entry")):
                longest = min(cache.run(_longest_step_us(cache, hook, *arguments)) for _ in range(_TRIES))
                assert longest < _LONGEST_STEP_US, (
                    f"kept the loop for {longest / 1000:.0f} ms in {hook}, at best"
                )

    @rule(
        "lookups and insertions of many requests are under way at the same time",
        "keep what belongs to one call in its own variables, and give each call a connection of its own",
        _PAGE,
    )
    def test_many_calls_at_the_same_time_get_their_own_entries(self) -> None:
        async def use(cache: OpenCache, number: int) -> tuple[bytes, bytes | None]:
            entry = f"entry {number}".encode()
            with suppress(TritonError):
                await cache.outcome("cache_insert", _key(number), entry)
            return entry, _bytes(await cache.outcome("cache_lookup", _key(number)))

        async def use_all(cache: OpenCache) -> list[tuple[bytes, bytes | None]]:
            return await asyncio.gather(*(use(cache, number) for number in range(_MANY)))

        with self._open() as cache:
            outcomes = cache.run(use_all(cache))
        for entry, found in outcomes:
            assert found in (None, entry), f"gave {found!r} where {entry!r} was asked for at the same time"
        assert any(found for _, found in outcomes), "finds nothing of what many inserted at the same time"

    @rule(
        "a call that takes too long is cancelled, ends then, and leaves the cache as it was",
        "let CancelledError through, and drop the connection whose answer is still to come",
        _HOOKS,
    )
    def test_a_cancelled_call_ends_and_spoils_nothing(self) -> None:
        async def cancel(cache: OpenCache, steps: int) -> None:
            for hook, *arguments in (("cache_lookup", _key(0)), ("cache_insert", _key(2), b"third")):
                call = asyncio.ensure_future(cache.outcome(hook, *arguments))
                for _ in range(steps):
                    await asyncio.sleep(0)
                call.cancel()
                await _ended(call, f"{hook} went on")

        with self._open() as cache:
            cache.insert(_key(0), b"first")
            cache.insert(_key(1), b"second")
            for steps in (1, 2, 3, 5):
                cache.run(cancel(cache, steps))
                for number, entry in enumerate((b"first", b"second")):
                    found = _bytes(cache.lookup(_key(number)))
                    assert found in (None, entry), f"gave {found!r} for {entry!r} after a cancelled call"
            cache.insert(_key(3), b"fourth")
            assert _bytes(cache.lookup(_key(3))) == b"fourth", "keeps nothing after a cancelled call"

    @rule(
        "a cache that cannot reach its entries raises or misses, within the time that it is given",
        "let the exception of the client through, give it a timeout, and retry nothing without an end",
        _PAGE,
    )
    def test_a_lost_place_is_a_miss(self) -> None:
        if self.lost_settings is None:
            pytest.skip("the suite names no lost_settings")

        async def ask(cache: OpenCache, hook: str, *arguments: object) -> object:
            call = asyncio.ensure_future(cache.outcome(hook, *arguments))
            await asyncio.wait((call,), timeout=_TIME_LIMIT_S)
            call.cancel()
            await _ended(call, f"{hook} went on")
            if call.cancelled() or call.exception() is not None:
                return None
            return call.result()

        with open_cache(self._new(), self.lost_settings) as cache:
            for _ in range(2):
                cache.run(ask(cache, "cache_insert", _key(0), b"entry"))
                found = cache.run(ask(cache, "cache_lookup", _key(0)))
                assert found is None, f"returned {found!r} although nothing can be reached"

    # What it must not do.

    @rule(
        "standard output belongs to the server",
        "use logging.getLogger(__name__), which the server's log takes",
        _PAGE,
    )
    def test_nothing_is_printed(self) -> None:
        with nothing_printed(), self._open() as cache:
            cache.insert(_key(0), b"entry")
            cache.lookup(_key(0))
            cache.lookup(_key(1))

    @rule(
        "what all of a process share belongs to the server",
        "give the client its own settings instead of those of the process",
        _HOOKS,
    )
    def test_the_process_stays_as_it_was(self) -> None:
        with process_as_it_was(), self._open() as cache:
            cache.insert(_key(0), b"entry")
            cache.lookup(_key(0))

    # How.

    def _new(self) -> str | os.PathLike[str] | object:
        cache = type(self).cache
        return cache() if inspect.isfunction(cache) else cache

    def _open(self) -> AbstractContextManager[OpenCache]:
        return open_cache(self._new(), self.settings)


def _key(number: int) -> str:
    """A key as a server makes them."""
    return f"model:1:{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"


def _bytes(entry: bytes | memoryview | None) -> bytes | None:
    return None if entry is None else bytes(entry)


def _responses() -> list[tuple[str, list[Tensor], dict[str, str | int | bool | float]]]:
    """Responses of all datatypes, with their descriptions."""
    random = np.random.default_rng(0)
    made: list[tuple[str, list[Tensor], dict[str, str | int | bool | float]]] = []
    for datatype in DATATYPES:
        for shape in ((2, 3), (0,), ()):
            array = sample_array(datatype, shape, random)
            tensor = Tensor.from_numpy("OUTPUT0", np.asarray(array), datatype)
            made.append((f"an output {datatype}{list(shape)}", [tensor], {}))
    texts = Tensor.from_numpy("TEXTS", np.array([b"", b"\0\r\n$-1\r\n", bytes(range(256))], object), "BYTES")
    numbers = Tensor.from_numpy("NUMBERS", np.arange(1000, dtype="<f4"))
    parameters: dict[str, str | int | bool | float] = {"count": 3, "why": "grün", "is": True, "part": 0.5}
    return [
        *made,
        ("two outputs and parameters", [texts, numbers], parameters),
        ("a response without outputs", [], {}),
    ]


class _Steps:
    """An awaitable whose steps are timed; keeps how long the longest one kept the loop."""

    def __init__(self, awaitable: Awaitable[object]) -> None:
        self.longest_us = 0.0
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, None]:  # Any: what asyncio passes to and fro
        steps = self._awaitable.__await__()
        while True:
            start = time.perf_counter_ns()
            try:
                waits_for = next(steps)
            except StopIteration:
                return
            finally:
                self.longest_us = max(self.longest_us, (time.perf_counter_ns() - start) / 1000)
            yield waits_for


async def _longest_step_us(cache: OpenCache, hook: str, *arguments: object) -> float:
    steps = _Steps(cache.outcome(hook, *arguments))
    with suppress(TritonError):
        await steps
    return steps.longest_us


async def _ended(call: asyncio.Future[Any], what: str) -> None:  # Any: of each hook
    """Wait for a cancelled call to end.

    Raises:
        AssertionError: it does not.
    """
    await asyncio.wait((call,), timeout=_ENDS_S)
    assert call.done(), f"{what} for {_ENDS_S:g} seconds after it was cancelled"
