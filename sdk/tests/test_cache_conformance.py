"""A right cache passes every check of the kit; each wrong one is named with what to do about it."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time

import pytest
from tritonpy.plugin import AlreadyExists, CacheUsage, Internal, InvalidArg, hookimpl
from tritonpy_sdk.testing import CacheConformance, PluginFault
from tritonpy_sdk.testing.rules import rules_of

ROOM = 65536


class Entries(dict):
    """The newest entries, up to a number of bytes."""

    room = ROOM
    evictions = 0

    def add(self, key, entry):
        if len(entry) > self.room:
            raise InvalidArg(f"entry of {len(entry)} bytes; expected at most {self.room}")
        self.pop(key, None)
        while sum(map(len, self.values())) + len(entry) > self.room:
            del self[next(iter(self))]
            self.evictions += 1
        self[key] = entry


class Newest:
    @hookimpl
    def cache_initialize(self, cache):
        size = cache.settings.get("size", str(ROOM))
        if not size.isdigit():
            raise InvalidArg(f"'size' is '{size}', expected a number of bytes")
        cache.state = Entries()

    @hookimpl
    def cache_finalize(self, cache):
        pass

    @hookimpl
    def cache_lookup(self, cache, key):
        return cache.state.get(key)

    @hookimpl
    def cache_insert(self, cache, key, entry):
        cache.state.add(key, entry)

    @hookimpl
    def cache_usage(self, cache):
        used = sum(map(len, cache.state.values()))
        return CacheUsage(len(cache.state), cache.state.evictions, used / ROOM)


class Refuses(Newest):
    """Keeps what is there, and gives views."""

    @hookimpl
    def cache_lookup(self, cache, key):
        entry = cache.state.get(key)
        return None if entry is None else memoryview(entry)

    @hookimpl
    def cache_insert(self, cache, key, entry):
        if key in cache.state:
            raise AlreadyExists(key)
        cache.state.add(key, entry)


class Waits(Newest):
    """Is asynchronous, and its entries are seen by all."""

    def __init__(self):
        self.entries = Entries()

    @hookimpl
    async def cache_initialize(self, cache):
        await asyncio.sleep(0)
        cache.is_shared = True
        Newest.cache_initialize(self, cache)
        cache.state = self.entries
        self.is_lost = "lost" in cache.settings

    @hookimpl
    async def cache_lookup(self, cache, key):
        await asyncio.sleep(0)
        if self.is_lost:
            await asyncio.sleep(3600)
        return cache.state.get(key)

    @hookimpl
    async def cache_insert(self, cache, key, entry):
        await asyncio.sleep(0)
        if self.is_lost:
            raise ConnectionError("lost")
        cache.state.add(key, entry)

    cache_usage = None


class EndsForGood(Newest):
    is_over = False

    @hookimpl
    def cache_finalize(self, cache):
        self.is_over = True

    @hookimpl
    def cache_lookup(self, cache, key):
        if self.is_over:
            raise RuntimeError("closed")
        return cache.state.get(key)


class CannotLetGo(Newest):
    @hookimpl
    def cache_finalize(self, cache):
        cache.state.close()


class TakesAnySetting(Newest):
    @hookimpl
    def cache_initialize(self, cache):
        cache.state = Entries()


class StumblesOverSettings(Newest):
    @hookimpl
    def cache_initialize(self, cache):
        cache.state = Entries()
        try:
            int(cache.settings.get("size", "1"))
        except ValueError as exc:
            raise Internal(f"ValueError: {exc}") from exc


class RefusesWithoutAName(Newest):
    @hookimpl
    def cache_initialize(self, cache):
        cache.state = Entries()
        if not cache.settings.get("size", "1").isdigit():
            raise InvalidArg("bad configuration")


class NeverStopsItsThread(Newest):
    def __init__(self):
        self.end = threading.Event()

    @hookimpl
    def cache_initialize(self, cache):
        cache.state = Entries()
        threading.Thread(target=self.end.wait, daemon=True).start()

    def __del__(self):
        self.end.set()


class OneForAllServers(Newest):
    entries = Entries()

    @hookimpl
    def cache_initialize(self, cache):
        cache.state = self.entries


class StripsEntries(Newest):
    @hookimpl
    def cache_insert(self, cache, key, entry):
        cache.state.add(key, entry.rstrip(b"\0 "))


class SkipsEmptyOnes(Newest):
    @hookimpl
    def cache_insert(self, cache, key, entry):
        if b'"OUTPUT0","BYTES",[0]' not in entry:
            cache.state.add(key, entry)


class GivesByteArrays(Newest):
    @hookimpl
    def cache_lookup(self, cache, key):
        entry = cache.state.get(key)
        return None if entry is None else bytearray(entry)


class GivesViewsOfNumbers(Newest):
    @hookimpl
    def cache_lookup(self, cache, key):
        entry = cache.state.get(key)
        return None if entry is None else memoryview(entry).cast("b")


class RaisesForAMiss(Newest):
    @hookimpl
    def cache_lookup(self, cache, key):
        return cache.state[key]


class EmptyForAMiss(Newest):
    @hookimpl
    def cache_lookup(self, cache, key):
        return cache.state.get(key, b"")


class CutsKeys(Newest):
    def cut(self, key):
        return key[:255]

    @hookimpl
    def cache_lookup(self, cache, key):
        return cache.state.get(self.cut(key))

    @hookimpl
    def cache_insert(self, cache, key, entry):
        cache.state.add(self.cut(key), entry)


class IgnoresCase(CutsKeys):
    def cut(self, key):
        return key.lower()


class FewSlots(CutsKeys):
    def cut(self, key):
        return str(sum(key.encode()) % 16)


class AppendsWhatComesAgain(Newest):
    @hookimpl
    def cache_insert(self, cache, key, entry):
        cache.state.add(key, cache.state.get(key, b"") + entry)


class UsesItsBufferAgain(Newest):
    @hookimpl
    def cache_initialize(self, cache):
        cache.state = Entries()
        self.buffer = bytearray(ROOM)

    @hookimpl
    def cache_lookup(self, cache, key):
        entry = cache.state.get(key)
        if entry is None:
            return None
        self.buffer[: len(entry)] = entry
        return memoryview(self.buffer)[: len(entry)]

    @hookimpl
    def cache_insert(self, cache, key, entry):
        if key in cache.state:
            self.buffer[: len(entry)] = entry
        cache.state.add(key, entry)


class CutsLargeEntries(Newest):
    @hookimpl
    def cache_insert(self, cache, key, entry):
        cache.state.add(key, entry[:ROOM])


class StopsAtALargeEntry(Newest):
    @hookimpl
    def cache_insert(self, cache, key, entry):
        if len(entry) > ROOM:
            cache.state.room = 0
            raise InvalidArg("too large")
        cache.state.add(key, entry)


class KeepsWhateverComes(Newest):
    @hookimpl
    def cache_insert(self, cache, key, entry):
        cache.state[key] = entry


class KeepsTheOldest(Newest):
    @hookimpl
    def cache_insert(self, cache, key, entry):
        if sum(map(len, cache.state.values())) + len(entry) <= ROOM:
            cache.state[key] = entry


class TellsPercents(Newest):
    @hookimpl
    def cache_usage(self, cache):
        return CacheUsage(len(cache.state), cache.state.evictions, 100 * len(cache.state) / ROOM + 1)


class TellsADict(Newest):
    @hookimpl
    def cache_usage(self, cache):
        return {"entry_count": len(cache.state)}


class ForgetsEvictions(Newest):
    @hookimpl
    def cache_usage(self, cache):
        return CacheUsage(len(cache.state), 0, 0.5)


class ReadsADisk(Newest):
    @hookimpl
    def cache_lookup(self, cache, key):
        time.sleep(0.006)
        return cache.state.get(key)


class BlocksInsideAsync(Newest):
    @hookimpl
    async def cache_insert(self, cache, key, entry):
        await asyncio.sleep(0)
        time.sleep(0.006)  # noqa: ASYNC251 (that is the fault)
        cache.state.add(key, entry)


class OneCallAtATime(Waits):
    @hookimpl
    async def cache_lookup(self, cache, key):
        self.key = key
        await asyncio.sleep(0)
        return cache.state.get(self.key)


class LateAnswers(Waits):
    """Takes the answer to a question that was given up for the answer to the next one."""

    @hookimpl
    async def cache_initialize(self, cache):
        cache.is_shared = True
        cache.state = self.entries
        self.asked = []
        self.is_lost = False

    @hookimpl
    async def cache_lookup(self, cache, key):
        self.asked.append(key)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return cache.state.get(self.asked.pop(0))


class CannotBeCancelled(Waits):
    @hookimpl
    async def cache_lookup(self, cache, key):
        for _ in range(2):
            try:
                await asyncio.sleep(0.8)
            except asyncio.CancelledError:
                continue
        return cache.state.get(key)


class RetriesWithoutEnd(Waits):
    @hookimpl
    async def cache_insert(self, cache, key, entry):
        end = time.monotonic() + 1.0
        while self.is_lost and time.monotonic() < end:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        await asyncio.sleep(0)
        cache.state.add(key, entry)


class MakesSomethingUp(Waits):
    @hookimpl
    async def cache_lookup(self, cache, key):
        await asyncio.sleep(0)
        return b"lost" if self.is_lost else cache.state.get(key)


class Prints(Newest):
    @hookimpl
    def cache_lookup(self, cache, key):
        print("miss")


class ChangesTheMask(Newest):
    masks = itertools.cycle([0o77, 0o27])

    @hookimpl
    def cache_insert(self, cache, key, entry):
        os.umask(next(self.masks))
        cache.state.add(key, entry)


RIGHT = (Newest, Refuses, Waits)
WRONG = [
    (EndsForGood, "it_begins_and_ends_with_its_server", "RuntimeError: closed", "set cache.state anew"),
    (CannotLetGo, "it_begins_and_ends_with_its_server", "has no attribute 'close'", "raise nothing"),
    (TakesAnySetting, "wrong_settings_are_refused_with_words", "took {'size': 'many'}", "raise InvalidArg"),
    (
        StumblesOverSettings,
        "wrong_settings_are_refused_with_words",
        "ValueError",
        "InvalidArg with the setting",
    ),
    (
        RefusesWithoutAName,
        "wrong_settings_are_refused_with_words",
        "names none of them",
        "InvalidArg with the setting",
    ),
    (NeverStopsItsThread, "nothing_is_left_when_the_server_has_stopped", "1 more threads", "end threads"),
    (
        OneForAllServers,
        "servers_see_each_others_entries_only_if_it_says_so",
        "gave one server",
        "in cache.state",
    ),
    (StripsEntries, "a_hit_is_what_was_inserted", "with other bytes", "do not decode"),
    (SkipsEmptyOnes, "a_hit_is_what_was_inserted", "does not have an output BYTES[0]", "let the empty ones"),
    (GivesByteArrays, "an_entry_is_bytes", "returned bytearray", "return bytes(entry)"),
    (GivesViewsOfNumbers, "an_entry_is_bytes", "of the format 'b'", "cast('B')"),
    (RaisesForAMiss, "an_unknown_key_is_a_miss", "KeyError", "return None"),
    (EmptyForAMiss, "an_unknown_key_is_a_miss", "returned b''", "return None"),
    (CutsKeys, "an_entry_is_found_under_its_own_key_only", "gave the entry of the key mmm", "the whole key"),
    (IgnoresCase, "an_entry_is_found_under_its_own_key_only", "for model:1:", "the whole key"),
    (FewSlots, "an_entry_is_found_under_its_own_key_only", "gave the entry of the key", "beside the entry"),
    (
        AppendsWhatComesAgain,
        "an_entry_may_be_inserted_again",
        "b'the first entrysecond'",
        "replace the entry whole",
    ),
    (
        UsesItsBufferAgain,
        "a_hit_stays_as_it_is_while_somebody_reads_it",
        "changed bytes that it had given",
        "return bytes",
    ),
    (CutsLargeEntries, "a_large_entry_is_kept_or_refused", "gave 65536 bytes for", "raise InvalidArg"),
    (StopsAtALargeEntry, "a_large_entry_is_kept_or_refused", "expected at most 0", "before anything is"),
    (KeepsWhateverComes, "it_keeps_to_its_room", "keeps 64 entries of 4096 bytes", "count the bytes"),
    (KeepsTheOldest, "it_keeps_to_its_room", "does not keep the newest", "let go of entries"),
    (TellsPercents, "its_usage_is_told_in_numbers", "told a fraction of 1.0", "used / size"),
    (TellsADict, "its_usage_is_told_in_numbers", "returned {'entry_count'", "return CacheUsage"),
    (
        ForgetsEvictions,
        "its_usage_is_told_in_numbers",
        "16 entries and 0 evictions after 17",
        "eviction_count",
    ),
    (ReadsADisk, "the_loop_goes_on", "ms in cache_lookup", "asyncio.to_thread"),
    (BlocksInsideAsync, "the_loop_goes_on", "ms in cache_insert", "asyncio.to_thread"),
    (
        OneCallAtATime,
        "many_calls_at_the_same_time_get_their_own_entries",
        "asked for at the same time",
        "in its own variables",
    ),
    (
        LateAnswers,
        "a_cancelled_call_ends_and_spoils_nothing",
        "after a cancelled call",
        "drop the connection",
    ),
    (CannotBeCancelled, "a_cancelled_call_ends_and_spoils_nothing", "cache_lookup went on", "let Cancelled"),
    (RetriesWithoutEnd, "a_lost_place_is_a_miss", "cache_insert went on", "retry nothing without an end"),
    (MakesSomethingUp, "a_lost_place_is_a_miss", "returned b'lost'", "let the exception"),
    (Prints, "nothing_is_printed", "wrote 'miss", "logging.getLogger"),
    (ChangesTheMask, "the_process_stays_as_it_was", "changed the mask of new files", "its own settings"),
]
CHECKS = [name for name, _ in rules_of(CacheConformance)]


@pytest.fixture(autouse=True)
def quick_timeout(monkeypatch):
    monkeypatch.setattr("tritonpy_sdk.testing.cache_conformance._TIME_LIMIT_S", 0.05)


@pytest.fixture
def little_patience(monkeypatch):
    monkeypatch.setattr("tritonpy_sdk.testing.traces._GRACE_S", 0.0)
    monkeypatch.setattr("tritonpy_sdk.testing.cache_conformance._ENDS_S", 0.05)
    mask = os.umask(0o22)
    yield
    os.umask(mask)


def run(cache, check):
    class Suite(
        CacheConformance,
        cache=cache(),
        wrong_settings=[{"size": "many"}],
        lost_settings={"lost": "yes"} if issubclass(cache, Waits) else None,
        room=ROOM,
    ): ...

    getattr(Suite(), check)()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("cache", RIGHT)
def test_right_cache_passes(cache, check):
    run(cache, check)


@pytest.mark.parametrize(
    ("cache", "check", "did", "remedy"), WRONG, ids=lambda each: getattr(each, "__name__", "")
)
def test_wrong_cache_is_named_with_what_to_do(cache, check, did, remedy, little_patience):
    with pytest.raises(PluginFault) as caught:
        run(cache, f"test_{check}")

    assert did in caught.value.did
    assert remedy in caught.value.rule.remedy


def test_every_check_of_the_kit_can_fail():
    assert {f"test_{check}" for _, check, _, _ in WRONG} == set(CHECKS)


def test_what_the_suite_does_not_name_is_skipped():
    class Suite(CacheConformance, cache=Newest()): ...

    for check in ("it_keeps_to_its_room", "a_lost_place_is_a_miss", "wrong_settings_are_refused_with_words"):
        with pytest.raises(pytest.skip.Exception, match="the suite names no"):
            getattr(Suite(), f"test_{check}")()
    Suite().test_a_large_entry_is_kept_or_refused()
