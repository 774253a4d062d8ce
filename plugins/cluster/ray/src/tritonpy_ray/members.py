"""Servers and routers of a fleet, and what starts, asks and ends their actors; without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tritonpy_router.engines import FleetPlan

from tritonpy_ray.looks import Look

LOST_AFTER_S = 10.0
"""Without an answer for so long an actor is lost: another server is started, before Ray starts it again."""


_KEY_LENGTH = 12


class GoneError(Exception):
    """An actor has ended for good."""


class UnreachableError(Exception):
    """An actor does not answer now; it may come back."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster: its id, and its address."""

    id: str
    host: str

    @property
    def key(self) -> str:
        """The part of the id that names of routers have."""
        return self.id[:_KEY_LENGTH]


class Launcher(Protocol):
    """Actors, which have the names of their servers and routers."""

    def nodes(self) -> Awaitable[Sequence[Node]]:
        """The machines that are alive."""

    def names(self) -> Awaitable[Sequence[str]]:
        """The actors of this fleet that have been started and not ended, but the controller."""

    def start_replica(self, name: str, plan: FleetPlan) -> Awaitable[None]:
        """Start a server where its resources are free, or as soon as they are."""

    def start_router(
        self, name: str, plan: FleetPlan, node: Node, ports: Mapping[str, int]
    ) -> Awaitable[None]:
        """Start a router on a machine.

        Args:
            name: of its actor.
            plan: of the fleet.
            node: the machine.
            ports: of the router whose place it is to take, which still listens; empty for none.
        """

    def look(self, name: str, with_load: bool) -> Awaitable[Look]:
        """Ask an actor; waits for as long as that takes.

        Raises:
            GoneError, UnreachableError: it does not answer.
        """

    def stop(self, name: str, limit_s: float) -> Awaitable[None]:
        """End what an actor runs, which answers what it has accepted, and then the actor.

        Args:
            name: of the actor.
            limit_s: how long what it runs may take.
        """

    def kill(self, name: str) -> Awaitable[None]:
        """End an actor at once."""

    def save(self, document: bytes) -> Awaitable[None]:
        """Keep what a new controller has to know."""

    def saved(self) -> Awaitable[bytes | None]:
        """What was kept."""


@dataclass(slots=True, eq=False)
class Member:
    """A server or a router of the fleet.

    Attributes:
        name: of its actor, and of the replica.
        plan: that it was started by.
        node: where a router runs, as `Node.key`; None for servers.
        look: the last answer of its actor.
        seen_s: when that came; None before the first.
        line: of a server, what routers are told; "" while it does not listen.
        is_leaving: it is about to end.
        is_gone: its actor has ended.
        asked: an answer that is waited for.
    """

    name: str
    plan: FleetPlan
    node: str | None = None
    look: Look | None = None
    seen_s: float | None = None
    line: str = ""
    is_leaving: bool = False
    is_gone: bool = False
    asked: asyncio.Future[Look] | None = None

    @property
    def is_up(self) -> bool:
        """It listens: the models of a server are loaded."""
        return self.look is not None and self.look.state == "up"

    def is_lost(self, now_s: float) -> bool:
        """Its actor did answer, and does not any more."""
        return self.seen_s is not None and now_s - self.seen_s > LOST_AFTER_S
