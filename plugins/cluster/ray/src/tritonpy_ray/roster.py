"""The members that a fleet has now: looked at, and what routers are told of servers; without Ray."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from tritonpy.errors import Unavailable
from tritonpy_router.engines import Row

from tritonpy_ray.looks import Look
from tritonpy_ray.members import GoneError, Launcher, Member, UnreachableError

_log = logging.getLogger("tritonpy.ray")

LOOK_S = 1.0
"""How long a round of looks waits for answers; one that comes later counts in the next."""


class Roster:
    """All members of one fleet; on the loop only.

    Args:
        launcher: asks their actors.
        now_s: the clock.
        save: keeps what routers are told, before they are.

    Attributes:
        members: by name.
        told: what routers are told, a line for each server.
        revision: of that.
        is_over: there are no more looks.
    """

    def __init__(
        self, launcher: Launcher, now_s: Callable[[], float], save: Callable[[], Awaitable[None]]
    ) -> None:
        self._launcher = launcher
        self._now_s = now_s
        self._save = save
        self._looked = asyncio.Event()
        self._changed = asyncio.Event()
        self.members: dict[str, Member] = {}
        self.told: tuple[str, ...] = ()
        self.revision = 0
        self.is_over = False

    def restore(self, members: Iterable[Member], revision: int) -> None:
        """Take over the members that an earlier controller had."""
        self.members = {member.name: member for member in members}
        self.revision = revision
        self.told = self.lines()

    def close(self) -> None:
        """There are no more looks: who waits for one gives up."""
        self.is_over = True
        self._looked.set()

    # What is.

    def servers(self) -> list[Member]:
        """All servers, also those that leave; the oldest first."""
        return [member for member in self.members.values() if member.node is None]

    def routers(self) -> list[Member]:
        """All routers, also those that leave; the oldest first."""
        return [member for member in self.members.values() if member.node is not None]

    def live(self) -> list[Member]:
        """Servers that count; the oldest first."""
        now_s = self._now_s()
        return [each for each in self.servers() if not each.is_leaving and not each.is_lost(now_s)]

    def lost(self) -> list[Member]:
        """Servers that ought to count, and do not answer."""
        now_s = self._now_s()
        return [each for each in self.servers() if not each.is_leaving and each.is_lost(now_s)]

    def uses_all(self, router: Member) -> bool:
        """Whether a router listens, and sends requests to each server that counts and serves."""
        names = {member.name for member in self.live() if member.is_up}
        return router.is_up and router.look is not None and names <= router.look.up

    def are_routed(self) -> bool:
        """Whether there are routers, and all of them use all servers; those that are lost do not count."""
        now_s = self._now_s()
        routers = [each for each in self.routers() if not each.is_leaving and not each.is_lost(now_s)]
        return bool(routers) and all(self.uses_all(each) for each in routers)

    def is_taken(self, server: Member) -> bool:
        """Whether a server serves, and all routers that answer send it requests."""
        return server.is_up and all(server.name in each.look.up for each in self._asked() if each.look)

    def is_forgotten(self, server: Member) -> bool:
        """Whether no router that answers has anything on a server any more."""
        return all(server.name not in each.look.known for each in self._asked() if each.look)

    def rows(self) -> list[Row]:
        """A row for each member."""
        return [self._row(member) for member in [*self.servers(), *self.routers()]]

    def forget(self, member: Member) -> None:
        """A member is no more."""
        if member.asked is not None:
            member.asked.cancel()
        self.members.pop(member.name, None)

    # Looks.

    async def look_at_all(self, *, with_load: bool) -> None:
        """Ask all actors how they are, and tell routers what has changed."""
        members = list(self.members.values())
        for member in members:
            # One question at a time: those to an actor that waits for a machine would add up.
            if member.asked is None:
                member.asked = asyncio.ensure_future(self._launcher.look(member.name, with_load))
        if members:
            await asyncio.wait([each.asked for each in members if each.asked is not None], timeout=LOOK_S)
        for member in members:
            if member.asked is not None and member.asked.done():
                asked, member.asked = member.asked, None
                self._take(member, asked)
        await self.tell()
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()

    async def next_look(self) -> None:
        """Return after the next look at all.

        Raises:
            Unavailable: there will be none.
        """
        if not self.is_over:
            await self._looked.wait()
        if self.is_over:
            raise Unavailable("the fleet is going down")

    def _take(self, member: Member, asked: asyncio.Future[Look]) -> None:
        try:
            look = asked.result()
        except GoneError:
            member.is_gone = True
        except UnreachableError as exc:
            _log.warning("'%s' does not answer: %s", member.name, exc)
        else:
            if look.load is None and member.look is not None:
                look = replace(
                    look, load=member.look.load
                )  # its counters are those of the last look, at least
            member.look, member.seen_s = look, self._now_s()
            if member.node is None:
                member.line = _line(member.name, look)

    def _asked(self) -> list[Member]:
        """Routers whose word counts."""
        now_s = self._now_s()
        return [each for each in self.routers() if each.is_up and not each.is_lost(now_s)]

    def _row(self, member: Member) -> Row:
        look = member.look
        ports = look.ports if look is not None else {}
        if member.is_leaving:
            state = "leaving"
        elif member.is_lost(self._now_s()):
            state = "lost"
        elif look is None:
            state = "waiting"
        elif look.state == "up" and member.node is None and self.is_taken(member):
            state = "ready"
        else:
            state = look.state
        return {
            "name": member.name,
            "host": look.host if look is not None else None,
            "pid": look.pid if look is not None else None,
            "state": state,
            "http": ports.get("http"),
            "grpc": ports.get("grpc"),
            "metrics": ports.get("metrics"),
            "restarts": look.restart_count if look is not None else 0,
        }

    # What routers are told.

    async def tell(self) -> None:
        """Tell routers the servers, if these are others than they know."""
        lines = self.lines()
        if lines == self.told:
            return
        self.told = lines
        self.revision += 1
        await self._save()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changes(self, revision: int, wait_s: float) -> tuple[int, tuple[str, ...]]:
        """What routers are told: see `Controller.members`."""
        if revision == self.revision:
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return self.revision, self.told

    def lines(self) -> tuple[str, ...]:
        """A line for each server that listens and is not about to end."""
        return tuple(
            each.line for each in self.servers() if each.line and not each.is_leaving and not each.is_gone
        )


def _line(name: str, look: Look) -> str:
    """What a router is told of a server; "" while it does not listen."""
    if look.state != "up":
        return ""
    host = f"[{look.host}]" if ":" in look.host else look.host
    ports = [look.ports[service] for service in ("http", "grpc", "replica") if service in look.ports]
    return f"{name}={host}:{':'.join(map(str, ports))}"
