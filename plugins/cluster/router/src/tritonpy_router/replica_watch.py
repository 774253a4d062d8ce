"""What a replica tells of itself, where it offers that: at once, and more than can be asked for over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tritonpy.frontends.grpc.status import Status

from tritonpy_router.model_facts import ModelFacts
from tritonpy_router.protos import WatchResponse
from tritonpy_router.replica import Replica
from tritonpy_router.replica_client import ReplicaCallError, ReplicaClient

_log = logging.getLogger("tritonpy.router")

INTERVAL_MS = 250
_SILENT_S = 5.0
"""After which a call is made anew: its connection may have been lost without a word."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0
_SETTLED = frozenset((Status.UNAUTHENTICATED, Status.UNIMPLEMENTED, Status.PERMISSION_DENIED))
"""Ends that mean the same a moment later."""


class ReplicaWatch:
    """Follows one replica for as long as it is a member; on the loop only.

    Args:
        replica: what is heard of it is noted there.
        client: asks it.
        now_s: the clock.
        on_report: awaited with each report, one after the other, of which those that are out of date when
            their turn comes are left out.
        interval_ms: in which it is to tell something.
        silent_s: for which it may tell nothing before it is asked over HTTP, and the call is made anew.

    Attributes:
        client: as given.
        tried: set when it has told something, or has not for the first time.
    """

    def __init__(
        self,
        replica: Replica,
        client: ReplicaClient,
        now_s: Callable[[], float],
        on_report: Callable[[Replica, Report], Awaitable[None]],
        interval_ms: int = INTERVAL_MS,
        silent_s: float = _SILENT_S,
    ) -> None:
        self._replica = replica
        self._now_s = now_s
        self._on_report = on_report
        self._interval_ms = interval_ms
        self._silent_s = silent_s
        self._silence = asyncio.timeout(None)
        self._came: Report | None = None
        self._has_come = asyncio.Event()
        self._fault = ""
        self.client = client
        self.tried = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled."""
        pause_s = _FIRST_PAUSE_S
        try:
            while True:
                begun_s = self._now_s()
                is_settled = await self._follow()
                is_short = self._now_s() - begun_s < _LONGEST_PAUSE_S
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S) if is_short else _FIRST_PAUSE_S
                await asyncio.sleep(_LONGEST_PAUSE_S if is_settled else pause_s)
        finally:
            self._replica.forget_report()
            self.client.close()

    async def _follow(self) -> bool:
        """Follow until the call ends; True if the next one would end likewise."""
        handing_on = asyncio.get_running_loop().create_task(self._hand_on())
        try:
            async with asyncio.timeout(self._silent_s) as self._silence:
                await self.client.watch(self._interval_ms, self._take)
        except TimeoutError:
            self.tried.set()
            self._tell(f"it has told nothing for {self._silent_s:g} s")
            self.client.retire()
        except ReplicaCallError as exc:
            self.tried.set()
            self._tell(str(exc))
            return exc.status in _SETTLED
        finally:
            self._replica.forget_report()  # it is asked over HTTP from now on
            self._came = None
            handing_on.cancel()
            await asyncio.gather(handing_on, return_exceptions=True)
        return False

    def _tell(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            _log.info(
                "replica '%s' does not tell how it is, and is asked over HTTP: %s", self._replica.name, fault
            )

    def _take(self, message: WatchResponse) -> None:
        replica = self._replica
        if not self._silence.expired():
            self._silence.reschedule(asyncio.get_running_loop().time() + self._silent_s)
        if replica.heard_s is None:
            _log.info("replica '%s' tells how it is", replica.name)
            self._fault = ""
        replica.heard(
            self._now_s(),
            3 * self._interval_ms / 1000,
            inflight_count=message.inflight_count,
            pending_count=message.pending_count,
            queue_ms=message.queue_ms,
            inflight_counts={row.name: row.inflight_count for row in message.activity},
            is_draining=message.is_draining,
        )
        replica.revision = max(replica.revision, message.revision)
        before = self._came
        report = Report(message)
        if not message.has_index and before is not None:
            report.keep_index(before)
        self._came = report
        self._has_come.set()

    async def _hand_on(self) -> None:
        while True:
            await self._has_come.wait()
            self._has_come.clear()
            if self._came is not None:
                try:
                    await self._on_report(self._replica, self._came)
                except Exception:  # the next report may go well
                    _log.exception("what replica '%s' tells cannot be taken up", self._replica.name)
                self.tried.set()


class Report:
    """What a replica has told.

    Attributes:
        server_id: of its start.
        is_taking: it takes new requests.
        unready: why not, as a part of a sentence.
        models: versions that are ready, by name; None until it has told.
        facts: of the models that are ready.
        is_taken: what it says of models has been noted.
    """

    __slots__ = ("facts", "is_taken", "is_taking", "models", "server_id", "unready")

    def __init__(self, message: WatchResponse) -> None:
        self.server_id = message.server_id
        self.is_taking = message.is_taking
        self.unready = f"is not ready: {message.unready_reason}"
        self.models: dict[str, frozenset[str]] | None = None
        self.facts: dict[str, ModelFacts] = {}
        self.is_taken = False
        if message.has_index:
            models: dict[str, set[str]] = {}
            for entry in message.index:
                if entry.state == "READY":
                    models.setdefault(entry.name, set()).add(entry.version)
                    self.facts[entry.name] = ModelFacts(
                        entry.is_sequence,
                        entry.max_sequence_idle_us / 1e6,
                        entry.retry_on_replica_loss,
                        entry.instance_count,
                        tuple(entry.steps),
                    )
            self.models = {name: frozenset(versions) for name, versions in models.items()}

    def keep_index(self, before: Report) -> None:
        """Have the models that were told before: nothing of them has changed."""
        self.models, self.facts = before.models, before.facts
        self.is_taken = before.is_taken
