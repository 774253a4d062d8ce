"""Caches that take their time, or for ever: what waits for them, and what does not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tritonpy.plugin import Cache, Internal, Unavailable
from tritonpy_abi.caches import calls, open_cache
from tritonpy_abi.caches.shared_cache import SharedCache
from tritonpy_sdk.testing import DEADLINE_S, until_async


class Gate:
    """A cache whose calls of one function wait until it is opened.

    Attributes:
        handle: what its hooks receive.
    """

    def __init__(self, library: Path, path: Path, function: str) -> None:
        self.plugin: SharedCache = open_cache(str(library))
        self.handle = Cache({"wait": function, "path": str(path)}, name="gate")
        self._path = path
        self._log = Path(f"{path}.log")

    def open(self) -> None:
        self._path.touch()

    def shut(self) -> None:
        self._path.unlink()

    @property
    def log(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    async def has_begun(self, count: int) -> None:
        """Wait until so many calls are in the library."""
        await until_async(lambda: sum(line.startswith("begin") for line in self.log) >= count)

    def look_up(self, key: str = "key") -> asyncio.Future[object]:
        return asyncio.ensure_future(self.plugin.cache_lookup(self.handle, key))


@pytest.fixture
async def gate_at(
    compiled: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[str], Gate]]:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "0")
    monkeypatch.setattr(calls, "CLOSE_S", DEADLINE_S)
    library = compiled("caches/gate.c")
    made: list[Gate] = []

    def make(function: str) -> Gate:
        made.append(Gate(library, tmp_path / "gate", function))
        return made[-1]

    yield make
    for gate in made:
        gate.open()


async def begun(gate: Gate) -> Gate:
    await gate.plugin.cache_initialize(gate.handle)
    return gate


async def test_the_loop_goes_on_while_a_cache_is_initialized(gate_at: Callable[[str], Gate]) -> None:
    gate = gate_at("Initialize")
    beginning = asyncio.ensure_future(begun(gate))
    await gate.has_begun(1)
    assert not beginning.done()
    gate.open()

    await asyncio.wait_for(beginning, DEADLINE_S)
    await gate.plugin.cache_finalize(gate.handle)
    assert gate.log == ["begin Initialize", "end Initialize", "ended by Finalize"]


async def test_several_look_up_at_once_on_threads_that_are_not_pythons(
    gate_at: Callable[[str], Gate],
) -> None:
    gate = await begun(gate_at("Lookup"))
    threads = threading.active_count()

    lookups = [gate.look_up(f"key {number}") for number in range(4)]
    await gate.has_begun(4)

    assert threading.active_count() <= threads
    assert not any(lookup.done() for lookup in lookups)
    gate.open()
    assert await asyncio.wait_for(asyncio.gather(*lookups), DEADLINE_S) == [None] * 4
    await gate.plugin.cache_finalize(gate.handle)


async def test_a_library_that_hangs_loses_some_threads_and_then_fails_at_once(
    gate_at: Callable[[str], Gate],
) -> None:
    gate = await begun(gate_at("Lookup"))
    most = calls.MOST_THREADS
    lookups = [gate.look_up() for _ in range(most + 5)]
    await gate.has_begun(most)
    for lookup in lookups:
        lookup.cancel()

    for _ in range(1000):
        with pytest.raises(Unavailable, match=f"all {most} threads that call it are in calls that have not"):
            gate.plugin.cache_lookup(gate.handle, "key")
    with pytest.raises(Exception, match=f"all {most} threads that call it are in calls that have not"):
        await gate.plugin.cache_insert(gate.handle, "key", b"entry")

    assert sum(line.startswith("begin") for line in gate.log) == most
    gate.open()
    await until_async(lambda: sum(line.startswith("end") for line in gate.log) == most)
    assert await asyncio.wait_for(answered(gate), DEADLINE_S) is None
    await gate.plugin.cache_finalize(gate.handle)
    assert gate.log[-1] == "ended by Finalize"


async def answered(gate: Gate) -> object:
    """The answer of a library that is about to answer again."""
    while True:
        try:
            return await gate.plugin.cache_lookup(gate.handle, "key")
        except Unavailable:
            await asyncio.sleep(0.001)


async def test_a_call_given_up_before_it_begins_never_does(gate_at: Callable[[str], Gate]) -> None:
    gate = await begun(gate_at("Lookup"))
    most = calls.MOST_THREADS
    lookups = [gate.look_up() for _ in range(most)]
    await gate.has_begun(most)
    late = [gate.look_up() for _ in range(100)]
    for lookup in late:
        lookup.cancel()
    gate.open()

    await asyncio.wait_for(asyncio.gather(*lookups), DEADLINE_S)
    await gate.plugin.cache_finalize(gate.handle)
    assert sum(line.startswith("begin") for line in gate.log) == most


async def test_the_bytes_of_an_insertion_stay_until_it_has_returned(gate_at: Callable[[str], Gate]) -> None:
    gate = await begun(gate_at("Insert"))
    insertion = asyncio.ensure_future(gate.plugin.cache_insert(gate.handle, "key", bytes(100)))
    await gate.has_begun(1)
    insertion.cancel()
    with pytest.raises(asyncio.CancelledError):
        await insertion

    (call,) = gate.handle.state._open.values()
    assert len(call.reads) == 100
    gate.open()
    await until_async(lambda: not gate.handle.state._open)
    await gate.plugin.cache_finalize(gate.handle)


async def test_what_is_being_inserted_is_looked_up_afterwards(gate_at: Callable[[str], Gate]) -> None:
    gate = await begun(gate_at("Insert"))
    insertion = asyncio.ensure_future(gate.plugin.cache_insert(gate.handle, "key", b"entry"))
    await gate.has_begun(1)

    lookup = gate.look_up("key")
    assert await asyncio.wait_for(gate.look_up("another"), DEADLINE_S) is None
    assert not lookup.done()
    gate.open()
    assert await asyncio.wait_for(lookup, DEADLINE_S) is None
    assert insertion.done()
    await gate.plugin.cache_finalize(gate.handle)


async def test_nobody_waits_for_an_insertion_that_is_given_up(gate_at: Callable[[str], Gate]) -> None:
    gate = await begun(gate_at("Insert"))
    insertion = asyncio.ensure_future(gate.plugin.cache_insert(gate.handle, "key", b"entry"))
    await gate.has_begun(1)
    lookup = gate.look_up("key")
    insertion.cancel()

    assert await asyncio.wait_for(lookup, DEADLINE_S) is None
    assert await asyncio.wait_for(gate.look_up("key"), DEADLINE_S) is None
    gate.open()
    await gate.plugin.cache_finalize(gate.handle)


async def test_the_end_waits_for_calls_that_nobody_waits_for(gate_at: Callable[[str], Gate]) -> None:
    gate = await begun(gate_at("Lookup"))
    lookup = gate.look_up()
    await gate.has_begun(1)
    lookup.cancel()

    ending = asyncio.ensure_future(gate.plugin.cache_finalize(gate.handle))
    await asyncio.sleep(0.05)
    assert not ending.done()
    gate.open()
    await asyncio.wait_for(ending, DEADLINE_S)

    assert gate.log == ["begin Lookup", "end Lookup", "ended by Finalize"]


async def test_a_cache_that_hangs_at_the_end_is_not_finalized(
    gate_at: Callable[[str], Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CLOSE_S", 0.05)
    gate = await begun(gate_at("Insert"))
    insertion = asyncio.ensure_future(gate.plugin.cache_insert(gate.handle, "key", b"entry"))
    await gate.has_begun(1)
    insertion.cancel()

    text = r"1 calls of .*gate\.so have not returned after 0\.05 seconds, so TRITONCACHE_CacheFinalize is not"
    with pytest.raises(Internal, match=text):
        await gate.plugin.cache_finalize(gate.handle)

    with pytest.raises(Unavailable, match="is closed"):
        gate.plugin.cache_lookup(gate.handle, "key")
    gate.open()
    await until_async(lambda: gate.log == ["begin Insert", "end Insert"])


async def test_a_cache_that_is_given_up_while_it_begins_leaves_nothing_open(
    gate_at: Callable[[str], Gate],
) -> None:
    gate = gate_at("Initialize")
    beginning = asyncio.ensure_future(begun(gate))
    await gate.has_begun(1)
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning

    gate.open()
    await until_async(lambda: gate.log == ["begin Initialize", "end Initialize"])


def test_the_end_of_a_loop_does_not_wait_for_a_cache_that_is_tried(
    compiled: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITONPY_ABI_PROBE_S", "3600")
    gate = Gate(compiled("caches/gate.c"), tmp_path / "gate", "Initialize")

    async def begin_and_go() -> None:
        beginning = asyncio.ensure_future(begun(gate))
        await gate.has_begun(1)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning

    asyncio.run(begin_and_go())
    trying = [thread for thread in threading.enumerate() if thread.name == "cache"]
    gate.open()
    for thread in trying:
        thread.join(DEADLINE_S)

    assert trying  # still, when the loop had ended
