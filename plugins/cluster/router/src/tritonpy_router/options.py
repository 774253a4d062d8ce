"""The settings of a router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tritonpy.options import ServerOptions

from tritonpy_router.dispatcher import QueueLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """What `corectl route` is told; its help says what each is for.

    Attributes:
        ports: addresses, certificates and limits of the router's own ports, as of a server.
        policy: a name of `picking.POLICIES`.
        limits: of what is under way and waits.
        probe_interval_s: between two questions to one replica.
        load_timeout_s: how long a replica may take to load a model.
        exit_timeout_s: how long requests under way are waited for at the end.
        drain_delay_s: how long the router is not ready, and takes requests, before that.
        await_servers_s: how long servers may take to be known and ready before the router listens; 0: it does
            so at once.
        state_file: where several routers keep what clients have loaded through them; None for each its own.
        shares_host: replicas are on this machine.
        replica_tls: the ports of replicas are encrypted.
        replica_ca: file with the certificates that those of replicas are checked by; "" for the system's.
        replica_tls_name: that these certificates are for; "" for the host of each.
        replica_certificate, replica_key: files that the router shows to replicas.
        replica_service_port: of the service `Replica`, of those whose own is not known; 0: they have none.
        replica_token: for that service.
        replica_headers: sent with the router's own questions, such as the keys of restricted calls.
    """

    ports: ServerOptions
    policy: str = "two-choices"
    limits: QueueLimits = field(default_factory=QueueLimits)
    probe_interval_s: float = 0.25
    load_timeout_s: float = 600.0
    exit_timeout_s: float = 30.0
    drain_delay_s: float = 0.0
    await_servers_s: float = 0.0
    state_file: Path | None = None
    shares_host: bool = False
    replica_tls: bool = False
    replica_ca: str = ""
    replica_tls_name: str = ""
    replica_certificate: str = ""
    replica_key: str = ""
    replica_service_port: int = 0
    replica_token: str = ""
    replica_headers: Mapping[str, str] = field(default_factory=dict)
