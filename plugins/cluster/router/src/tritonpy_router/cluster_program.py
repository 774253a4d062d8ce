"""A fleet as a program: servers, a router before them, and a socket for commands, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from tritonpy import logs
from tritonpy.cli.malloc import keep_freed_memory
from tritonpy.cli.serve import SWITCH_INTERVAL_S
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.frontends.sockets import raise_descriptor_limit
from tritonpy.server import new_loop

from tritonpy_router.cluster_control import ControlSocket, Document, socket_path
from tritonpy_router.cluster_flags import REPLICA_FLAG
from tritonpy_router.fleet import Fleet
from tritonpy_router.options import RouterOptions
from tritonpy_router.replica import Replica
from tritonpy_router.router import Router
from tritonpy_router.secrets import TokenFile

_log = logging.getLogger("tritonpy.router")

_DRAIN_DELAY_S = 1.0
"""How long a server of a fleet is not ready and still takes requests: a few questions of the router."""


def run(options: RouterOptions, flags: Sequence[str], count: int, name: str, *, has_router: bool) -> int:
    """Run a fleet until a signal or `corectl cluster down` ends it; returns the exit status of the program.

    Args:
        options: of the router, and of the ports that servers share where there is none.
        flags: of each server.
        count: of servers.
        name: of the fleet.
        has_router: else servers listen on the same ports.
    """
    with logs.configure(options.ports):
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        raise_descriptor_limit()
        keep_freed_memory(os.environ)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_serve(options, flags, count, name, has_router))


async def _serve(
    options: RouterOptions, flags: Sequence[str], count: int, name: str, has_router: bool
) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if not has_router or any(REPLICA_FLAG.match(flag) for flag in flags):
        return await _serve_with(options, flags, count, name, stop, has_router, None)
    secret = TokenFile()
    try:
        options = replace(options, replica_token=secret.token)
        return await _serve_with(options, flags, count, name, stop, has_router, secret.flags)
    finally:
        secret.remove()


async def _serve_with(
    options: RouterOptions,
    flags: Sequence[str],
    count: int,
    name: str,
    stop: asyncio.Event,
    has_router: bool,
    replica_flags: Callable[[], Sequence[str]] | None,
) -> int:
    router: Router | None = None

    async def taken(name: str) -> None:
        if router is not None:
            await router.taken(name)

    server_flags = [*flags, *_ports_of_servers(options, has_router)]
    exit_timeout_s = options.exit_timeout_s + _DRAIN_DELAY_S
    fleet = Fleet(server_flags, count, exit_timeout_s, _echo, taken, replica_flags=replica_flags)
    control = ControlSocket(socket_path(name), lambda question: _answer(fleet, router, stop, question))
    try:
        await control.start()
        if has_router:
            router = Router(options, fleet)
        if router is not None:
            await router.start()
            _log.info("Routing: HTTP on port %d, gRPC on port %d", router.http_port, router.grpc_port)
    except TritonError as exc:
        _log.error("error: starting fleet: %s", exc.described())
        await control.stop()
        return 1
    await fleet.start()
    await stop.wait()
    _log.info("Stopping: requests under way are answered for %g s", options.exit_timeout_s)
    if router is not None:
        await router.stop()
    await fleet.stop()
    await control.stop()
    _log.info("Fleet stopped")
    return 0


async def _answer(fleet: Fleet, router: Router | None, stop: asyncio.Event, question: Document) -> Document:
    match question:
        case {"do": "status"}:
            rows = fleet.rows()
            for row in rows:
                replica = None if router is None else router.view.replicas.get(row["name"])
                if router is not None and replica is not None:
                    _add_what_is_heard(row, replica, router.view.now_s())
            return {"servers": rows}
        case {"do": "scale", "count": int(count)} if count > 0:
            await fleet.scale(count)
        case {"do": "update"}:
            return {"failure": await fleet.update()}
        case {"do": "down"}:
            stop.set()
        case _:
            raise InvalidArg(f"a fleet does not know {question}")
    return {}


def _add_what_is_heard(row: Document, replica: Replica, now_s: float) -> None:
    """Say what the router knows of a server: one that is up is ready when the router has heard so."""
    if replica.is_draining:
        row["state"] = "draining"
    elif replica.is_suspect(now_s):
        row["state"] = "silent"
    elif replica.takes(now_s):
        row["state"] = "ready"
    if replica.heard_s is not None:
        row["inflight"] = replica.load
        row["pending"] = replica.pending_count
        row["queue_ms"] = round(replica.queue_ms, 3)


def _ports_of_servers(options: RouterOptions, has_router: bool) -> list[str]:
    """The flags that say where servers listen: on ports of this machine alone, or all on the same."""
    ports = options.ports
    drain = f"--drain-delay-secs={_DRAIN_DELAY_S:g}"
    if has_router:
        places = [f"--{service}-address=127.0.0.1" for service in ("http", "grpc", "metrics")]
        return [*places, "--http-port=0", "--grpc-port=0", "--metrics-port=0", drain]
    return [
        f"--http-address={ports.http_address}",
        f"--http-port={ports.http_port}",
        f"--grpc-address={ports.grpc_address}",
        f"--grpc-port={ports.grpc_port}",
        f"--metrics-address={ports.metrics_address}",
        "--metrics-port=0",
        "--reuse-http-port=true",
        "--reuse-grpc-port=true",
        drain,
    ]


def _echo(name: str, line: bytes) -> None:
    sys.stderr.write(f"[{name}] {line.decode('utf-8', 'replace')}")
