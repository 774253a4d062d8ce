"""Questions and changes that concern all replicas: one index, sums of statistics, loads on each.

What a client has loaded or unloaded is kept as the desired state, so that a replica that joins later, or was
started anew, is brought to it before it gets requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson
from tritonpy.errors import ErrorCode, InvalidArg, TritonError, Unavailable
from tritonpy.frontends.grpc.status import STATUS as GRPC_STATUS
from tritonpy.frontends.http.connection.message import STATUS
from tritonpy.frontends.http.repository import load_parameters

from tritonpy_router.probe import Prober
from tritonpy_router.protos import ApplyRequest, DesiredModel
from tritonpy_router.replica import Replica
from tritonpy_router.replica_client import ReplicaCallError, ReplicaClient
from tritonpy_router.view import View
from tritonpy_router.wishes import Wanted, WishFile

_log = logging.getLogger("tritonpy.router")

Json = Any  # of replicas

_CODES = {400: ErrorCode.INVALID_ARG, **{status: code for code, status in STATUS.items() if status != 400}}
_CODE_OF = {status.value: code for code, status in GRPC_STATUS.items()}
_LARGE = 256 * 1024
_FAULTS = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


class _Outdated(Unavailable):
    """A replica has met a wish with a higher revision."""


class Control:
    """All replicas as one; on the loop only.

    Args:
        view: knows them.
        prober: asks them.
        load_timeout_s: how long a replica may take to load a model.
        most_kept_byte_size: bytes of requests to load that are kept for replicas that join later.
        wall_ms: the time of day.
        shared: where routers keep the desired state together; None for this router's own.

    Attributes:
        wanted: the desired state, by model.
        revision: of the desired state: the highest of its wishes.
    """

    def __init__(
        self,
        view: View,
        prober: Prober,
        load_timeout_s: float,
        most_kept_byte_size: int = 1 << 28,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        shared: WishFile | None = None,
    ) -> None:
        self._view = view
        self._prober = prober
        self._load_timeout_s = load_timeout_s
        self._most_kept = most_kept_byte_size
        self._wall_ms = wall_ms
        self._shared = shared
        self._shared_fault = ""
        self._last_revision = 0
        self._change_count = 0
        self._bringing: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self._idle = asyncio.Event()
        self.wanted: dict[str, Wanted] = {}
        self.revision = 0

    async def index(self, body: bytes) -> list[Json]:
        """The rows of all replicas as one: a version is READY where one has it ready.

        Args:
            body: of the request for the index.

        Raises:
            TritonError: no replica answers.
        """
        answers = await self._ask_all("POST", "/v2/repository/index", body)
        return merge_indexes([answer for _, answer in answers])

    async def statistics(self, model: str = "", version: str = "") -> Json:
        """The statistics of all replicas that have a model, added up.

        Raises:
            TritonError: no replica has it, or none answers.
        """
        path = "/v2/models/stats"
        if model:
            path = f"/v2/models/{quote(model, safe='')}{f'/versions/{version}' if version else ''}/stats"
        having = [replica for replica in self._reachable() if not model or replica.has(model, version)]
        if model and not having:
            raise InvalidArg(f"requested model '{model}' is not available")
        answers = await self._ask_all("GET", path, None, having)
        return {
            "model_stats": merge_statistics([row for _, answer in answers for row in answer["model_stats"]])
        }

    async def change(self, model: str, action: str, body: bytes) -> None:
        """Load or unload a model on all replicas that are ready; returns when all have done it.

        Args:
            model: its name.
            action: `load` or `unload`.
            body: of the request.

        Raises:
            TritonError: a replica has refused, or does not answer; the text says what each that failed says.
        """
        replicas = [replica for replica in self._view if replica.is_ready and replica.is_member]
        if not replicas:
            raise Unavailable(self._view.why_not_ready() or "no replica can be reached")
        self._under_way += 1
        try:
            await self.look_at_shared()  # so that this wish is the latest
            await self._change(model, Wanted(action, body, self._next_revision()), replicas)
        finally:
            self._under_way -= 1
            self._idle.set()

    async def look_at_shared(self) -> None:
        """Take up what other routers were told.

        Raises:
            Unavailable: the file cannot be read.
        """
        if self._shared is not None:
            self._take_up(await asyncio.to_thread(self._shared.read))

    async def follow_shared(self, every_s: float) -> None:
        """Take up what other routers are told, until cancelled."""
        while True:
            try:
                await self.look_at_shared()
                self._shared_fault = ""
            except TritonError as exc:
                if exc.message != self._shared_fault:
                    self._shared_fault = exc.message
                    _log.warning("%s", exc.message)
            await asyncio.sleep(every_s)

    def _take_up(self, wishes: Mapping[str, Wanted]) -> None:
        later = {
            model: wanted
            for model, wanted in wishes.items()
            if model not in self.wanted or self.wanted[model].revision < wanted.revision
        }
        for model, wanted in later.items():
            _log.info("model '%s' is wanted by revision %d: %s", model, wanted.revision, wanted.action)
            self._keep(model, wanted)
        # Replicas have been told by the router that was asked. Those with revisions are told again, in case
        # that it was stopped meanwhile: what they have met already changes nothing.
        for replica in self._view if later else ():
            if replica.is_ready and replica.is_member and self._prober.client(replica) is not None:
                task = asyncio.get_running_loop().create_task(self._bring(replica, later))
                self._bringing.add(task)
                task.add_done_callback(self._bringing.discard)

    async def _bring(self, replica: Replica, wishes: Mapping[str, Wanted]) -> None:
        for model, wanted in wishes.items():
            if self.wanted.get(model) == wanted:
                await self._catch_up_with(replica, model, wanted)

    async def idle(self) -> None:
        """Return when no load or unload is under way; there are no new ones."""
        while self._under_way:
            self._idle.clear()
            await self._idle.wait()

    def _next_revision(self) -> int:
        """A revision above all before; of routers that do not know each other, the later has the higher."""
        met = max((replica.revision for replica in self._view), default=0)  # with clocks that may be ahead
        self._last_revision = max(max(self._last_revision, self.revision, met) + 1, self._wall_ms())
        return self._last_revision

    async def _change(self, model: str, wanted: Wanted, replicas: Sequence[Replica]) -> None:
        outcomes = await asyncio.gather(*(self._apply(each, model, wanted) for each in replicas))
        if any(isinstance(error, _Outdated) for error in outcomes):  # by a clock that is ahead, or just now
            wanted = replace(wanted, revision=self._next_revision())
            outcomes = await asyncio.gather(*(self._apply(each, model, wanted) for each in replicas))
        failed = [
            (replica, error) for replica, error in zip(replicas, outcomes, strict=True) if error is not None
        ]
        fault: TritonError | None = None
        if len(failed) < len(replicas):
            self._keep(model, wanted)
            fault = await self._share(model, wanted)
        await asyncio.gather(*(self._look(replica, model) for replica in replicas))
        if failed:
            raise _joined(failed, len(replicas))
        if fault is not None:
            raise fault

    async def _share(self, model: str, wanted: Wanted) -> TritonError | None:
        """Tell other routers; the reason why they are not told, if they are not."""
        if self._shared is None:
            return None
        try:
            self._take_up(await asyncio.to_thread(self._shared.keep, model, wanted))
        except TritonError as exc:
            _log.error("%s", exc.message)
            return Unavailable(
                f"the replicas have done it ({wanted.action} of model '{model}'), but other routers will not "
                f"know of it: {exc.message}"
            )
        return None

    async def everywhere(self, method: str, path: str, body: bytes) -> Json:
        """Have all replicas do the same; the answer of one of them.

        Raises:
            TritonError: one has refused, or does not answer.
        """
        answers = await self._ask_all(method, path, body, may_fail=False)
        return answers[0][1]

    async def catch_up(self, replica: Replica) -> None:
        """Bring a replica that joins to the desired state; what it refuses is logged."""
        met: dict[str, int] = {}
        while True:  # what is wanted meanwhile reaches it, too
            count = self._change_count
            for model, wanted in sorted(self.wanted.items(), key=lambda item: item[1].revision):
                if met.get(model) != wanted.revision:
                    met[model] = wanted.revision
                    await self._catch_up_with(replica, model, wanted)
            if count == self._change_count:
                return

    async def _catch_up_with(self, replica: Replica, model: str, wanted: Wanted) -> None:
        error = await self._apply(replica, model, wanted)
        if error is not None:
            _log.warning(
                "replica '%s' does not %s model '%s' as the others did: %s",
                replica.name,
                wanted.action,
                model,
                error.message,
            )

    def _keep(self, model: str, wanted: Wanted) -> None:
        before = self.wanted.get(model)
        if before is not None and before.revision > wanted.revision:
            return  # a later wish was met sooner
        self.revision = max(self.revision, wanted.revision)
        self._change_count += 1
        self.wanted[model] = wanted
        size = sum(len(each.body) for each in self.wanted.values())
        if size > self._most_kept and self._shared is None:
            del self.wanted[model]
            _log.warning(
                "the request to load model '%s' has %d bytes: replicas that join later will not be sent it",
                model,
                len(wanted.body),
            )

    async def _apply(self, replica: Replica, model: str, wanted: Wanted) -> TritonError | None:
        client = self._prober.client(replica)
        if client is not None:
            # A large body is read on a thread in many short steps, between which the loop runs.
            if len(wanted.body) > _LARGE:
                desired = await asyncio.to_thread(desired_model, model, wanted)
            else:
                desired = desired_model(model, wanted)
            if desired is not None:
                return await self._apply_by_service(replica, client, desired)
        path = f"/v2/repository/models/{quote(model, safe='')}/{wanted.action}"
        try:
            status, answer = await self._prober.ask(
                replica.place, "POST", path, wanted.body, self._load_timeout_s
            )
        except _FAULTS as exc:
            return Unavailable(f"it does not answer: {exc or type(exc).__name__}")
        return None if status == 200 else _error(status, answer)

    async def _apply_by_service(
        self, replica: Replica, client: ReplicaClient, desired: DesiredModel
    ) -> TritonError | None:
        try:
            response = await client.apply(ApplyRequest(models=[desired]), self._load_timeout_s)
        except (ReplicaCallError, TimeoutError) as exc:
            return Unavailable(f"it does not answer: {exc or type(exc).__name__}")
        (outcome,) = response.models
        replica.revision = max(replica.revision, outcome.revision)
        if not outcome.code:
            return None
        if outcome.revision > desired.revision:
            return _Outdated(outcome.message)
        return TritonError.with_code(_CODE_OF.get(outcome.code, ErrorCode.UNAVAILABLE), outcome.message)

    async def _look(self, replica: Replica, model: str) -> None:
        """See at once what a change has come to: the next request may be for it."""
        try:
            await self._prober.look(replica, model)
        except _FAULTS as exc:
            _log.debug("replica '%s' does not answer: %s", replica.name, exc)

    def _reachable(self) -> list[Replica]:
        now_s = self._view.now_s()
        return [replica for replica in self._view if replica.takes(now_s)]

    async def _ask_all(
        self,
        method: str,
        path: str,
        body: bytes | None,
        replicas: Sequence[Replica] | None = None,
        may_fail: bool = True,
    ) -> list[tuple[Replica, Json]]:
        """Ask several replicas the same, side by side; those that answer well, with their answers.

        Raises:
            TritonError: all fail, or one where none may.
        """
        asked = self._reachable() if replicas is None else replicas
        if not asked:
            raise Unavailable(self._view.why_not_ready() or "no replica can be reached")

        async def ask(replica: Replica) -> Json | TritonError:
            try:
                status, answer = await self._prober.ask(replica.place, method, path, body)
            except _FAULTS as exc:
                return Unavailable(f"it does not answer: {exc or type(exc).__name__}")
            if status != 200:
                return _error(status, answer)
            try:
                return orjson.loads(answer) if answer else None
            except orjson.JSONDecodeError as exc:
                return Unavailable(f"its answer cannot be read: {exc}")

        calls: list[Coroutine[None, None, Json]] = [ask(replica) for replica in asked]
        answers = list(zip(asked, await asyncio.gather(*calls), strict=True))
        failed = [(replica, answer) for replica, answer in answers if isinstance(answer, TritonError)]
        if failed and (len(failed) == len(answers) or not may_fail):
            raise _joined(failed, len(answers))
        return [(replica, answer) for replica, answer in answers if not isinstance(answer, TritonError)]


def desired_model(model: str, wanted: Wanted) -> DesiredModel | None:
    """A wish as the service `Replica` takes it; None for one that the replica refuses in its own words."""
    try:
        if wanted.action == "load":
            asked = load_parameters(wanted.body)
            return DesiredModel(
                name=model,
                action=DesiredModel.LOAD,
                revision=wanted.revision,
                config=asked.config,
                files=asked.files,
                force=asked.force,
            )
        parameters = orjson.loads(wanted.body).get("parameters", {}) if wanted.body else {}
        return DesiredModel(
            name=model,
            action=DesiredModel.UNLOAD,
            revision=wanted.revision,
            unload_dependents=parameters.get("unload_dependents") is True,
        )
    except (TritonError, ValueError, AttributeError):
        return None


def merge_indexes(indexes: Iterable[Sequence[Json]]) -> list[Json]:
    """The rows of several indexes, one for each version: the best state that it has anywhere."""
    rows: dict[tuple[str, str], Json] = {}
    for index in indexes:
        for row in index:
            key = str(row["name"]), str(row.get("version", ""))
            before = rows.get(key)
            if before is None or (row.get("state") == "READY" and before.get("state") != "READY"):
                rows[key] = row
    with_versions = {name for name, version in rows if version}
    return [row for (name, version), row in sorted(rows.items()) if version or name not in with_versions]


def merge_statistics(rows: Iterable[Json]) -> list[Json]:
    """Rows of `model_stats`, those of one version added up: counters are summed, moments the latest."""
    merged: dict[tuple[str, str], Json] = {}
    for row in rows:
        key = str(row["name"]), str(row["version"])
        merged[key] = row if key not in merged else _sum(merged[key], row)
    return [merged[key] for key in sorted(merged)]


def _sum(one: Json, other: Json, key: str = "") -> Json:
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            name: _sum(one[name], other[name], name)
            if name in one and name in other
            else {**other, **one}[name]
            for name in {**one, **other}
        }
    if isinstance(one, list) and isinstance(other, list):
        return _sum_rows(one, other)
    if isinstance(one, int) and isinstance(other, int) and not isinstance(one, bool):
        return one + other if key not in _MOMENTS else max(one, other)
    return one


_MOMENTS = frozenset(("last_inference",))
_IDENTITY = ("batch_size", "type", "id")
"""What tells rows of one list apart; the rest of a row is counted."""


def _sum_rows(one: list[Json], other: list[Json]) -> list[Json]:
    """Lists of rows, such as those of `batch_stats`, of which those with the same `_IDENTITY` are added."""
    rows: dict[Json, Json] = {}
    for row in (*one, *other):
        identity = tuple((name, row[name]) for name in _IDENTITY if isinstance(row, dict) and name in row)
        if not identity:
            return [*one, *other]
        rows[identity] = row if identity not in rows else {**_sum(rows[identity], row), **dict(identity)}
    return list(rows.values())


def _error(status: int, answer: bytes) -> TritonError:
    try:
        text = str(orjson.loads(answer)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        text = f"status {status}"
    return TritonError.with_code(_CODES.get(status, ErrorCode.UNKNOWN), text)


def _joined(failed: Sequence[tuple[Replica, TritonError]], count: int) -> TritonError:
    """One error for several; where all say the same, it is that."""
    texts = {error.message for _, error in failed}
    code = failed[0][1].code
    if len(texts) == 1 and len(failed) == count:
        return TritonError.with_code(code, texts.pop())
    said = "; ".join(f"replica '{replica.name}': {error.message}" for replica, error in failed)
    return TritonError.with_code(code, f"{len(failed)} of {count} replicas failed: {said}")
