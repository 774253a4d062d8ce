"""The door for what starts servers on several machines, and keeps them: an engine of `corectl cluster`.

An engine is an entry point of group `tritonpy.cluster_engines`: a function that takes the text of
`--address`, and returns an `Engine`. It may raise a `TritonError`, and so may all methods; its text is what
the user is told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias

from tritonpy.errors import NotFound, Unavailable

GROUP = "tritonpy.cluster_engines"
OWN = {"ray": "tritonpy-ray"}
"""Engines of this project, and the distributions that bring them."""

Row: TypeAlias = Mapping[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What a fleet is to be.

    Attributes:
        server_flags: of `corectl serve`, for each server, without addresses and ports.
        router_flags: of `corectl route`, for each router, without servers; None for no routers.
        replica_count: servers, and the fewest where their number follows the load.
        most_replicas: where that is more than `replica_count`, the number of servers follows the load.
        target_queue_ms: that requests may wait then.
        spare_count: servers beyond that, which serve like the others, so that the loss of one is no lack.
        resources: that each server needs on its machine: `cpu`, `gpu`, and names that the engine knows.
        start_timeout_s: how long a server may take until it serves.
        exit_timeout_s: how long a server or router may take to answer what it has accepted, with its drain
            delay.
    """

    server_flags: tuple[str, ...]
    router_flags: tuple[str, ...] | None = ()
    replica_count: int = 1
    most_replicas: int = 0
    target_queue_ms: float = 50.0
    spare_count: int = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    start_timeout_s: float = 600.0
    exit_timeout_s: float = 30.0

    @property
    def follows_load(self) -> bool:
        """Whether the number of servers changes by itself."""
        return self.most_replicas > self.replica_count

    def as_text(self) -> str:
        """The plan as JSON."""
        return json.dumps(asdict(self))


def read_plan(text: str) -> FleetPlan:
    """The plan of a text that `as_text` has made."""
    fields = json.loads(text)
    for name in ("server_flags", "router_flags"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    return FleetPlan(**fields)


class Engine(Protocol):
    """Fleets on machines of one kind. A name tells several fleets apart."""

    def up(self, name: str, plan: FleetPlan) -> None:
        """Start a fleet; returns when its servers serve and its routers listen.

        Raises:
            TritonError: it cannot be had; then nothing of it is left.
        """

    def status(self, name: str) -> Sequence[Row]:
        """A row for each server and router, all with the same keys."""

    def scale(self, name: str, count: int) -> None:
        """Have so many servers; returns when they serve, and when those too many have ended."""

    def update(self, name: str, server_flags: Sequence[str] | None) -> None:
        """Replace the servers one by one, each when its successor serves.

        Args:
            name: of the fleet.
            server_flags: of the successors; None for those of the old ones.

        Raises:
            TritonError: a successor does not serve. The servers that are not replaced go on.
        """

    def down(self, name: str) -> None:
        """End a fleet, which answers what it has accepted; returns when it has ended."""


def find_engine(name: str, address: str) -> Engine:
    """Connect to an engine.

    Args:
        name: of its entry point.
        address: of its cluster, in its own form.

    Raises:
        NotFound: no engine of this name is installed.
        Unavailable: it cannot be imported.
        TritonError: it says so.
    """
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in installed:
        known = f"installed: {', '.join(sorted(installed))}" if installed else "none is installed"
        hint = f"; pip install {OWN[name]}" if name in OWN else ""
        raise NotFound(f"there is no cluster engine '{name}' ({known}){hint}")
    try:
        connect: Callable[[str], Engine] = installed[name].load()
    except ImportError as exc:
        raise Unavailable(f"cluster engine '{name}' cannot be imported: {exc}") from exc
    return connect(address)
