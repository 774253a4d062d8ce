"""Calls of a library's four functions, awaited on the loop while threads of the C library are in them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tritonpy.plugin import Internal, Unavailable

from tritonpy_abi.caches.failures import CacheFailure, of_insertion
from tritonpy_abi.json_text import json_text
from tritonpy_abi.libraries import Library
from tritonpy_abi.shim import CData, Shim

FUNCTIONS = (
    "TRITONCACHE_CacheInitialize",
    "TRITONCACHE_CacheFinalize",
    "TRITONCACHE_CacheLookup",
    "TRITONCACHE_CacheInsert",
)

MOST_THREADS = 16
"""The most calls that may be in a cache at once, and that may be lost in one that hangs."""

CLOSE_S = 3.0
"""How long the end waits for calls that are under way: less than the server waits for the end."""

_OUTCOMES = 64

_kept_for_ever: list[object] = []
"""What calls that have not returned may still read: at most `MOST_THREADS` for each cache that hangs."""


class Call(asyncio.Future[Any]):  # Any: of each function
    """A call under way; cancelling it ends the wait, and the library is told.

    Attributes:
        number: tells it from others.
        is_lookup: it asks for an entry.
        inserted: the key that it keeps an entry under.
        reads: memory that the call reads; kept until it has returned.
    """

    def __init__(
        self, calls: CacheCalls, number: int, *, is_lookup: bool, inserted: str | None, reads: object
    ) -> None:
        super().__init__()
        self.number = number
        self.is_lookup = is_lookup
        self.inserted = inserted
        self.reads = reads
        self._calls = calls

    def cancel(self, msg: Any = None) -> bool:  # Any: as in asyncio
        """Stop waiting for the answer."""
        is_cancelled = super().cancel(msg)
        if is_cancelled:
            self._calls.give_up(self)
        return is_cancelled


class CacheCalls:
    """One cache of a library, from its initialisation to its end; on the loop only.

    Args:
        shim: the C library.
        library: that defines the functions.
        functions: their addresses, in the order of `FUNCTIONS`.
    """

    def __init__(self, shim: Shim, library: Library, functions: tuple[CData, ...]) -> None:
        self._shim = shim
        self._ffi, self._lib = shim.ffi, shim.lib
        self._path = library.path
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self._open: dict[int, Call] = {}
        self._insertions: dict[str, Call] = {}
        self._outcomes = self._ffi.new("TRITONPY_CacheOutcome[]", _OUTCOMES)
        out = self._ffi.new("TRITONPY_Cache **")
        shim.check(self._lib.TRITONPY_CacheNew(out, *functions, MOST_THREADS))
        self._cache = self._ffi.gc(out[0], self._lib.TRITONPY_CacheDelete)
        self._are_lookups_answered = True
        self._is_closed = False
        self._emptied: asyncio.Future[None] | None = None
        self._loop.add_reader(self._lib.TRITONPY_CacheEvents(self._cache), self._take_outcomes)

    async def initialize(self, settings: Mapping[str, str]) -> None:
        """Have the cache made.

        Raises:
            TritonError: with what the library says.
        """
        config = json_text(settings).encode()
        try:
            await self._begin(lambda number: self._lib.TRITONPY_CacheInitialize(self._cache, number, config))
        except BaseException:
            self._leave()
            raise

    def look_up(self, key: str) -> Awaitable[memoryview | None]:
        """The entry under a key; a view of memory that is its alone.

        What is being inserted is asked for afterwards: a client that has the answer to a request may ask
        again at once, and find it kept.

        Raises:
            Unavailable: at once, where the library hangs.
        """
        if (insertion := self._insertions.get(key)) is not None:
            return self._look_up_after(insertion, key)
        text = key.encode()
        return self._begin(
            lambda number: self._lib.TRITONPY_CacheLookup(self._cache, number, text), is_lookup=True
        )

    async def _look_up_after(self, insertion: Call, key: str) -> memoryview | None:
        await asyncio.wait((insertion,))
        return await self.look_up(key)

    def insert(self, key: str, entry: bytes) -> Awaitable[None]:
        """Have an entry kept; its bytes are read where they lie. Errors are those of `of_insertion`.

        Raises:
            CacheFailure: at once, where the library hangs.
        """
        text, data = key.encode(), self._ffi.from_buffer(entry)
        try:
            call = self._insertions[key] = self._begin(
                lambda number: self._lib.TRITONPY_CacheInsert(self._cache, number, text, data, len(entry)),
                inserted=key,
                reads=data,
            )
        except Unavailable as exc:
            raise CacheFailure(exc.described()) from None
        return call

    async def close(self) -> None:
        """End the cache once its calls have returned; not if they do not, since they would lose it.

        Raises:
            Internal: calls have not returned in time.
            TritonError: the library refused to end it.
        """
        try:
            if self._open:
                self._emptied = self._loop.create_future()
                await asyncio.wait((self._emptied,), timeout=CLOSE_S)
            if self._open:
                raise Internal(
                    f"{len(self._open)} calls of {self._path} have not returned after {CLOSE_S:g} seconds, "
                    f"so TRITONCACHE_CacheFinalize is not called"
                )
            await self._begin(lambda number: self._lib.TRITONPY_CacheFinalize(self._cache, number))
        finally:
            self._leave()

    def give_up(self, call: Call) -> None:
        """Have a call not begun, or lose a thread to it until it returns."""
        self._are_lookups_answered &= not call.is_lookup
        self._end_insertion(call)
        if not self._is_closed and self._lib.TRITONPY_CacheGiveUp(self._cache, call.number):
            self._forget(call.number)

    def _begin(
        self,
        begin: Callable[[int], CData],
        *,
        is_lookup: bool = False,
        inserted: str | None = None,
        reads: object = None,
    ) -> Call:
        if self._is_closed:
            raise Unavailable(f"the cache of {self._path} is closed")
        number = next(self._numbers)
        error = begin(number)
        if error != self._ffi.NULL:
            raise self._shim.error(error)
        call = self._open[number] = Call(self, number, is_lookup=is_lookup, inserted=inserted, reads=reads)
        return call

    def _take_outcomes(self) -> None:
        count = _OUTCOMES
        while count == _OUTCOMES:
            count = self._lib.TRITONPY_CacheTake(self._cache, self._outcomes, _OUTCOMES)
            for outcome in self._outcomes[0:count]:
                self._settle(self._forget(outcome.number), outcome)

    def _settle(self, call: Call, outcome: CData) -> None:
        """Own what came with it, also where it is no longer waited for."""
        failure = self._shim.error(outcome.error) if outcome.error != self._ffi.NULL else None
        found = None
        if outcome.data != self._ffi.NULL:
            size = outcome.byte_size
            memory = self._ffi.gc(outcome.data, self._lib.TRITONPY_CacheFree, size)
            found = memoryview(self._ffi.buffer(memory, size)).toreadonly()
        if call.done():
            return
        self._end_insertion(call)
        if call.is_lookup:
            self._are_lookups_answered = failure is None
        if failure is None:
            call.set_result(found)
        elif call.inserted is None:
            call.set_exception(failure)
        else:
            call.set_exception(of_insertion(failure, are_lookups_answered=self._are_lookups_answered))

    def _end_insertion(self, call: Call) -> None:
        if call.inserted is not None and self._insertions.get(call.inserted) is call:
            del self._insertions[call.inserted]

    def _forget(self, number: int) -> Call:
        call = self._open.pop(number)
        if not self._open and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)
        return call

    def _leave(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._lib.TRITONPY_CacheEvents(self._cache))
        _kept_for_ever.extend(call.reads for call in self._open.values())
        for call in self._open.values():
            call.cancel()
        self._ffi.release(self._cache)
