"""The frontends of a server, from the check of their settings to their end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from inspect import isawaitable

from tritonpy.dataplane import Address, Dataplane, Frontend
from tritonpy.errors import Internal, InvalidArg, TritonError, exception_text
from tritonpy.frontends.services import BuiltInFrontend, FrontendServices
from tritonpy.frontends.sockets import is_unix, listening_sockets
from tritonpy.options import ServerOptions
from tritonpy.plugin_manager import Hook, PluginManager

_log = logging.getLogger("tritonpy.server")

_BUILT_IN = {
    "grpc": ("tritonpy.frontends.grpc.frontend", "GRPC service", "GRPCInferenceService"),
    "http": ("tritonpy.frontends.http.server", "HTTP service", "HTTPService"),
    "metrics": ("tritonpy.frontends.metrics", "Metrics service", "Metrics Service"),
}
"""Frontends that start without being asked for, in this order: module, and Triton's names in the log."""

_LAST_S = 10.0
"""Time to close in, behind that for requests under way."""

_MOST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class _Hooks:
    """The hooks of one frontend, bound; None for one that it does not have."""

    initialize: Hook | None
    start: Hook
    stop: Hook | None


class Frontends:
    """Calls the hooks of frontends; on the loop only.

    Args:
        plugins: the frontends there are.
        options: of the server.
        dataplane: what requests are answered with.
        services: what frontends share beside it.
        given: names of plugins that are started without being asked for.

    Attributes:
        by_name: the frontends of this server.
        begun: what the log says first when `initialize` or `start` fails, in Triton's words; "" otherwise.

    Raises:
        NotFound: a frontend is asked for that is not installed.
        InvalidArg: the options ask for one and refuse it.
        Internal: it is disabled, its import failed, or it has no `frontend_start`.
    """

    def __init__(
        self,
        plugins: PluginManager,
        options: ServerOptions,
        dataplane: Dataplane,
        services: FrontendServices,
        given: Collection[str] = (),
    ) -> None:
        self.begun = ""
        self.by_name: dict[str, Frontend] = {}
        self._hooks: dict[str, _Hooks] = {}
        self._started: list[Frontend] = []
        for name in _chosen(options, given):
            if name in _BUILT_IN and name not in plugins.names():  # also where nothing is looked for
                plugins.register(name, import_module(_BUILT_IN[name][0]))
            plugin = plugins.load(name)
            start = plugins.bind(plugin, "frontend_start")
            if start is None:
                raise Internal(f"frontend '{name}' has no hook frontend_start")
            self._hooks[name] = _Hooks(
                plugins.bind(plugin, "frontend_initialize"), start, plugins.bind(plugin, "frontend_stop")
            )
            self.by_name[name] = BuiltInFrontend(
                name,
                {key: value for each, key, value in options.frontend_config if each == name and key},
                dataplane,
                services.admission,
                tracer=services.tracing,
                options=options,
                services=services,
            )

    async def initialize(self) -> None:
        """Have all check their settings, and refuse addresses that cannot be had.

        Raises:
            TritonError: a setting is wrong, or an address taken.
        """
        for name, frontend in self.by_name.items():
            self.begun = f"failed to start {_called(name)}"
            await _call(self._hooks[name].initialize, frontend)
            for host, port, is_shared in _addresses(frontend):
                if port and not is_unix(host):
                    for listener in await listening_sockets(host, port, is_shared):
                        listener.close()
        self.begun = ""

    async def start(self) -> None:
        """Have all accept requests, one after the other.

        Raises:
            TritonError: one could not.
        """
        for name, frontend in self.by_name.items():
            self.begun = f"failed to start {_called(name)}"
            await _call(self._hooks[name].start, frontend)
            self._started.append(frontend)
            title = _BUILT_IN[name][2] if name in _BUILT_IN else _called(name)
            places = [host if is_unix(host) else f"{host}:{port}" for host, port, _ in _addresses(frontend)]
            _log.info("Started %s%s", title, f" at {', '.join(places)}" if places else "")
        self.begun = ""

    @asynccontextmanager
    async def stopping(self, left_s: float) -> AsyncIterator[None]:
        """Stop all: no requests come from the block on, which answers the rest; then they close.

        Args:
            left_s: seconds that requests under way may take.
        """
        stops: dict[asyncio.Task[None], Frontend] = {}
        for frontend in self._started:
            frontend.begin_stop(left_s)
            stops[asyncio.create_task(self._stop(frontend))] = frontend
        await asyncio.sleep(0)  # each refuses new requests
        try:
            yield
        finally:
            for frontend in self._started:
                frontend.set_drained()
            if stops:
                last_s = max(frontend.left_s for frontend in self._started) + _LAST_S
                _, late = await asyncio.wait(stops, timeout=last_s)
                for stop in late:
                    stop.cancel()
                    _log.error("frontend '%s' does not stop; the server goes on without it", stops[stop].name)
                if late:
                    await asyncio.wait(late, timeout=1)

    async def _stop(self, frontend: Frontend) -> None:
        try:
            await _call(self._hooks[frontend.name].stop, frontend)
        except TritonError as error:
            _log.error("frontend '%s' could not be stopped: %s", frontend.name, error)


def _chosen(options: ServerOptions, given: Collection[str]) -> list[str]:
    """Names of the frontends of a server, in the order of their start.

    Raises:
        InvalidArg: the options ask for one and refuse it.
    """
    asked = {name for name, _, _ in options.frontend_config}
    allowed = {"grpc": options.allow_grpc, "http": options.allow_http, "metrics": options.allow_metrics}
    runs = {name: allowed[name] and ("frontends", name) not in options.disabled_plugins for name in allowed}
    for name in _BUILT_IN:
        if name in asked and not runs[name]:
            raise InvalidArg(
                f"--frontend-config asks for '{name}', and --allow-{name} or --disable-plugin refuses it"
            )
    own = [name for name in _BUILT_IN if runs[name]]
    others = {*given, *asked} - set(_BUILT_IN)
    return [*own, *sorted(others)]


def _called(name: str) -> str:
    return _BUILT_IN[name][1] if name in _BUILT_IN else f"frontend '{name}'"


def _addresses(frontend: Frontend) -> Sequence[Address]:
    """The addresses that a frontend has set.

    Raises:
        Internal: one is no `Address`.
        InvalidArg: there is no such port.
    """
    for address in frontend.addresses:
        if not isinstance(address, Address) or not isinstance(address.port, int):
            raise Internal(f"frontend.addresses has {address!r}; expected Address(host, port)")
        if not 0 <= address.port <= _MOST_PORT:
            raise InvalidArg(f"port {address.port} does not exist; expected 0 to {_MOST_PORT}")
    return frontend.addresses


async def _call(hook: Hook | None, frontend: Frontend) -> None:
    """Call a hook, and wait for it if it wants that.

    Raises:
        TritonError: what it has raised, or stands for that.
    """
    if hook is None:
        return
    try:
        waiting = hook(frontend)
        if isawaitable(waiting):
            await waiting
    except TritonError:
        raise
    except (Exception, SystemExit, asyncio.CancelledError) as exc:
        task = asyncio.current_task()
        if isinstance(exc, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the server has cancelled the hook, and not the hook something of its own
        _log.error("frontend '%s' has failed", frontend.name, exc_info=exc)
        raise Internal(exception_text(exc)) from exc
