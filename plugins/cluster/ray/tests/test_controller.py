"""What a controller starts, replaces and ends, with actors that are none, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy_ray.controller import Controller
from tritonpy_ray.looks import Load, Look
from tritonpy_ray.members import GoneError, Node, UnreachableError
from tritonpy_router.engines import FleetChange, FleetPlan, read_plan

PLAN = FleetPlan(server_flags=("--model-repository=m",), resources={"slot": 1.0}, start_timeout_s=60)
Answer = Callable[[str], Look]


def serving(name: str) -> Look:
    number = int(name.partition("-")[2])
    ports = {"http": number, "grpc": number, "metrics": 1}
    return Look(host="10.0.0.1", pid=number, state="up", ports=ports)


class Actors:
    """Satisfies `Launcher`: actors answer what a test says, and routers use what they are told at once."""

    def __init__(self) -> None:
        self.alive: dict[str, FleetPlan] = {}
        self.machines = [Node("a" * 20, "10.0.0.1")]
        self.done: list[str] = []
        self.answers: dict[str, Answer] = {}
        self.kept: bytes | None = None
        self.told: Callable[[], Sequence[str]] = lambda: ()
        self.busy: set[str] = set()  # replicas that routers have sequences on
        self.never: asyncio.Event = asyncio.Event()
        self.default: Answer = serving
        self.router = Look(host="10.0.0.1", state="up", ports={"http": 8000}, shares_ports=True)
        self.ports: dict[str, Mapping[str, int]] = {}  # that routers were to take over

    async def nodes(self) -> Sequence[Node]:
        return self.machines

    async def names(self) -> Sequence[str]:
        return sorted(self.alive)

    async def start_replica(self, name: str, plan: FleetPlan) -> None:
        self.alive[name] = plan
        self.done.append(f"start {name}")

    async def start_router(self, name: str, plan: FleetPlan, node: Node, ports: Mapping[str, int]) -> None:
        self.alive[name] = plan
        self.ports[name] = ports
        self.done.append(f"start {name}")

    async def look(self, name: str, with_load: bool) -> Look:
        if name not in self.alive:
            raise GoneError(name)
        if name.startswith("router"):
            names = frozenset(line.partition("=")[0] for line in self.told())
            look = self.answers[name](name) if name in self.answers else self.router
            return replace(look, up=names, known=names | self.busy)
        return self.answers.get(name, self.default)(name)

    async def stop(self, name: str, limit_s: float) -> None:
        self.done.append(f"stop {name}")
        self.alive.pop(name, None)

    async def kill(self, name: str) -> None:
        self.done.append(f"kill {name}")
        self.alive.pop(name, None)

    async def save(self, document: bytes) -> None:
        self.kept = document

    async def saved(self) -> bytes | None:
        return self.kept


def unreachable(name: str) -> Look:
    raise UnreachableError(name)


class World:
    """A controller that lives a second with each round."""

    def __init__(self, plan: FleetPlan = PLAN, actors: Actors | None = None) -> None:
        self.actors = actors or Actors()
        self.now_s = 0.0
        self.controller = Controller(self.actors, plan, lambda: self.now_s)
        self.actors.told = lambda: self.controller._roster.told

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            self.now_s += 1
            await self.controller.step()
            for _ in range(5):
                await asyncio.sleep(0)  # what waits for looks goes on

    async def during(self, work: Awaitable[Any], most: int = 200) -> Any:
        """Live until something has ended."""
        task = asyncio.ensure_future(work)
        for _ in range(most):
            if task.done():
                break
            await self.rounds(1)
        return await asyncio.wait_for(task, 0)

    async def settled(self) -> World:
        await self.controller.restore()
        await self.during(self.controller.settle())
        self.actors.done.clear()
        return self

    @property
    def servers(self) -> list[str]:
        return [row["name"] for row in self.controller.status() if row["name"].startswith("server")]

    @property
    def told(self) -> list[str]:
        return [line.partition("=")[0] for line in self.controller._roster.told]


async def test_servers_and_spares_start_with_a_router_on_each_machine() -> None:
    actors = Actors()
    actors.machines.append(Node("b" * 20, "10.0.0.2"))
    world = World(replace(PLAN, replica_count=2, spare_count=1), actors)
    await world.settled()

    assert world.servers == ["server-1", "server-2", "server-3"]
    assert [row["state"] for row in world.controller.status()] == ["ready"] * 3 + ["up"] * 2
    assert await world.controller.members(-1, 0) == (
        1,
        ("server-1=10.0.0.1:1:1", "server-2=10.0.0.1:2:2", "server-3=10.0.0.1:3:3"),
    )


async def test_routers_hear_of_servers_when_these_listen_and_of_nothing_else() -> None:
    world = World()
    world.actors.answers["server-1"] = lambda name: replace(serving(name), state="starting")
    await world.controller.restore()
    await world.rounds(3)
    before = world.told
    waiting = asyncio.ensure_future(world.controller.members(0, 60))
    world.actors.answers.clear()
    await world.rounds(2)

    assert (before, world.told) == ([], ["server-1"])
    assert await waiting == (1, ("server-1=10.0.0.1:1:1",))


async def test_without_a_change_a_router_is_answered_when_its_time_is_up() -> None:
    world = await World().settled()

    assert await world.controller.members(1, 0.01) == (1, ("server-1=10.0.0.1:1:1",))


async def test_a_lost_server_is_replaced_and_then_given_up() -> None:
    world = await World(replace(PLAN, replica_count=2)).settled()
    world.actors.answers["server-1"] = unreachable
    await world.rounds(9)
    assert world.actors.done == []  # it may only be slow
    await world.rounds(4)

    assert world.actors.done == ["start server-3", "kill server-1"]
    assert world.told == ["server-2", "server-3"]


async def test_a_server_that_was_lost_and_comes_back_makes_the_new_one_one_too_many() -> None:
    world = await World(replace(PLAN, replica_count=2)).settled()
    world.actors.answers["server-1"] = unreachable
    world.actors.answers["server-3"] = lambda name: replace(serving(name), state="starting")
    await world.rounds(13)
    world.actors.answers.pop("server-1")
    await world.rounds(4)

    assert world.actors.done == ["start server-3", "stop server-3"]


async def test_where_all_servers_are_lost_at_once_they_are_replaced_one_after_the_other() -> None:
    world = await World(replace(PLAN, replica_count=4)).settled()
    world.actors.answers = dict.fromkeys(world.servers, unreachable)
    world.actors.default = lambda name: replace(serving(name), state="starting")
    await world.rounds(40)

    assert world.actors.done == ["start server-5"]


async def test_an_actor_that_has_ended_for_good_is_replaced() -> None:
    world = await World(replace(PLAN, replica_count=2)).settled()
    del world.actors.alive["server-2"]
    await world.rounds(3)

    assert world.servers == ["server-1", "server-3"]


async def test_the_newest_go_when_routers_have_forgotten_them() -> None:
    world = await World(replace(PLAN, replica_count=3)).settled()
    world.actors.busy.add("server-3")
    scaling = asyncio.ensure_future(world.controller.scale(2))
    await world.rounds(20)
    held = (list(world.actors.done), world.told, world.controller.status()[2]["state"])
    world.actors.busy.clear()
    await world.during(scaling)

    assert held == ([], ["server-1", "server-2"], "leaving")
    assert world.actors.done == ["stop server-3"]


NEW = FleetChange(server_flags=("--model-repository=n",))
NEWER = FleetChange(router_flags=("--policy=least-busy",))
ROUTER = "router-aaaaaaaaaaaa"


async def test_an_update_starts_one_ends_one_and_so_on_and_then_routers_on_the_same_ports() -> None:
    world = await World(replace(PLAN, replica_count=2)).settled()
    await world.during(world.controller.update(NEW))

    assert world.actors.done == [
        *("start server-3", "stop server-1", "start server-4", "stop server-2"),
        *(f"start {ROUTER}-2", f"stop {ROUTER}"),
    ]
    assert world.actors.ports == {ROUTER: {}, f"{ROUTER}-2": {"http": 8000}}
    assert {plan.server_flags for plan in world.actors.alive.values()} == {("--model-repository=n",)}
    world.actors.done.clear()
    await world.during(world.controller.update(FleetChange()))

    assert world.actors.done[-2:] == [f"start {ROUTER}-3", f"stop {ROUTER}-2"]


async def test_a_new_router_with_other_options_has_the_ports_of_these() -> None:
    world = await World().settled()
    await world.during(world.controller.update(NEWER))

    assert world.actors.ports[f"{ROUTER}-2"] == {}
    assert world.actors.alive[f"{ROUTER}-2"].router_flags == NEWER.router_flags
    assert read_plan(json.loads(world.actors.kept or b"")["plan"]).router_flags == NEWER.router_flags


async def test_a_router_whose_ports_cannot_be_shared_ends_before_the_next_one_starts() -> None:
    world = World()
    world.actors.router = replace(world.actors.router, shares_ports=False)
    await world.settled()
    await world.during(world.controller.update(FleetChange()))

    assert world.actors.done[-2:] == [f"stop {ROUTER}", f"start {ROUTER}-2"]
    assert world.actors.ports[f"{ROUTER}-2"] == {}


async def test_an_update_ends_with_the_first_router_that_does_not_serve_and_keeps_the_old_ones() -> None:
    world = World()
    world.actors.machines.append(Node("b" * 20, "10.0.0.2"))
    await world.settled()
    world.actors.answers[f"{ROUTER}-2"] = lambda name: Look(host="h", state="down", failure="E: no key\n")
    world.actors.answers["router-bbbbbbbbbbbb-2"] = world.actors.answers[f"{ROUTER}-2"]
    with pytest.raises(
        Unavailable, match=r"router 'router-.*-2' ended before it served: E: no key; the others"
    ):
        await world.during(world.controller.update(replace(NEWER, server_flags=NEW.server_flags)))
    await world.rounds(3)

    first, second, started, killed = world.actors.done
    assert (first, second) == ("start server-2", "stop server-1")
    assert started.removeprefix("start") == killed.removeprefix("kill")
    assert {name for name in world.actors.alive if name.startswith("router")} == {
        ROUTER,
        "router-bbbbbbbbbbbb",
    }
    kept = read_plan(json.loads(world.actors.kept or b"")["plan"])
    assert (kept.server_flags, kept.router_flags) == (NEW.server_flags, ())


async def test_of_two_routers_on_a_node_that_a_lost_controller_has_left_the_newer_one_stays() -> None:
    world = await World().settled()
    await world.actors.start_router(f"{ROUTER}-2", PLAN, world.actors.machines[0], {})
    next_world = World(actors=world.actors)
    await next_world.controller.restore()
    world.actors.done.clear()
    await next_world.rounds(4)

    assert world.actors.done == [f"stop {ROUTER}"]
    assert set(world.actors.alive) == {"server-1", f"{ROUTER}-2"}


async def test_a_fleet_has_one_token_which_a_new_controller_finds() -> None:
    world = await World(replace(PLAN, replica_count=2)).settled()
    tokens = {plan.replica_token for plan in world.actors.alive.values()}
    next_world = World(replace(PLAN, replica_token="another"), world.actors)
    await next_world.controller.restore()
    await next_world.during(next_world.controller.scale(3))
    given = await World(replace(PLAN, replica_token="given")).settled()

    assert len(tokens) == 1
    assert len(next(iter(tokens))) >= 32
    assert "server-3" in world.actors.alive
    assert {plan.replica_token for plan in world.actors.alive.values()} == tokens
    assert {plan.replica_token for plan in given.actors.alive.values()} == {"given"}


async def test_an_update_ends_with_the_first_server_that_does_not_serve_and_keeps_the_old_ones() -> None:
    world = await World(replace(PLAN, replica_count=2)).settled()
    world.actors.answers["server-3"] = lambda name: Look(host="h", state="down", failure="E: no model\n")
    with pytest.raises(Unavailable, match="'server-3' ended before it served: E: no model; the others were"):
        await world.during(world.controller.update(NEW))
    await world.rounds(3)

    assert world.actors.done == ["start server-3", "kill server-3"]
    assert world.told == ["server-1", "server-2"]
    assert b"--model-repository=n" not in (world.actors.kept or b"")


async def test_a_server_without_a_machine_is_given_up_with_what_it_needs() -> None:
    world = World()

    async def never(name: str, with_load: bool) -> Look:
        await asyncio.Event().wait()
        raise AssertionError

    world.actors.look = never  # type: ignore[method-assign]
    await world.controller.restore()
    settling = asyncio.ensure_future(world.controller.settle())
    await asyncio.sleep(0)
    world.now_s += 61
    for _ in range(2):
        await world.controller.step()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with pytest.raises(Unavailable, match=r"'server-1' has found no machine in 60 s .* it needs slot=1 "):
        await asyncio.wait_for(settling, 0)
    await world.controller.down()


async def test_a_new_controller_goes_on_where_the_last_one_was_and_tells_routers_no_less() -> None:
    world = await World(replace(PLAN, replica_count=2)).settled()
    await world.during(world.controller.scale(3))
    revision = (await world.controller.members(-1, 0))[0]
    next_world = World(replace(PLAN, replica_count=7), world.actors)
    await next_world.controller.restore()
    told = await next_world.controller.members(revision, 0)
    world.actors.done.clear()
    await next_world.rounds(5)
    await next_world.during(next_world.controller.scale(4))

    assert told[1] == (await world.controller.members(-1, 0))[1]
    assert world.actors.done == ["start server-4"]


async def test_servers_follow_the_load_within_their_limits() -> None:
    world = World(replace(PLAN, replica_count=1, most_replicas=2, target_queue_ms=10))

    def busy(name: str) -> Look:
        load = Load({"m": 10 * world.now_s}, {"m": 10 * world.now_s * 40_000})
        return replace(serving(name), load=load)

    world.actors.default = busy
    await world.settled()
    await world.rounds(120)

    assert world.servers == ["server-1", "server-2"]
    with pytest.raises(InvalidArg, match="got 5 servers, expected 1 to 2"):
        await world.controller.scale(5)


async def test_a_machine_that_joins_gets_a_router_and_one_that_left_is_forgotten() -> None:
    world = await World().settled()
    world.actors.machines = [Node("c" * 20, "10.0.0.3")]
    await world.rounds(1)

    assert sorted(world.actors.done) == ["kill router-aaaaaaaaaaaa", "start router-cccccccccccc"]


async def test_down_ends_routers_and_then_servers_whatever_is_under_way() -> None:
    world = await World(replace(PLAN, replica_count=2)).settled()
    world.actors.answers["server-3"] = lambda name: replace(serving(name), state="starting")
    updating = asyncio.ensure_future(world.controller.update(FleetChange()))
    await world.rounds(3)
    await asyncio.wait_for(world.controller.down(), 30)

    with pytest.raises(Unavailable, match="going down"):
        await updating
    assert world.actors.done[0] == "start server-3"
    assert world.actors.done[1].startswith("stop router")
    assert sorted(world.actors.done[2:]) == ["stop server-1", "stop server-2", "stop server-3"]
    assert world.actors.alive == {}


async def test_a_round_that_fails_is_not_the_last_one(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    paused = 0

    async def pause(_: float) -> None:
        nonlocal paused
        paused += 1
        if paused == 1:
            world.actors.machines = [Node("a" * 20, "10.0.0.1")]
        if paused == 4:
            world.controller._roster.close()

    world.controller._pause = pause
    world.actors.machines = None  # type: ignore[assignment]
    await world.controller.run()

    assert "a round of the controller has failed" in caplog.text
    assert world.told == ["server-1"]
