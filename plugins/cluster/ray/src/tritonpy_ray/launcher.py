"""Actors of a fleet in a Ray cluster: what the controller asks Ray for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError
from ray.experimental import internal_kv
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tritonpy_router.engines import FleetPlan

from tritonpy_ray.actors import ReplicaActor, RouterActor
from tritonpy_ray.looks import Look
from tritonpy_ray.members import GoneError, Node, UnreachableError
from tritonpy_ray.names import CONTROLLER, NAMESPACE, actor_name

_STOP_SLACK_S = 30.0  # what the answer of an actor may take beyond the end of what it runs
_CALLS = 4  # to one actor at a time: looks, while it ends
_NUMBERS = {"cpu": "num_cpus", "gpu": "num_gpus", "memory": "memory"}


class RayLauncher:
    """Satisfies `controller.Launcher`; in an actor of the cluster, on its loop.

    Args:
        fleet: its name.
    """

    def __init__(self, fleet: str) -> None:
        self._fleet = fleet
        self._handles: dict[str, Any] = {}  # Any: Ray's handles have the methods of their actors

    async def nodes(self) -> Sequence[Node]:
        """See `Launcher`."""
        return [Node(row["NodeID"], row["NodeManagerAddress"]) for row in ray.nodes() if row["Alive"]]

    async def names(self) -> Sequence[str]:
        """See `Launcher`."""
        return names_of(self._fleet)

    async def start_replica(self, name: str, plan: FleetPlan) -> None:
        """See `Launcher`."""
        options = actor_options(actor_name(self._fleet, name), plan.resources)
        options["max_concurrency"] = _CALLS
        actor = ray.remote(**options, scheduling_strategy="SPREAD")(ReplicaActor)
        self._handles[name] = actor.remote(name, plan.as_text())

    async def start_router(self, name: str, plan: FleetPlan, node: Node, ports: Mapping[str, int]) -> None:
        """See `Launcher`."""
        options = actor_options(actor_name(self._fleet, name), {})
        options["max_concurrency"] = _CALLS
        there = NodeAffinitySchedulingStrategy(node.id, soft=False)
        actor = ray.remote(**options, scheduling_strategy=there)(RouterActor)
        self._handles[name] = actor.remote(name, plan.as_text(), self._fleet, dict(ports))

    async def look(self, name: str, with_load: bool) -> Look:
        """See `Launcher`."""
        try:
            look: Look = await self._handle(name).look.remote(with_load)
        except ActorDiedError as exc:
            self._handles.pop(name, None)
            # Also one that is being started again may say so; its name is free when it has ended for good.
            self._handle(name)
            raise UnreachableError(str(exc).partition("\n")[0]) from exc
        except RayError as exc:
            raise UnreachableError(str(exc).partition("\n")[0]) from exc
        return look

    async def stop(self, name: str, limit_s: float) -> None:
        """See `Launcher`."""
        # Where it has ended, or is not to be had, what it runs ends with it.
        with contextlib.suppress(RayActorError, GoneError, TimeoutError):
            await asyncio.wait_for(self._handle(name).stop.remote(), limit_s + _STOP_SLACK_S)
        await self.kill(name)

    async def kill(self, name: str) -> None:
        """See `Launcher`."""
        with contextlib.suppress(GoneError):
            ray.kill(self._handle(name), no_restart=True)
        self._handles.pop(name, None)

    async def save(self, document: bytes) -> None:
        """See `Launcher`."""
        save(self._fleet, document)

    async def saved(self) -> bytes | None:
        """See `Launcher`."""
        return saved(self._fleet)

    def _handle(self, name: str) -> Any:  # Any: see `__init__`
        """The actor of a name.

        Raises:
            GoneError: there is none.
        """
        if name not in self._handles:
            try:
                self._handles[name] = ray.get_actor(actor_name(self._fleet, name), NAMESPACE)
            except ValueError:
                raise GoneError(name) from None
        return self._handles[name]


def names_of(fleet: str) -> list[str]:
    """The actors of a fleet, but its controller."""
    prefix = actor_name(fleet, "")
    rows = ray.util.list_named_actors(all_namespaces=True)
    names = [row["name"] for row in rows if row["namespace"] == NAMESPACE]
    return [
        name.removeprefix(prefix)
        for name in sorted(names)
        if name.startswith(prefix) and name != prefix + CONTROLLER
    ]


def actor_options(name: str, resources: Mapping[str, float]) -> dict[str, Any]:  # Any: Ray's
    """The options of an actor that outlives who started it, and is started again whenever it ends."""
    options: dict[str, Any] = {
        "name": name,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "max_restarts": -1,
        "max_task_retries": 0,
        "num_cpus": 0,
        "num_gpus": 0,
    }
    options.update((_NUMBERS[each], amount) for each, amount in resources.items() if each in _NUMBERS)
    options["resources"] = {each: amount for each, amount in resources.items() if each not in _NUMBERS}
    return options


def save(fleet: str, document: bytes | None) -> None:
    """Keep a document with the cluster's own state, which outlives the controller; None: nothing any more."""
    if document is None:
        internal_kv._internal_kv_del(fleet.encode(), namespace=NAMESPACE.encode())
    else:
        internal_kv._internal_kv_put(fleet.encode(), document, overwrite=True, namespace=NAMESPACE.encode())


def saved(fleet: str) -> bytes | None:
    """What was kept of a fleet."""
    found: bytes | None = internal_kv._internal_kv_get(fleet.encode(), namespace=NAMESPACE.encode())
    return found
