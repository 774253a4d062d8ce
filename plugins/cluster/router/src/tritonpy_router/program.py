"""The router as a program: until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import click
from tritonpy import logs
from tritonpy.cli.malloc import keep_freed_memory
from tritonpy.errors import TritonError
from tritonpy.frontends.sockets import raise_descriptor_limit
from tritonpy.server import new_loop
from tritonpy.version import __version__

from tritonpy_router.membership import Membership
from tritonpy_router.options import RouterOptions
from tritonpy_router.router import Router

_log = logging.getLogger("tritonpy.router")


def run(options: RouterOptions, membership: Membership, switch_interval_s: float) -> int:
    """Route until SIGINT or SIGTERM; returns the exit status of the program."""
    try:
        log = logs.configure(options.ports)
    except OSError as exc:
        raise click.UsageError(f"cannot write '{options.ports.log_file}': {exc.strerror}") from None
    with log:
        sys.setswitchinterval(switch_interval_s)
        raise_descriptor_limit()
        keep_freed_memory(os.environ)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_serve(options, membership))


async def _serve(options: RouterOptions, membership: Membership) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, stop.set)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop.set))
    _log.info("tritonpy-router %s", __version__)
    try:
        router = Router(options, membership)
        if not await _started(router, stop):
            _log.info("Router stopped")
            return 0
    except TritonError as exc:
        _log.error("error: starting router: %s", exc.described())
        return 1
    _log.info(
        "Routing: HTTP on port %d, gRPC on port %d, metrics on port %d",
        router.http_port,
        router.grpc_port,
        router.metrics_port,
    )
    await stop.wait()
    _log.info("Stopping: requests under way are answered for %g s", options.exit_timeout_s)
    await router.stop()
    _log.info("Router stopped")
    return 0


async def _started(router: Router, stop: asyncio.Event) -> bool:
    """Start a router; False if it was told to stop meanwhile, while it awaited its servers.

    Raises:
        TritonError: it cannot start.
    """
    loop = asyncio.get_running_loop()
    starting, stopping = loop.create_task(router.start()), loop.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False
    await starting
    return True
