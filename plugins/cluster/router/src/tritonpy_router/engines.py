"""The door for what starts servers on several machines, and keeps them: an engine of `corectl cluster`.

An engine is an entry point of group `tritonpy.cluster_engines`: a function that takes the text of
`--address`, and returns an `Engine`. It may raise a `TritonError`, and so may all methods; its text is what
the user is told.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias

from tritonpy.errors import NotFound, Unavailable

GROUP = "tritonpy.cluster_engines"
OWN = {"ray": "tritonpy-ray"}
"""Engines of this project, and the distributions that bring them."""

Row: TypeAlias = Mapping[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTls:
    """How routers and servers of a fleet speak TLS with each other; its files lie on each machine.

    Attributes:
        server_certificate, server_key: files that servers show to routers.
        server_client_ca: file by which servers check the certificates of routers; "" for not.
        replica_ca: file by which routers check those of servers; "" for the authorities of the machine.
        replica_name: that these are for; "" for the address of each server.
        replica_certificate, replica_key: files that routers show to servers; "" for none.
    """

    server_certificate: str
    server_key: str
    server_client_ca: str = ""
    replica_ca: str = ""
    replica_name: str = ""
    replica_certificate: str = ""
    replica_key: str = ""

    def server_flags(self) -> list[str]:
        """Of `corectl serve`: for HTTP and gRPC."""
        flags = [
            f"--https-certificate={self.server_certificate}",
            f"--https-key={self.server_key}",
            *([f"--https-client-ca={self.server_client_ca}"] if self.server_client_ca else []),
            "--grpc-use-ssl=true",
            f"--grpc-server-cert={self.server_certificate}",
            f"--grpc-server-key={self.server_key}",
        ]
        if self.server_client_ca:
            flags += ["--grpc-use-ssl-mutual=true", f"--grpc-root-cert={self.server_client_ca}"]
        return flags

    def service_flags(self) -> list[str]:
        """Of `corectl serve`: for the service `Replica`."""
        settings = {
            "tls-certificate": self.server_certificate,
            "tls-key": self.server_key,
            "tls-client-ca": self.server_client_ca,
        }
        return [f"--frontend-config=replica,{name}={path}" for name, path in settings.items() if path]

    def router_flags(self) -> list[str]:
        """Of `corectl route`."""
        settings = {
            "ca": self.replica_ca,
            "tls-name": self.replica_name,
            "cert": self.replica_certificate,
            "key": self.replica_key,
        }
        return ["--replica-tls", *(f"--replica-{name}={value}" for name, value in settings.items() if value)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """What a fleet is to be.

    Attributes:
        server_flags: of `corectl serve`, for each server, without addresses, ports and files of TLS.
        router_flags: of `corectl route`, for each router, without servers and what it knows of them; None for
            no routers.
        tls: between routers and servers; None for none.
        replica_token: with which routers ask servers how they are, and have them load models; "" for one that
            the engine makes. It is a secret: it may not stand in a command line or a log.
        replica_count: servers, and the fewest where their number follows the load.
        most_replicas: where that is more than `replica_count`, the number of servers follows the load.
        target_queue_ms: that requests may wait then.
        scale_up_s: over which that is looked at, and between one server more and the next.
        scale_down_s: between any change of their number and one server less.
        spare_count: servers beyond that, which serve like the others, so that the loss of one is no lack.
        resources: that each server needs on its machine: `cpu`, `gpu`, and names that the engine knows.
        start_timeout_s: how long a server may take until it serves.
        exit_timeout_s: how long a server or router may take to answer what it has accepted, with its drain
            delay.
    """

    server_flags: tuple[str, ...]
    router_flags: tuple[str, ...] | None = ()
    tls: FleetTls | None = None
    replica_token: str = field(default="", repr=False)
    replica_count: int = 1
    most_replicas: int = 0
    target_queue_ms: float = 50.0
    scale_up_s: float = 30.0
    scale_down_s: float = 300.0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """What an update tells new servers and routers.

    Attributes:
        server_flags: of new servers; None for those of the old ones.
        router_flags: of new routers; None for those of the old ones.
        exit_timeout_s: as of a plan, by what is told here.
    """

    server_flags: tuple[str, ...] | None = None
    router_flags: tuple[str, ...] | None = None
    exit_timeout_s: float = 0.0

    def of(self, plan: FleetPlan) -> FleetPlan:
        """The plan that a fleet has after it."""
        is_whole = self.server_flags is not None and self.router_flags is not None
        # A fleet without routers has none after it, either.
        keeps_routers = self.router_flags is None or plan.router_flags is None
        return replace(
            plan,
            server_flags=plan.server_flags if self.server_flags is None else self.server_flags,
            router_flags=plan.router_flags if keeps_routers else self.router_flags,
            exit_timeout_s=self.exit_timeout_s if is_whole else max(self.exit_timeout_s, plan.exit_timeout_s),
        )


def read_plan(text: str) -> FleetPlan:
    """The plan of a text that `as_text` has made."""
    fields = json.loads(text)
    for name in ("server_flags", "router_flags"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    if fields.get("tls") is not None:
        fields["tls"] = FleetTls(**fields["tls"])
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

    def update(self, name: str, change: FleetChange) -> None:
        """Replace the servers one by one, each when its successor serves, and then the routers.

        Args:
            name: of the fleet.
            change: what new ones are told.

        Raises:
            TritonError: a successor does not serve. What is not replaced goes on.
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
