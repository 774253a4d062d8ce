"""The actors on the nodes: thin, around what hosts do without Ray."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import ray
from tritonpy_router.engines import read_plan

from tritonpy_ray.names import CONTROLLER, NAMESPACE, actor_name
from tritonpy_ray.replica_host import ReplicaHost
from tritonpy_ray.router_host import RouterHost

if TYPE_CHECKING:
    from tritonpy_ray.looks import Look

_POLL_S = 10.0
_POLL_SLACK_S = 5.0


class ReplicaActor:
    """One server; see `ReplicaHost`."""

    def __init__(self, name: str, plan: str) -> None:
        host = ray.util.get_node_ip_address()
        self._host = ReplicaHost(name, host, read_plan(plan), os.environ)

    def look(self, with_load: bool) -> Look:
        """How the server is."""
        return self._host.look(with_load)

    def stop(self) -> None:
        """End the server."""
        self._host.stop()


class RouterActor:
    """One router; see `RouterHost`."""

    def __init__(self, name: str, plan: str, fleet: str, ports: dict[str, int]) -> None:
        host = ray.util.get_node_ip_address()
        self._controller = actor_name(fleet, CONTROLLER)
        self._host = RouterHost(name, host, read_plan(plan), os.environ, self._follow, ports)

    def look(self, with_load: bool) -> Look:
        """How the router is."""
        return self._host.look(with_load)

    def stop(self) -> None:
        """End the router."""
        self._host.stop()

    def _follow(self, revision: int) -> tuple[int, Sequence[str]]:
        controller = ray.get_actor(self._controller, NAMESPACE)
        new, lines = ray.get(controller.members.remote(revision, _POLL_S), timeout=_POLL_S + _POLL_SLACK_S)
        return new, lines
