"""A router on a node, without Ray, and the file of servers that it reads."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import click
from tritonpy.errors import TritonError
from tritonpy.frontends.sockets import is_unix, listening_sockets
from tritonpy.options import ServerOptions
from tritonpy_router.engines import FleetPlan
from tritonpy_router.route_cli import route, router_options
from tritonpy_router.secrets import TokenFile

from tritonpy_ray.child import Child, Program, router_ports
from tritonpy_ray.looks import Look
from tritonpy_ray.pages import read_page, replicas_of
from tritonpy_ray.replica_host import drain_flags, environment_of

_log = logging.getLogger("tritonpy.ray")

_AGAIN_S = 1.0
_AWAIT_S = 60.0  # for servers that are ready; without any, it says so like the one before it
_TRIES = 20  # each meets one of two who listen on a port, by chance
_ALL_ADDRESSES = ("", "0.0.0.0", "::", "[::]")
_SHARED = [
    f"--reuse-{service}-port=true" for service in ("http", "grpc", "metrics") if sys.platform == "linux"
]
"""Elsewhere connections to a port that is shared are not spread, or it cannot be."""

Follow: TypeAlias = Callable[[int], tuple[int, Sequence[str]]]
"""Waits until the servers are others than at a revision, and returns the new revision and a line for each."""


class RouterHost:
    """A router on this node, and the file of servers that it reads.

    The router knows nothing of Ray: when the controller, or all of Ray, is gone, it goes on with what the
    file says, and with what it sees of the servers itself.

    Its ports are such that another one can listen on them, too, where the system spreads connections over
    all who do. That is for its successor alone: the first one on a node starts when nobody has its ports.

    Args:
        name: of the router.
        host: the address of this node.
        plan: of the fleet.
        environment: of this process.
        follow: tells the servers.
        ports: of the router whose place it takes, which still listens there; empty for none.
        again_s: before the controller is asked again, after it could not be.
    """

    def __init__(
        self,
        name: str,
        host: str,
        plan: FleetPlan,
        environment: Mapping[str, str],
        follow: Follow,
        ports: Mapping[str, int] = types.MappingProxyType({}),
        again_s: float = _AGAIN_S,
    ) -> None:
        self._host = host
        self._follow = follow
        self._again_s = again_s
        self._is_over = threading.Event()
        self._folder = tempfile.TemporaryDirectory(prefix="tritonpy-router-")
        self._file = Path(self._folder.name) / "servers.json"
        self._write([])
        self._token = TokenFile(plan.replica_token)
        flags = [*_SHARED, *(plan.router_flags or ())]
        flags += [f"--{service}-port={port}" for service, port in ports.items()]
        if ports:  # from its first moment it gets a part of what comes
            flags.append(f"--await-servers-secs={_AWAIT_S:g}")
        self._ports = _read_ports(flags)
        self._has_ports = bool(ports)
        if plan.tls is not None:
            flags += plan.tls.router_flags()
        arguments = ["route", f"--servers-file={self._file}", *flags, *drain_flags(flags)]
        given = environment_of(environment, owns_cores=False)
        program = Program(arguments, router_ports, plan.exit_timeout_s, given, more=self._before_start)
        self._child = Child(name, program)
        self._child.start()
        threading.Thread(target=self._keep_following, name=f"follows for {name}", daemon=True).start()

    def look(self, with_load: bool) -> Look:
        """How the router is, and which replicas it knows."""
        del with_load  # of servers
        look = replace(self._child.look(self._host), shares_ports=_are_shared(self._ports))
        if look.state != "up" or not look.ports.get("metrics"):
            return look
        try:
            ups = replicas_of(self._own_page(look))
        except (OSError, ValueError) as exc:
            _log.warning("the metrics of this router cannot be read: %s", exc)
            return look
        return replace(look, up=frozenset(name for name, is_up in ups.items() if is_up), known=frozenset(ups))

    def stop(self) -> None:
        """End the router, which answers what it has accepted."""
        self._is_over.set()
        self._child.stop()
        self._folder.cleanup()
        self._token.remove()

    def _before_start(self) -> list[str]:
        """Where the token is.

        Raises:
            OSError: somebody listens where this router is to.
        """
        if not self._has_ports and self._ports is not None:
            for host, port in _places(self._ports):
                _see_that_it_is_free(host, port)
        self._has_ports = True
        return [f"--replica-token-file={self._token.path()}"]

    def _own_page(self, look: Look) -> str:
        """The page of metrics of this router; one that takes its place answers on the same port.

        Raises:
            OSError, ValueError: it cannot be had.
        """
        listens = "" if self._ports is None else self._ports.metrics_address
        host = self._host if listens in _ALL_ADDRESSES else listens
        for _ in range(_TRIES):
            page = read_page(host, look.ports["metrics"])
            if f'tritonpy_router_info{{pid="{look.pid}"' in page:
                return page
        raise ValueError("another router answers there")

    def _keep_following(self) -> None:
        revision = -1
        while not self._is_over.is_set():
            try:
                new, lines = self._follow(revision)
                if new != revision and not self._is_over.is_set():
                    self._write(lines)
                    revision = new
            except Exception as exc:  # whatever it is: the router goes on with what it knows
                _log.warning("the controller does not tell the servers; those known go on: %s", exc)
                self._is_over.wait(self._again_s)

    def _write(self, lines: Sequence[str]) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(list(lines)) if lines else "")
        os.replace(new, self._file)  # in one step, since the router may read it now


def _read_ports(flags: Sequence[str]) -> ServerOptions | None:
    """The ports of a router; None where flags are wrong on this machine, of which the router tells itself."""
    try:
        with route.make_context("route", ["--server=127.0.0.1", *flags]) as context:
            return router_options(context, context.params).ports
    except click.UsageError:
        return None


def _are_shared(ports: ServerOptions | None) -> bool:
    """Whether another router can listen on all ports that one listens on."""
    if ports is None:
        return False
    http, grpc = not ports.allow_http or ports.http_reuse_port, not ports.allow_grpc or ports.grpc_reuse_port
    return http and grpc and ports.metrics_reuse_port and not is_unix(ports.grpc_address)


def _places(ports: ServerOptions) -> list[tuple[str, int]]:
    """Addresses and ports that somebody else may share with a router who is told to."""
    services = (
        (ports.allow_http and ports.http_reuse_port, ports.http_address, ports.http_port),
        (ports.allow_grpc and ports.grpc_reuse_port, ports.grpc_address, ports.grpc_port),
        (ports.allow_metrics and ports.metrics_reuse_port, ports.metrics_address, ports.metrics_port),
    )
    return [(host, port) for is_shared, host, port in services if is_shared and port and not is_unix(host)]


def _see_that_it_is_free(host: str, port: int) -> None:
    """See that nobody listens on a port of this machine.

    Raises:
        OSError: somebody does, or it cannot be listened on.
    """
    try:
        for listener in asyncio.run(listening_sockets(host, port, reuse_port=False)):
            listener.close()
    except TritonError as exc:
        raise OSError(exc.message) from None
