"""Several servers on this machine: started, watched, restarted, scaled and replaced one by one."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tritonpy.errors import Unavailable

from tritonpy_router.replica import Place

_log = logging.getLogger("tritonpy.router")

REPLICA = "replica"
"""The frontend of servers that routers ask, in their log."""

_STARTED = re.compile(rb"Started (?:frontend ')?(\w+(?: \w+)?)'? at [^\s\"]*:(\d+)")
_SERVICES = ("HTTPService", "GRPCInferenceService", "Metrics Service", REPLICA)
_LONGEST_LINE = 1 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_KILL_AFTER_S = 10.0  # what a server may take beyond its own exit timeout


@dataclass(slots=True, eq=False)
class Member:
    """One server of a fleet.

    Attributes:
        name: of its replica.
        process: while it runs.
        awaited: services whose ports are to be known before it counts as up.
        ports: that it listens on, by what its log calls them.
        restart_count: ends that nobody had asked for.
        is_wanted: it is started anew when it ends.
        has_started: set when its ports are known, or it has ended.
        task: watches it.
    """

    name: str
    awaited: frozenset[str] = frozenset()
    process: Process | None = None
    ports: dict[str, int] = field(default_factory=dict)
    restart_count: int = 0
    is_wanted: bool = True
    has_started: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """Its ports are known: its models are loaded."""
        return self.awaited <= self.ports.keys()


class Fleet:
    """Servers of one command line; on the loop only. Satisfies `membership.Membership`.

    Args:
        flags: of `corectl serve`, without ports.
        count: of servers.
        exit_timeout_s: how long a server may take to end.
        echo: writes a line of a server's log.
        taken: waits until requests reach a server of a name.
        replica_flags: with which servers offer the service `Replica`, where they do; asked before each start.
    """

    def __init__(
        self,
        flags: Sequence[str],
        count: int,
        exit_timeout_s: float,
        echo: Callable[[str, bytes], None],
        taken: Callable[[str], Awaitable[None]],
        *,
        replica_flags: Callable[[], Sequence[str]] | None = None,
    ) -> None:
        replica = () if replica_flags is None else (REPLICA,)
        self._awaited = frozenset(("HTTPService", "GRPCInferenceService", *replica))
        self._replica_flags = replica_flags
        self._flags = list(flags)
        self._count = count
        self._exit_timeout_s = exit_timeout_s
        self._echo = echo
        self._taken = taken
        self._is_stopping = False
        self._number = 0
        self._changed = asyncio.Event()
        self._change = asyncio.Lock()
        self.members: list[Member] = []

    async def start(self) -> None:
        """Start all servers; returns before they have loaded their models."""
        for _ in range(self._count):
            self._add()

    async def changes(self) -> AsyncIterator[Sequence[Place]]:
        """The servers whose ports are known, now and after each change."""
        while True:
            changed = self._changed
            yield [
                Place(
                    member.name,
                    "127.0.0.1",
                    member.ports["HTTPService"],
                    member.ports["GRPCInferenceService"],
                    member.ports.get(REPLICA, 0),
                )
                for member in self.members
                if member.is_up and member.is_wanted
            ]
            await changed.wait()

    async def scale(self, count: int) -> None:
        """Have so many servers, of which the newest go first.

        Returns when those that come serve, or have ended before they did, and those that go have ended.
        """
        async with self._change:
            coming = [self._add() for _ in range(count - len(self.members))]
            for member in coming:
                await member.has_started.wait()
            going = self.members[count:]
            await asyncio.gather(*(self._end(member) for member in reversed(going)))

    async def update(self) -> str:
        """Replace the servers one by one, each when its successor serves.

        Returns:
            Why it was given up: a successor has ended before it served; "" if all were replaced.
        """
        async with self._change:
            for member in list(self.members):
                successor = self._add()
                successor.is_wanted = False  # one that cannot serve is not started again and again
                await successor.has_started.wait()
                if not successor.is_up:
                    await self._end(successor)
                    return f"server '{successor.name}' ended before it served; the others were not replaced"
                successor.is_wanted = True
                self._tell()
                await self._taken(successor.name)
                await self._end(member)
        return ""

    async def stop(self) -> None:
        """End all servers, side by side; none is started any more."""
        self._is_stopping = True
        await asyncio.gather(*(self._end(member) for member in list(self.members)))

    def rows(self) -> list[dict[str, Any]]:  # Any: JSON
        """What `corectl cluster status` shows."""
        return [
            {
                "name": member.name,
                "pid": None if member.process is None else member.process.pid,
                "state": "up" if member.is_up else "starting" if member.process is not None else "down",
                "http": member.ports.get("HTTPService"),
                "grpc": member.ports.get("GRPCInferenceService"),
                "metrics": member.ports.get("Metrics Service"),
                "restarts": member.restart_count,
            }
            for member in self.members
        ]

    def _add(self) -> Member:
        if self._is_stopping:
            raise Unavailable("the fleet is stopping")
        self._number += 1
        member = Member(f"server-{self._number}", self._awaited)
        self.members.append(member)
        member.task = asyncio.get_running_loop().create_task(self._keep(member))
        return member

    async def _keep(self, member: Member) -> None:
        """Run a server, again whenever it ends and was not asked to."""
        pause_s = _FIRST_PAUSE_S
        while True:
            await self._run(member)
            was_up = member.is_up
            member.ports.clear()
            member.has_started.set()
            self._tell()
            if not member.is_wanted:
                return
            member.restart_count += 1
            pause_s = _FIRST_PAUSE_S if was_up else min(2 * pause_s, _LONGEST_PAUSE_S)
            _log.warning("server '%s' has ended; it is started again in %g s", member.name, pause_s)
            await asyncio.sleep(pause_s)
            if not member.is_wanted:
                return

    async def _run(self, member: Member) -> None:
        """Run a server until it ends."""
        try:
            replica_flags = () if self._replica_flags is None else self._replica_flags()
            command = [sys.executable, "-m", "tritonpy.cli.main", "serve", *self._flags, *replica_flags]
            process = member.process = await asyncio.create_subprocess_exec(
                *command, stderr=PIPE, limit=_LONGEST_LINE, start_new_session=True
            )
        except OSError as exc:  # no room for a file or a process now
            _log.error("server '%s' cannot be started: %s", member.name, exc)
            return
        assert process.stderr is not None  # as asked for
        try:
            async for line in process.stderr:
                self._echo(member.name, line)
                if len(member.ports) < len(_SERVICES) and (found := _STARTED.search(line)):
                    self._note_port(member, found[1].decode(), int(found[2]))
            status = await process.wait()
            if member.is_wanted:
                _log.warning(
                    "server '%s' (pid %d) has ended with status %d", member.name, process.pid, status
                )
        finally:
            member.process = None

    def _note_port(self, member: Member, service: str, port: int) -> None:
        was_up = member.is_up
        if service in _SERVICES:
            member.ports[service] = port
        if member.is_up and not was_up:
            _log.info("server '%s' (pid %d) serves", member.name, member.process.pid if member.process else 0)
            member.has_started.set()
            self._tell()

    async def _end(self, member: Member) -> None:
        """Tell a server to end, and see that it does."""
        member.is_wanted = False
        process, task = member.process, member.task
        if process is not None:
            process.send_signal(signal.SIGTERM)
        if task is not None:
            if process is None:
                task.cancel()  # it waits to be started again
            done, _ = await asyncio.wait((task,), timeout=self._exit_timeout_s + _KILL_AFTER_S)
            if not done and process is not None:
                _log.error("server '%s' does not end and is killed", member.name)
                process.kill()
                await asyncio.wait((task,))
        if member in self.members:  # else it was told to end twice
            self.members.remove(member)
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
