"""A server on a node, without Ray."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tritonpy_router.engines import FleetPlan
from tritonpy_router.secrets import TokenFile

from tritonpy_ray.child import Child, Program, server_ports
from tritonpy_ray.looks import Look
from tritonpy_ray.pages import load_of, read_page

_log = logging.getLogger("tritonpy.ray")

DRAIN_DELAY_S = 1.0
"""How long a server or router that is to end is not ready and still takes requests."""


class ReplicaHost:
    """A server on this node.

    Args:
        name: of the replica.
        host: the address of this node, on which it listens.
        plan: of the fleet.
        environment: of this process.
    """

    def __init__(self, name: str, host: str, plan: FleetPlan, environment: Mapping[str, str]) -> None:
        self._host = host
        self._token = TokenFile(plan.replica_token)
        arguments = ["serve", *plan.server_flags]
        for service in ("http", "grpc", "metrics"):
            arguments += [f"--{service}-address={host}", f"--{service}-port=0"]
        arguments += [f"--frontend-config=replica,address={host}", "--frontend-config=replica,port=0"]
        if plan.tls is not None:
            arguments += [*plan.tls.server_flags(), *plan.tls.service_flags()]
        arguments += drain_flags(plan.server_flags)
        given = environment_of(environment, owns_cores="cpu" in plan.resources)
        program = Program(
            arguments,
            server_ports,
            plan.exit_timeout_s,
            given,
            more=lambda: [f"--frontend-config=replica,token-file={self._token.path()}"],
            awaited=frozenset(("http", "grpc", "replica")),
        )
        self._child = Child(name, program)
        self._child.start()

    def look(self, with_load: bool) -> Look:
        """How the server is.

        Args:
            with_load: tell what it has done, too, which reads its page of metrics.
        """
        look = self._child.look(self._host)
        if not with_load or look.state != "up" or "metrics" not in look.ports:
            return look
        try:
            return replace(look, load=load_of(read_page(self._host, look.ports["metrics"])))
        except (OSError, ValueError) as exc:
            _log.warning("the metrics of this server cannot be read: %s", exc)
            return look

    def stop(self) -> None:
        """End the server, which answers what it has accepted."""
        self._child.stop()
        self._token.remove()


def drain_flags(flags: Sequence[str]) -> list[str]:
    """The drain delay of a program that is told none: a few questions of who sends it requests."""
    is_told = any(flag.startswith("--drain-delay-s") for flag in flags)
    return [] if is_told else [f"--drain-delay-secs={DRAIN_DELAY_S:g}"]


def environment_of(given: Mapping[str, str], *, owns_cores: bool) -> dict[str, str]:
    """The environment of a child: that of the actor, without what Ray sets for tasks in Python.

    Ray says with OMP_NUM_THREADS how many cores an actor has; where it was given none that is 1, which would
    hold frameworks to one thread.
    """
    left_out = {"PYTHONBREAKPOINT"} | (set() if owns_cores else {"OMP_NUM_THREADS"})
    return {name: value for name, value in given.items() if name not in left_out}
