"""A scheduler behind the response cache: what the cache has is answered without an execution.

The cache is asked before a request is queued. Equal requests that arrive while the first of them is executed
are executed, too: no request waits for another's execution, which may fail or be cancelled. A response is
kept when it is the only one, has no error and its request was not given up; its client gets it first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from tritonpy.cache.key import CacheKey, KeyMaker
from tritonpy.cache.response_cache import WAITING, ResponseCache
from tritonpy.errors import Cancelled, TritonError
from tritonpy.model.execution import Instance
from tritonpy.model.model import RequestScheduler
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse, ParameterValue
from tritonpy.scheduler.ordering import ResponseOrder
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor


class CachedScheduler:
    """Stands in front of the scheduler of one model version; satisfies `RequestScheduler`. On the loop only.

    Args:
        scheduler: takes what the cache does not have.
        cache: the server's.
        keys: of this model version.
        stats: where hits and misses are counted.
        order: hands responses on in the order of arrival, for `preserve_ordering`; the scheduler has none.
        clock: monotonic nanoseconds.

    Attributes:
        scheduler: as given.
    """

    def __init__(
        self,
        scheduler: RequestScheduler,
        cache: ResponseCache,
        keys: KeyMaker,
        stats: ModelStats,
        *,
        order: ResponseOrder | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.scheduler = scheduler
        self._cache = cache
        self._keys = keys
        self._stats = stats
        self._order = order
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._refusal: TritonError | None = None
        self._looking: dict[InferRequest, _Lookup] = {}

    def enqueue(self, request: InferRequest) -> None:
        """See `RequestScheduler`; a hit is answered in the next turn of the loop.

        Raises:
            TritonError: nothing can run it, not even if the cache had its answer.
        """
        if self._refusal is not None:
            raise self._refusal
        if self._order is None:
            self._look_up(request)
            return
        self._order.enroll(request)
        try:
            self._look_up(request)
        except BaseException:
            self._order.withdraw(request)
            raise

    def request_cancelled(self, request: InferRequest) -> None:
        """Answer a request that was cancelled while the cache was asked."""
        lookup = self._looking.pop(request, None)
        if lookup is not None:
            error = Cancelled(f"{request.label}request was cancelled while it waited")
            self._fail(lookup, error, "CANCELED")

    def use(self, instances: Sequence[Instance]) -> None:
        self.scheduler.use(instances)

    def refuse(self, error: TritonError | None) -> None:
        """See `RequestScheduler`; hits are refused as well, since readiness says that nothing is answered."""
        self._refusal = error
        self.scheduler.refuse(error)
        if error is not None:
            self._fail_all(error)

    def close(self, error: TritonError) -> None:
        self._refusal = error
        self.scheduler.close(error)
        self._fail_all(error)

    def _look_up(self, request: InferRequest) -> None:
        start = self._clock()
        key = self._keys.make(request)
        if key is None:
            self.scheduler.enqueue(request)
            return
        lookup = _Lookup(self, request, key, start, self._clock())
        found = self._cache.look_up(key, lookup.end)
        if found is WAITING:
            self._looking[request] = lookup
            request.queue_start_ns = start
            request.ticket.on_cancel = self
        elif found is None:
            self._miss(lookup, self._clock() - start)
        else:
            # Not at once: the sender may not expect the answer before this returns.
            self._loop.call_soon(self._hit, lookup, found, self._clock() - lookup.asked_ns)

    def _found(self, lookup: _Lookup, response: InferResponse | None) -> None:
        """Take the answer of a cache that did not answer at once."""
        request = lookup.request
        if self._looking.pop(request, None) is None:
            return  # it was cancelled, or is refused by now
        request.ticket.on_cancel = None
        if response is not None:
            self._hit(lookup, response, self._clock() - lookup.asked_ns)
            return
        try:
            self._miss(lookup, self._clock() - lookup.start_ns)
        except TritonError as error:  # the queue is full
            request.fail(error)

    def _hit(self, lookup: _Lookup, response: InferResponse, lookup_ns: int) -> None:
        start = lookup.start_ns
        self._stats.count_cache_hit(lookup.asked_ns - start, lookup_ns, self._clock() - start)
        lookup.request.ticket.reshape = None  # what is kept has the shapes that clients expect
        lookup.request.deliver(response)

    def _miss(self, lookup: _Lookup, lookup_ns: int) -> None:
        request, sink = lookup.request, lookup.request.ticket.sink
        self._stats.count_cache_miss(lookup_ns)
        request.ticket.sink = _Insertion(self._cache, self._stats, lookup.key, sink, lookup_ns)
        try:
            self.scheduler.enqueue(request)
        except BaseException:
            request.ticket.sink = sink
            raise

    def _fail_all(self, error: TritonError) -> None:
        waiting = list(self._looking.values())
        self._looking.clear()
        for lookup in waiting:
            self._fail(lookup, error, "OTHER")

    def _fail(self, lookup: _Lookup, error: TritonError, reason: str) -> None:
        lookup.request.ticket.on_cancel = None
        self._stats.count_failure(reason, self._clock() - lookup.start_ns)
        lookup.request.fail(error)


class _Lookup:
    """One request while the cache is asked.

    Attributes:
        start_ns: when the request arrived here.
        asked_ns: when its key was made and the cache was asked.
    """

    __slots__ = ("_owner", "asked_ns", "key", "request", "start_ns")

    def __init__(
        self, owner: CachedScheduler, request: InferRequest, key: CacheKey, start_ns: int, asked_ns: int
    ) -> None:
        self._owner = owner
        self.request = request
        self.key = key
        self.start_ns = start_ns
        self.asked_ns = asked_ns

    def end(self, response: InferResponse | None) -> None:
        """Take what the cache has found."""
        self._owner._found(self, response)


class _Insertion:
    """The sink of a request that the cache did not know: what passes through it is kept."""

    __slots__ = ("_cache", "_is_first", "_key", "_lookup_ns", "_sink", "_stats")

    def __init__(
        self,
        cache: ResponseCache,
        stats: ModelStats,
        key: CacheKey,
        sink: ResponseSink | None,
        lookup_ns: int,
    ) -> None:
        self._cache = cache
        self._stats = stats
        self._key = key
        self._sink = sink
        self._lookup_ns = lookup_ns
        self._is_first = True

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Hand the response on, then keep it."""
        is_whole = self._is_first and final and not request.ticket.cancelled
        self._is_first = False
        kept = _kept(response) if is_whole else None
        if self._sink is not None:
            self._sink.on_response(request, response, final)
        if kept is None:
            return
        outputs, parameters = kept
        self._stats.count_cache_insertion(self._lookup_ns, self._cache.insert(self._key, outputs, parameters))


def _kept(
    response: InferResponse | None,
) -> tuple[tuple[Tensor, ...], dict[str, ParameterValue]] | None:
    """The parts of a response that are kept; None for one that is not.

    The same tensors, independent of the response's further life; they keep their bytes alive.
    """
    if response is None or response.error is not None:
        return None
    try:
        return tuple(response.outputs), dict(response.parameters)
    except (TypeError, ValueError):  # the backend has got it wrong, and its client is told
        return None
