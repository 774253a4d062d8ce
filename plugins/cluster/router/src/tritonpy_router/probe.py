"""Asks each replica whether it is ready, what it has and how busy it is, for as long as it is a member.

It asks over HTTP what every server of the protocol answers, so that a replica may be any of them. One that
offers to tell of itself (`replica_watch.py`) is not asked while it does.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from tritonpy_router.model_facts import ModelFacts, facts_of
from tritonpy_router.replica import Place, Replica
from tritonpy_router.replica_client import ReplicaClient
from tritonpy_router.replica_watch import ReplicaWatch, Report
from tritonpy_router.view import View

_log = logging.getLogger("tritonpy.router")

_ANSWER_S = 2.0
_MISSES = 3
"""Answers in a row that a replica may fail to give before it counts as gone."""
_INDEX_EVERY = 4
"""Looks at the index, in looks at readiness; between them it is asked for only when readiness has changed."""
_CONFIGS_AT_ONCE = 8
"""Configurations that are read again with each look at the index."""


class Prober:
    """The looks at all replicas; on the loop only.

    Args:
        view: is told what they say.
        every_s: between two looks at one replica.
        tls: how their HTTP ports are encrypted; None for not.
        headers: sent with each question, such as the keys of restricted calls.
        on_hung: called with a replica that takes connections and answers nothing.
        on_change: called when another replica may have requests, or has other models.
        catch_up: awaited with each replica that has become ready, before it gets requests.
        client: makes a client of the service `Replica` of one; None where it is known to have none.
    """

    def __init__(
        self,
        view: View,
        every_s: float,
        tls: ssl.SSLContext | None,
        headers: dict[str, str],
        on_hung: Callable[[Replica], None],
        on_change: Callable[[], None],
        catch_up: Callable[[Replica], Awaitable[None]],
        client: Callable[[Replica], ReplicaClient | None] = lambda replica: None,
    ) -> None:
        self._view = view
        self._every_s = every_s
        self._tls = tls
        self._headers = headers
        self._on_hung = on_hung
        self._on_change = on_change
        self._catch_up = catch_up
        self._client = client
        self._tasks: dict[Replica, list[asyncio.Task[None]]] = {}
        self._watches: dict[Replica, ReplicaWatch] = {}
        self._turns: dict[Replica, int] = {}
        self._session: aiohttp.ClientSession | None = None

    def add(self, replica: Replica) -> None:
        """Begin to ask a replica."""
        loop = asyncio.get_running_loop()
        tasks = self._tasks[replica] = [loop.create_task(self._watch(replica))]
        client = self._client(replica)
        if client is not None:
            watch = self._watches[replica] = ReplicaWatch(replica, client, self._view.now_s, self._take)
            tasks.append(loop.create_task(watch.run()))

    def remove(self, replica: Replica) -> None:
        """Ask it no more."""
        self._watches.pop(replica, None)
        self._turns.pop(replica, None)
        for task in self._tasks.pop(replica, ()):
            task.cancel()

    def client(self, replica: Replica) -> ReplicaClient | None:
        """The service of a replica that tells of itself now; None for one that does not."""
        watch = self._watches.get(replica)
        return None if watch is None or replica.heard_s is None else watch.client

    async def close(self) -> None:
        """Ask nobody any more."""
        tasks = [task for each in self._tasks.values() for task in each]
        self._tasks.clear()
        self._watches.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def look(self, replica: Replica, changed: str = "") -> None:
        """Ask a replica for everything now.

        Args:
            replica: is asked.
            changed: a model whose configuration may be another one; "" for none.

        Raises:
            aiohttp.ClientError, TimeoutError, ValueError: it does not answer, or not in JSON.
        """
        was_ready = replica.is_ready
        status, body = await self.ask(replica.place, "GET", "/v2/health/ready")
        is_ready = takes_requests(status, body)
        if is_ready and not was_ready:
            await self._catch_up(replica)
        if is_ready:
            await self._read_index(replica, changed)
        if is_ready != was_ready:
            self._note_readiness(replica, is_ready, _reason(body))

    def _note_readiness(self, replica: Replica, is_ready: bool, reason: str) -> None:
        replica.is_ready = is_ready
        replica.unready = "" if is_ready else reason
        if is_ready:
            replica.ejection.answered()
            _log.info("replica '%s' is ready, with %d models", replica.name, len(replica.models))
        else:
            _log.warning("replica '%s' %s", replica.name, replica.unready)
        self._on_change()

    async def ask(
        self, place: Place, method: str, path: str, body: bytes | None = None, timeout_s: float = _ANSWER_S
    ) -> tuple[int, bytes]:
        """Ask a replica something.

        Raises:
            aiohttp.ClientError, TimeoutError: it does not answer.
        """
        if "/../" in path or "/./" in path:
            raise ValueError(f"path '{path}' leaves its place")
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0)  # loads take long, and must not keep probes waiting
            self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        host = f"[{place.host}]" if ":" in place.host else place.host
        scheme = "http" if self._tls is None else "https"
        async with self._session.request(
            method,
            URL(f"{scheme}://{host}:{place.http_port}{path}", encoded=True),
            data=body,
            ssl=True if self._tls is None else self._tls,
            timeout=aiohttp.ClientTimeout(total=timeout_s),
        ) as response:
            return response.status, await response.read()

    async def _watch(self, replica: Replica) -> None:
        misses = looks = 0
        watch = self._watches.get(replica)
        if watch is not None:  # which knows more
            with suppress(TimeoutError):
                await asyncio.wait_for(watch.tried.wait(), _ANSWER_S)
        while True:
            if replica.heard_s is not None and not replica.is_suspect(self._view.now_s()):
                misses = 0
                await asyncio.sleep(self._every_s)
                continue
            try:
                if looks % _INDEX_EVERY == 0 or not replica.is_ready:
                    await self.look(replica)
                else:
                    await self._ask_whether_ready(replica)
                looks += 1
                misses = 0
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as exc:
                misses += 1
                self._missed(replica, exc, misses)
            await asyncio.sleep(self._every_s)

    def _missed(self, replica: Replica, exc: Exception, misses: int) -> None:
        """A replica has not answered a question, nor the ones before it, `misses` in all."""
        # One that has closed its port may still answer what it has accepted.
        cause = exc.os_error if isinstance(exc, aiohttp.ClientConnectorError) else exc
        refuses = isinstance(cause, ConnectionRefusedError)
        reason = f"does not answer: {exc or type(exc).__name__}"
        if misses == _MISSES and not refuses:
            self._on_hung(replica)
            if (watch := self._watches.get(replica)) is not None:
                watch.client.drop()
        if replica.is_ready and (misses >= _MISSES or refuses):
            _log.warning("replica '%s' %s", replica.name, reason)
            self._view.gone(replica, reason)
            self._on_change()
        elif not replica.is_ready:
            replica.unready = reason

    async def _take(self, replica: Replica, report: Report) -> None:
        """See what a replica has told of itself."""
        if replica.server_id != report.server_id:
            if replica.server_id and replica.is_ready:  # so quickly that no question met it while it was gone
                self._view.gone(replica, "was started anew")
                self._on_hung(replica)
            replica.server_id = report.server_id
        if report.is_taking and not replica.is_ready:
            await self._catch_up(replica)
            report.is_taken = False  # one that was given up has no models here
        if report.models is not None and report.is_taking and not report.is_taken:
            report.is_taken = True
            models = dict(report.models)
            has_changed = models != replica.models
            known = {name: replica.facts[name] for name in models if name in replica.facts}
            replica.have(models, known | report.facts)
            if has_changed:
                self._on_change()
        if report.is_taking != replica.is_ready:
            self._note_readiness(replica, report.is_taking, report.unready)

    async def _ask_whether_ready(self, replica: Replica) -> None:
        status, body = await self.ask(replica.place, "GET", "/v2/health/ready")
        if not takes_requests(status, body):
            await self.look(replica)

    async def _read_index(self, replica: Replica, anew: str) -> None:
        status, body = await self.ask(replica.place, "POST", "/v2/repository/index", b'{"ready":true}')
        if status != 200:
            raise ValueError(f"its index is not to be had: {_reason(body)}")
        models: dict[str, set[str]] = {}
        for row in orjson.loads(body):
            models.setdefault(str(row["name"]), set()).add(str(row.get("version", "")))
        new = {name: frozenset(versions) for name, versions in models.items()}
        changed = [name for name in new if new[name] != replica.models.get(name) or name == anew]
        facts = {name: replica.facts[name] for name in new if name in replica.facts}
        for name in dict.fromkeys((*changed, *self._in_turn(replica, sorted(new)))):
            facts[name] = await self._read_facts(replica, name, facts.get(name))
        if new != replica.models or facts != replica.facts:
            replica.have(new, facts)
            self._on_change()

    def _in_turn(self, replica: Replica, names: Sequence[str]) -> Sequence[str]:
        """Models whose configurations are read again: an index does not tell that one was loaded anew."""
        at = self._turns.get(replica, 0)
        if at >= len(names):
            at = 0
        self._turns[replica] = at + _CONFIGS_AT_ONCE
        return names[at : at + _CONFIGS_AT_ONCE]

    async def _read_facts(self, replica: Replica, model: str, known: ModelFacts | None) -> ModelFacts:
        status, body = await self.ask(replica.place, "GET", f"/v2/models/{quote(model, safe='')}/config")
        if status != 200:  # it has just gone, or is about to come
            return known or ModelFacts()
        return facts_of(orjson.loads(body))


def takes_requests(status: int, body: bytes) -> bool:
    """Whether a server takes requests for the models that it has, by its answer about readiness.

    One that waits for models takes those for others: ours names them. One that is starting or stopping names
    none. What Triton answers says nothing of that: which models are ready decides.
    """
    if status == 200 or not body:
        return True
    try:
        models = orjson.loads(body).get("models")  # left out where reasons are for those with a key
        return models is None or bool(models)
    except (orjson.JSONDecodeError, AttributeError):
        return True


def _reason(body: bytes) -> str:
    """The text of an error, as a part of a sentence."""
    try:
        found = orjson.loads(body)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "is not ready"
    return f"is not ready: {found}"
