"""What a fleet is to be, against what it is: starts, replaces and ends servers and routers; without Ray."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tritonpy.errors import InvalidArg, Unavailable
from tritonpy_router.engines import FleetChange, FleetPlan, Row, read_plan
from tritonpy_router.secrets import new_token

from tritonpy_ray.autoscale import Autoscaler, Rule
from tritonpy_ray.members import Launcher, Member, Node
from tritonpy_ray.roster import Roster

_log = logging.getLogger("tritonpy.ray")

EVERY_S = 1.0
_FORGOTTEN_S = 600.0
"""How long routers may have sequences on a server that is to end."""
_ROUTER = re.compile(r"router-([^-]+)(?:-(\d+))?")


class Controller:
    """One fleet; on the loop only.

    Args:
        launcher: has the actors.
        plan: of the fleet, where nothing was kept of it.
        now_s: the clock.
        pause: waits.
    """

    def __init__(
        self,
        launcher: Launcher,
        plan: FleetPlan,
        now_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._launcher = launcher
        self._now_s = now_s
        self._pause = pause
        self._plan = plan if plan.replica_token else replace(plan, replica_token=new_token())
        self._count = plan.replica_count
        self._number = 0
        self._roster = Roster(launcher, now_s, self._save)
        self._scaler = self._new_scaler()
        self._change = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Keep the fleet until `down`."""
        await self.restore()
        while not self._roster.is_over:
            try:
                await self.step()
            except Exception:  # it has to go on, whatever the cluster answers
                _log.exception("a round of the controller has failed")
            await self._pause(EVERY_S)

    async def restore(self) -> None:
        """Take over what an earlier controller of this fleet has left."""
        kept = await self._launcher.saved()
        if kept is None:
            await self._save()
            return
        document = json.loads(kept)
        self._plan = read_plan(document["plan"])
        self._count = document["count"]
        self._number = document["number"]
        self._scaler = self._new_scaler()
        lines = {line.partition("=")[0]: line for line in document["lines"]}
        members = [
            Member(
                name,
                self._plan,
                _router_node(name),
                seen_s=self._now_s(),
                line=lines.get(name, ""),
            )
            for name in await self._launcher.names()
        ]
        self._roster.restore(members, document["revision"])
        _log.info("the controller goes on with %d members", len(members))

    async def step(self) -> None:
        """Look at all actors, and do what is needed."""
        await self._roster.look_at_all(with_load=self._plan.follows_load)
        if self._change.locked() or self._roster.is_over:  # an update does what is needed itself
            return
        async with self._change:
            await self._reconcile_replicas()
            await self._reconcile_routers()
            await self._follow_load()

    # For routers.

    async def members(self, revision: int, wait_s: float) -> tuple[int, tuple[str, ...]]:
        """The servers, one text for each as `corectl route --server` takes it.

        Args:
            revision: of those that are known; returns when there are others.
            wait_s: after which it returns anyway.

        Returns:
            Their revision, and the servers.
        """
        return await self._roster.changes(revision, wait_s)

    # For commands.

    def status(self) -> list[Row]:
        """A row for each member."""
        return self._roster.rows()

    async def settle(self) -> None:
        """Return when all servers serve, those too many have ended, and routers listen.

        Raises:
            Unavailable: a server ends before it serves, or takes longer than it may.
        """
        begun_s = self._now_s()
        while not self._is_settled():
            for member in [each for each in self._roster.members.values() if not each.is_leaving]:
                if (why := self._why_not(member, begun_s, member.plan.start_timeout_s)) is not None:
                    raise Unavailable(why)
            await self._roster.next_look()

    async def scale(self, count: int) -> None:
        """Have so many servers; returns when it is so.

        Raises:
            InvalidArg: it is outside of what the load may make of it.
            Unavailable: see `settle`.
        """
        plan = self._plan
        if plan.follows_load and not plan.replica_count <= count <= plan.most_replicas:
            raise InvalidArg(
                f"got {count} servers, expected {plan.replica_count} to {plan.most_replicas}: their number "
                f"follows the load between --replicas and --max-replicas"
            )
        if not plan.follows_load:
            self._plan = replace(plan, replica_count=count)
        self._count = count
        await self._save()
        await self._roster.next_look()
        await self.settle()

    async def update(self, change: FleetChange) -> None:
        """Replace servers, one by one, and then routers.

        A new server is started, and where routers send it requests an old one ends. A new router starts
        beside the old one, on the same ports, and where it uses all servers the old one ends; where ports
        cannot be shared it starts after that.

        Raises:
            Unavailable: a successor does not serve; what has not been replaced yet stays.
        """
        async with self._change:
            plan = change.of(self._plan)
            for old in [member for member in self._roster.servers() if not member.is_leaving]:
                new = await self._add_replica(plan)
                await self._wait_until(partial(self._roster.is_taken, new), new)
                await self._retire(old)
            # So that a router that cannot serve leaves servers as they are now.
            self._plan = replace(plan, router_flags=self._plan.router_flags)
            await self._save()
            if plan.router_flags is not None:
                await self._replace_routers(plan)
                self._plan = plan
                await self._save()

    async def _replace_routers(self, plan: FleetPlan) -> None:
        nodes = {node.key: node for node in await self._launcher.nodes()}
        now_s = self._now_s()
        for old in [each for each in self._roster.routers() if not each.is_leaving]:
            node = nodes.get(old.node or "")
            if node is None or old.is_lost(now_s):  # its node is gone, or is about to be found so
                continue
            look = old.look
            begins_first = look is not None and old.is_up and look.shares_ports
            keeps_ports = old.plan.router_flags == plan.router_flags
            ports = look.ports if look is not None and begins_first and keeps_ports else {}
            if not begins_first:
                await self._stop(old)
            new = await self._add_router(plan, node, ports, _router_number(old.name) + 1)
            await self._wait_until(partial(self._roster.uses_all, new), new)
            if begins_first:
                await self._stop(old)

    async def _wait_until(self, holds: Callable[[], bool], new: Member) -> None:
        """Wait until something holds of a new member, which is given up if it never will.

        Raises:
            Unavailable: it will not.
        """
        begun_s = self._now_s()
        while not holds():
            why = self._why_not(new, begun_s, new.plan.start_timeout_s)
            if why is not None or new.is_gone:
                await self._give_up(new)
                raise Unavailable(f"{why or 'its actor has ended'}; the others were not replaced")
            await self._roster.next_look()

    async def down(self) -> None:
        """End routers, then servers, which answer what they have accepted."""
        self._roster.close()
        async with self._change:
            for task in self._tasks:
                task.cancel()
            for members in (self._roster.routers(), self._roster.servers()):
                await asyncio.gather(*(self._stop(member) for member in members))

    # What is.

    def _wanted(self) -> int:
        return self._count + self._plan.spare_count

    def _is_settled(self) -> bool:
        live, servers = self._roster.live(), self._roster.servers()
        serve = len(live) == len(servers) == self._wanted() and all(each.is_up for each in live)
        return serve and (self._plan.router_flags is None or self._roster.are_routed())

    def _why_not(self, member: Member, begun_s: float, limit_s: float) -> str | None:
        """Why a member will not serve; None if it may."""
        kind = "server" if member.node is None else "router"
        if member.look is not None and member.look.failure:
            return f"{kind} '{member.name}' ended before it served: {member.look.failure.strip()}"
        if self._now_s() - begun_s <= limit_s:
            return None
        if member.look is None and member.node is None:
            needs = (
                ", ".join(f"{name}={amount:g}" for name, amount in member.plan.resources.items()) or "none"
            )
            return (
                f"server '{member.name}' has found no machine in {limit_s:g} s (--start-timeout-secs); "
                f"it needs {needs} (--resource)"
            )
        if not member.is_up:
            return f"{kind} '{member.name}' does not serve after {limit_s:g} s (--start-timeout-secs)"
        if member.node is not None:
            return f"router '{member.name}' listens, and after {limit_s:g} s it does not use every server"
        return f"server '{member.name}' serves, and after {limit_s:g} s not every router uses it"

    # What is to be.

    async def _reconcile_replicas(self) -> None:
        for member in [each for each in self._roster.servers() if each.is_gone]:
            _log.warning("server '%s' has ended for good", member.name)
            del self._roster.members[member.name]
        wanted, live, lost = self._wanted(), self._roster.live(), self._roster.lost()
        # Where many are lost at once, this controller rather cannot reach them: one after the other.
        most = wanted + max(1, self._plan.spare_count) if lost else wanted
        for _ in range(min(wanted - len(live), most - len(live) - len(lost))):
            await self._add_replica(self._plan)
        down = [each for each in live if not each.is_up]
        newest = [each for each in reversed(live) if each.is_up]
        for member in [*down, *newest][: max(0, len(live) - wanted)]:
            self._begin(self._retire(member))
        replaced = sum(each.is_up for each in live) - (wanted - len(lost))
        for member in lost[: max(0, replaced)]:
            _log.warning("server '%s' is lost, and has been replaced", member.name)
            await self._give_up(member)

    async def _reconcile_routers(self) -> None:
        if self._plan.router_flags is None:
            return
        nodes = {node.key: node for node in await self._launcher.nodes()}
        for member in [each for each in self._roster.routers() if each.is_gone or each.node not in nodes]:
            # What is left of it; a router that has ended on a node that lives is started.
            await self._give_up(member)
        staying = [each for each in self._roster.routers() if not each.is_leaving]
        for key in nodes.keys() - {each.node for each in staying}:
            await self._add_router(self._plan, nodes[key], {}, 1)
        # Where a controller was lost in an update there may be two on a node.
        for key in nodes:
            here = [each for each in staying if each.node == key]
            if len(here) > 1 and any(each.is_up for each in here):
                stays = next(each for each in reversed(here) if each.is_up)
                for member in [each for each in here if each is not stays]:
                    self._begin(self._stop(member))

    async def _follow_load(self) -> None:
        if not self._plan.follows_load:
            return
        now_s = self._now_s()
        loads = {
            each.name: each.look.load
            for each in self._roster.servers()
            if each.look is not None and each.look.load is not None
        }
        self._scaler.observe(now_s, loads)
        count = self._scaler.decide(now_s, self._count)
        if count != self._count:
            delay_ms = self._scaler.delay_ms()
            _log.info(
                "from %d to %d servers: requests wait %s ms, %.1f come each second",
                self._count,
                count,
                "-" if delay_ms is None else f"{delay_ms:.1f}",
                self._scaler.rate(),
            )
            self._count = count
            await self._save()

    async def _add_replica(self, plan: FleetPlan) -> Member:
        self._number += 1
        member = Member(f"server-{self._number}", plan)
        self._roster.members[member.name] = member
        await self._save()  # first, so that no number is ever given twice
        await self._launcher.start_replica(member.name, plan)
        return member

    async def _add_router(self, plan: FleetPlan, node: Node, ports: Mapping[str, int], number: int) -> Member:
        here = [_router_number(each.name) for each in self._roster.routers() if each.node == node.key]
        number = max([number, *(each + 1 for each in here)])  # Ray frees names a moment after their actors
        name = f"router-{node.key}" + (f"-{number}" if number > 1 else "")
        member = self._roster.members[name] = Member(name, plan, node.key)
        await self._launcher.start_router(name, plan, node, ports)
        return member

    async def _retire(self, member: Member) -> None:
        """End a server that routers do not use any more: requests of its sequences are still sent there."""
        member.is_leaving = True
        await self._roster.tell()
        begun_s = self._now_s()
        while not self._roster.is_forgotten(member) and not self._roster.is_over:
            if self._now_s() - begun_s > _FORGOTTEN_S:
                _log.warning("server '%s' ends with sequences that have not ended", member.name)
                break
            with contextlib.suppress(Unavailable):  # then `down` ends it, too
                await self._roster.next_look()
        await self._stop(member)

    async def _stop(self, member: Member) -> None:
        member.is_leaving = True
        await self._launcher.stop(member.name, member.plan.exit_timeout_s)
        self._roster.forget(member)

    async def _give_up(self, member: Member) -> None:
        await self._launcher.kill(member.name)
        self._roster.forget(member)
        await self._roster.tell()

    def _begin(self, work: Any) -> None:  # Any: a coroutine
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log.error("a server could not be ended: %s", failure)

    def _new_scaler(self) -> Autoscaler:
        plan = self._plan
        rule = Rule(
            least=plan.replica_count,
            most=plan.most_replicas,
            target_ms=plan.target_queue_ms,
            window_s=plan.scale_up_s,
            up_every_s=plan.scale_up_s,
            down_every_s=plan.scale_down_s,
        )
        return Autoscaler(rule, self._now_s())

    async def _save(self) -> None:
        document = {
            "plan": self._plan.as_text(),
            "count": self._count,
            "number": self._number,
            "revision": self._roster.revision,
            "lines": self._roster.lines(),
        }
        await self._launcher.save(json.dumps(document).encode())


def _router_node(name: str) -> str | None:
    """The key of the node that a router of a name is on; None for a server."""
    found = _ROUTER.fullmatch(name)
    return found[1] if found else None


def _router_number(name: str) -> int:
    """Which one it is on its node."""
    found = _ROUTER.fullmatch(name)
    return int(found[2] or 1) if found else 1
