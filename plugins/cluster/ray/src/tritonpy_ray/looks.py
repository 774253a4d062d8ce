"""What the actors of a fleet tell its controller, each time it looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Load:
    """What a server has done since it started.

    Attributes:
        requests: answered, by model.
        queue_us: that these have waited, by model.
        pending: requests that wait now.
    """

    requests: Mapping[str, float] = field(default_factory=dict)
    queue_us: Mapping[str, float] = field(default_factory=dict)
    pending: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A server or a router, as its actor sees it.

    Attributes:
        host: the address of its node.
        pid: of its process; None while there is none.
        state: `starting`, `up` once it listens, or `down` before it is started again.
        ports: that it listens on, by `http`, `grpc`, `metrics` and `replica`.
        restart_count: ends that nobody had asked for.
        failure: what it said last, if it has ended before it listened; "" if it has not.
        shares_ports: of a router: another one on its node can listen on the same ports.
        load: of a server, where that was asked for and can be had.
        up: of a router: replicas that it sends requests to.
        known: of a router: replicas that it has not forgotten; one that left stays for its sequences.
    """

    host: str
    pid: int | None = None
    state: str = "starting"
    ports: Mapping[str, int] = field(default_factory=dict)
    restart_count: int = 0
    failure: str = ""
    shares_ports: bool = False
    load: Load | None = None
    up: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
