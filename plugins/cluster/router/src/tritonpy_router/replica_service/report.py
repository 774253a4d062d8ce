"""How the server is: looked at many times a second while a router watches, and never otherwise."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from tritonpy.plugin import Dataplane, JsonObject, ModelActivity, TritonError

from tritonpy_router.model_facts import facts_of
from tritonpy_router.protos import IndexEntry, WatchResponse
from tritonpy_router.replica_service.meters import Meters

_LOOK_S = 0.05
"""Between two looks for a change."""
_INTERVAL_MS, _LEAST_MS = 250, 50
_INDEX_EVERY_S = 0.25


@dataclass(slots=True)
class _Index:
    """The versions that take requests, as they were last.

    Attributes:
        number: grows with each change.
        entries: for the message.
        read_s: when.
        loaded: names and versions that were loaded then.
    """

    number: int = 0
    entries: list[IndexEntry] = field(default_factory=list)
    read_s: float = float("-inf")
    loaded: frozenset[tuple[str, int]] = frozenset()


class Reports:
    """Tells whoever watches how the server is; on the loop only.

    Args:
        dataplane: knows it.
        revision: of what was applied last.
        now_s: the clock.
    """

    def __init__(
        self,
        dataplane: Dataplane,
        revision: Callable[[], int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dataplane = dataplane
        self._revision = revision
        self._now_s = now_s
        self._server_id = secrets.token_hex(8)
        self._index = _Index()
        self._meters = Meters()
        self._is_over = asyncio.Event()

    def end(self) -> None:
        """The server is about to close the port: those who watch are told how it is for the last time."""
        self._is_over.set()

    async def follow(self, interval_ms: int = 0) -> AsyncIterator[bytes]:
        """The state now, whenever it has changed, and at least every `interval_ms`, until `end`.

        Yields:
            Serialized `WatchResponse`.
        """
        interval_s = max(interval_ms or _INTERVAL_MS, _LEAST_MS) / 1000
        told: tuple[object, ...] | None = None
        told_s = 0.0
        index_number = 0
        while True:
            is_over = self._is_over.is_set()
            activity = self._dataplane.model_activity()
            await self._look_at_index(activity)
            report = self._report(activity)
            state = (
                report.is_taking,
                report.is_draining,
                report.unready_reason,
                report.revision,
                self._index.number,
            )
            now_s = self._now_s()
            if state != told or now_s - told_s >= interval_s:
                told, told_s = state, now_s
                if index_number != self._index.number:
                    index_number = self._index.number
                    report.has_index = True
                    report.index.extend(self._index.entries)
                yield report.SerializeToString()
            if is_over:
                return
            await self._pause(min(_LOOK_S, interval_s))

    def _report(self, rows: Sequence[ModelActivity]) -> WatchResponse:
        unready = self._dataplane.why_not_ready()
        meters = self._meters
        meters.note(rows, self._now_s())
        # One that is starting or stopping names no models that are in the way.
        is_draining = unready is not None and not unready.models
        return WatchResponse(
            server_id=self._server_id,
            is_taking=not is_draining,
            is_draining=is_draining,
            unready_reason="" if unready is None else unready.reason,
            inflight_count=sum(row.inflight_count for row in rows),
            pending_count=sum(row.pending_count for row in rows),
            queue_ms=meters.queue_ms(),
            revision=self._revision(),
            activity=meters.activity(),
        )

    async def _look_at_index(self, rows: Sequence[ModelActivity]) -> None:
        index, now_s = self._index, self._now_s()
        loaded = frozenset((row.name, row.version) for row in rows)
        if loaded == index.loaded and now_s - index.read_s < _INDEX_EVERY_S:
            return
        index.read_s, index.loaded = now_s, loaded
        try:
            # Of what serves alone: other rows are found by listing the storage, for which no report waits.
            found = await self._dataplane.repository_index(ready=True)
        except TritonError:
            found = []  # the server has no repository, which is why it is not ready
        entries = [
            self._entry(row) for row in found
        ]  # anew: a load may have changed what they say of a model
        if entries != index.entries or not index.number:
            index.entries = entries
            index.number += 1

    def _entry(self, row: JsonObject) -> IndexEntry:
        entry = IndexEntry(
            name=row["name"],
            version=str(row.get("version", "")),
            state=row.get("state", ""),
            reason=row.get("reason", ""),
        )
        if entry.state == "READY":
            try:
                facts = facts_of(self._dataplane.find(entry.name, entry.version).config)
            except TritonError:  # it has just gone
                return entry
            entry.is_sequence = facts.is_sequence
            entry.max_sequence_idle_us = round(facts.idle_s * 1e6)
            entry.retry_on_replica_loss = facts.is_retriable
            entry.instance_count = facts.instance_count
            entry.steps.extend(facts.steps)
        return entry

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._is_over.wait()
        except TimeoutError:
            pass
