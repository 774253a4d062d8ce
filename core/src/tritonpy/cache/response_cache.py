"""The response cache of a server: a plugin's hooks, called so that their failures fail no request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from inspect import isawaitable

from tritonpy.cache.entry import BadEntry, decode_entry, encode_entry
from tritonpy.cache.key import CacheKey
from tritonpy.errors import AlreadyExists, Internal, InvalidArg, TritonError
from tritonpy.handles import Cache, CacheUsage
from tritonpy.plugin_files import Binder
from tritonpy.plugin_manager import Hook
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.tensor import Tensor

_log = logging.getLogger("tritonpy.cache")

MOST_FAILURES = 3
"""Failures in a row after which the cache is no longer asked."""

PAUSE_NS = 1_000_000_000
"""Time between two trials of a failing cache."""


class CacheHealth:
    """Circuit breaker of a cache: counts failures in a row; on the loop only.

    Args:
        name: of the cache, for the log.
        clock: monotonic nanoseconds.
    """

    def __init__(self, name: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._ask_again_ns = 0

    @property
    def is_failing(self) -> bool:
        """The cache has failed too often and is not asked."""
        return self._failures >= MOST_FAILURES

    def may_ask(self) -> bool:
        """The cache may be asked now; a failing one by one caller a second."""
        if self._failures < MOST_FAILURES:
            return True
        now = self._clock()
        if now < self._ask_again_ns:
            return False
        self._ask_again_ns = now + PAUSE_NS
        return True

    def succeeded(self) -> None:
        """Record a successful call, hit or miss."""
        if self.is_failing:
            _log.info("response cache '%s' answers again", self._name)
        self._failures = 0

    def failed(self, reason: str) -> None:
        """Record a failed call; the one that makes the cache failing is logged."""
        self._failures += 1
        if self._failures == MOST_FAILURES:
            self._ask_again_ns = self._clock() + PAUSE_NS
            _log.warning(
                "response cache '%s' has failed %d times in a row, the last time with \"%s\"; requests go on "
                "without it, and it is asked once a second until it answers",
                self._name,
                MOST_FAILURES,
                reason,
            )


_log = logging.getLogger("tritonpy.cache")

_VERBOSE_2 = logging.DEBUG - 1

MOST_WAITING_BYTES = 64 * 1024 * 1024
"""Entries on their way into a slow cache; further ones are dropped, so that they cannot fill the memory."""


class Waiting(Enum):
    """The answer comes later; a member of an enum, which no response can be mistaken for."""

    WAITING = "waiting"


WAITING = Waiting.WAITING

_INITIALIZE_S = 90.0
"""Longer than the 30 s of the trial of a shared object in a process of its own, whose error says more."""

_FAILURES = (Exception, SystemExit, asyncio.CancelledError)
"""Exceptions of a hook that are caught: a request waits for its end."""

_FINALIZE_S = 5.0


@dataclass(slots=True)
class CacheFigures:
    """Counters of a cache, the same for every plugin.

    Attributes:
        hit_count, miss_count: lookups; one that failed is a miss.
        lookup_ns, insertion_ns: what they took, with reading and writing entries.
        errors: by operation (`lookup` or `insert`) and reason: `timeout`, `failure`, `refused` (the cache did
            not want this entry), `corrupt` (what it gave was no entry), `skipped` (it was left alone because
            it had failed), `overload` (too much was on its way into it).
    """

    hit_count: int = 0
    miss_count: int = 0
    lookup_ns: int = 0
    insertion_ns: int = 0
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def lookup_count(self) -> int:
        """Hits and misses together."""
        return self.hit_count + self.miss_count

    def snapshot(self) -> CacheFigures:
        """A copy that another thread may read."""
        return replace(self, errors=self.errors.copy())


class ResponseCache:
    """Looks responses up and keeps them; owned by the loop.

    Args:
        name: as `--cache-config` names it.
        settings: its settings there.
        find: gives the plugin's hooks by the cache's name; blocking.
        timeout_s: how long an asynchronous hook may take.

    Attributes:
        handle: what the plugin's hooks receive.
        figures: its numbers.
    """

    def __init__(
        self, name: str, settings: Mapping[str, str], find: Callable[[str], Binder], timeout_s: float
    ) -> None:
        self.handle = Cache(settings, name=name)
        self.figures = CacheFigures()
        self._find = find
        self._timeout_s = timeout_s
        self._health = CacheHealth(name)
        self._bind: Binder | None = None
        self._lookup: Hook = _no_hook
        self._insert: Hook = _no_hook
        self._usage: Hook | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting_bytes = 0
        self._refused: set[str] = set()

    async def open(self) -> None:
        """Find the plugin and have it initialised.

        Raises:
            TritonError: there is none of this name, it is broken, or it does not want to begin.
        """
        name = self.handle.name
        bind = await asyncio.to_thread(self._find, name)
        self._lookup = _required(name, bind, "cache_lookup")
        self._insert = _required(name, bind, "cache_insert")
        self._usage = bind("cache_usage")
        initialize = bind("cache_initialize")
        if initialize is not None:
            try:
                outcome = initialize(self.handle)
                if isawaitable(outcome):
                    async with asyncio.timeout(_INITIALIZE_S):
                        await outcome
            except TritonError:
                raise
            except TimeoutError as exc:
                raise Internal(
                    f"cache '{name}' failed to initialize: no end after {_INITIALIZE_S:g} seconds"
                ) from exc
            except Exception as exc:
                raise Internal(f"cache '{name}' failed to initialize: {type(exc).__name__}: {exc}") from exc
        self._bind = bind  # from here on there is something to finalize; and see `bind_file`
        _log.info("response cache '%s' is in use", name)

    async def close(self) -> None:
        """Wait a moment for insertions under way, and have the plugin finalised."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_FINALIZE_S)
        bind, self._bind = self._bind, None
        finalize = bind("cache_finalize") if bind is not None else None
        if finalize is None:
            return
        try:
            outcome = finalize(self.handle)
            if isawaitable(outcome):
                async with asyncio.timeout(_FINALIZE_S):
                    await outcome
        except Exception:
            _log.exception("response cache '%s' failed to finalize", self.handle.name)

    def look_up(
        self, key: CacheKey, then: Callable[[InferResponse | None], None]
    ) -> InferResponse | Waiting | None:
        """Ask the cache for the response of a request. Never raises.

        Args:
            key: of a request.
            then: called with the answer where the cache has to be waited for, and this returns `WAITING`.
        """
        if not self._health.may_ask():
            self.figures.errors["lookup", "skipped"] += 1
            return None
        if _log.isEnabledFor(_VERBOSE_2):
            _log.log(_VERBOSE_2, "Looking up cache key: %s", key.text)
        start = time.monotonic_ns()
        try:
            found = self._lookup(self.handle, key.text)
        except _FAILURES as exc:
            self._failed("lookup", f"look up key [{key.text}] in", exc)
            return self._count_lookup(start, None)
        if found is None or not isawaitable(found):
            self._health.succeeded()
            return self._count_lookup(start, self._decoded(key, found))
        self._run(self._finish_lookup(key, found, start, then))
        return WAITING

    def insert(
        self, key: CacheKey, outputs: Sequence[Tensor], parameters: Mapping[str, ParameterValue]
    ) -> int:
        """Keep a response, now or later; returns the nanoseconds spent before returning. Never raises."""
        if not self._health.may_ask():
            self.figures.errors["insert", "skipped"] += 1
            return 0
        start = time.monotonic_ns()
        try:
            self._insert_entry(key, encode_entry(key.digest, outputs, parameters))
        except _FAILURES as exc:
            self._not_inserted(key, exc)
        taken_ns = time.monotonic_ns() - start
        self.figures.insertion_ns += taken_ns
        return taken_ns

    def _insert_entry(self, key: CacheKey, entry: bytes | None) -> None:
        if entry is None:
            return
        if self._waiting_bytes and self._waiting_bytes + len(entry) > MOST_WAITING_BYTES:
            self.figures.errors["insert", "overload"] += 1
            return
        if _log.isEnabledFor(_VERBOSE_2):
            _log.log(_VERBOSE_2, "Inserting at cache key: %s", key.text)
        outcome = self._insert(self.handle, key.text, entry)
        if outcome is not None and isawaitable(outcome):
            self._waiting_bytes += len(entry)
            self._run(self._finish_insert(key, outcome, len(entry)))
        else:
            self._health.succeeded()

    def usage(self) -> CacheUsage | None:
        """The plugin's numbers of its entries; None when it has none."""
        if self._usage is None or self._bind is None:
            return None
        try:
            usage: CacheUsage | None = self._usage(self.handle)
        except Exception:
            _log.exception("response cache '%s': cache_usage failed", self.handle.name)
            self._usage = None  # the next scrape would say the same
            return None
        return usage

    def _run(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish_lookup(
        self,
        key: CacheKey,
        found: Awaitable[bytes | memoryview | None],
        start: int,
        then: Callable[[InferResponse | None], None],
    ) -> None:
        response = None
        try:
            async with asyncio.timeout(self._timeout_s):
                entry = await found
        except _FAILURES as exc:
            self._failed("lookup", f"look up key [{key.text}] in", exc)
        else:
            self._health.succeeded()
            response = self._decoded(key, entry)
        then(self._count_lookup(start, response))

    def _count_lookup(self, start: int, response: InferResponse | None) -> InferResponse | None:
        figures = self.figures
        figures.lookup_ns += time.monotonic_ns() - start
        if response is None:
            figures.miss_count += 1
        else:
            figures.hit_count += 1
        return response

    async def _finish_insert(self, key: CacheKey, outcome: Awaitable[None], byte_size: int) -> None:
        start = time.monotonic_ns()
        try:
            async with asyncio.timeout(self._timeout_s):
                await outcome
            self._health.succeeded()
        except _FAILURES as exc:
            self._not_inserted(key, exc)
        finally:
            self._waiting_bytes -= byte_size
            self.figures.insertion_ns += time.monotonic_ns() - start

    def _decoded(self, key: CacheKey, entry: bytes | memoryview | None) -> InferResponse | None:
        if entry is None:
            return None
        try:
            return decode_entry(key.digest, entry)
        except (BadEntry, TypeError) as exc:  # the latter: it is no bytes at all
            self.figures.errors["lookup", "corrupt"] += 1
            _log.error("Response cache '%s' has no entry at key [%s]: %s", self.handle.name, key.text, exc)
            return None

    def _not_inserted(self, key: CacheKey, exc: BaseException) -> None:
        if isinstance(exc, AlreadyExists):
            self._health.succeeded()
        elif isinstance(exc, TritonError):  # it works, and does not want this entry
            self._health.succeeded()
            self.figures.errors["insert", "refused"] += 1
            # Once for each model: what is too large once is so every time.
            level = logging.DEBUG if key.model in self._refused else logging.ERROR
            self._refused.add(key.model)
            _log.log(level, "Failed to insert key [%s] into response cache: %s", key.text, exc)
        else:
            self._failed("insert", f"insert key [{key.text}] into", exc)

    def _failed(self, operation: str, what: str, exc: BaseException) -> None:
        if isinstance(exc, TimeoutError):
            reason, text = (
                "timeout",
                f"no answer in {self._timeout_s * 1000:g} ms (--cache-timeout-ms)",
            )
        else:
            reason, text = "failure", f"{type(exc).__name__}: {exc}"
        self.figures.errors[operation, reason] += 1
        if not self._health.is_failing:  # afterwards it would be the same line every second
            _log.error("Failed to %s response cache: %s", what, text)
        self._health.failed(text)


def _no_hook(*_: object) -> None:
    """Stand in for the hooks of a cache that is not open: it has nothing and keeps nothing."""


def _required(name: str, bind: Binder, hook: str) -> Hook:
    found = bind(hook)
    if found is None:
        raise InvalidArg(f"cache '{name}' does not implement {hook}")
    return found
