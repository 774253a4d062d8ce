"""The router: builds everything, follows the membership, starts and stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Sequence

from prometheus_client import CollectorRegistry
from tritonpy.admission import Admission
from tritonpy.frontends.certificates import server_context
from tritonpy.frontends.grpc.native.listener import GrpcListener
from tritonpy.frontends.http.listener import HttpListener
from tritonpy.frontends.http.router import Router as Routes
from tritonpy.frontends.metrics import MetricsPort
from tritonpy.frontends.sockets import most_connections
from tritonpy.metrics.exposition import MetricsPage
from tritonpy.options import ServerOptions

from tritonpy_router.control import Control
from tritonpy_router.dispatcher import Dispatcher
from tritonpy_router.grpc_front import make_calls
from tritonpy_router.http_front import make_routes
from tritonpy_router.membership import Membership
from tritonpy_router.metrics import ReplicaCollector, ReplicaRow, RouterMetrics
from tritonpy_router.options import RouterOptions
from tritonpy_router.picking import POLICIES
from tritonpy_router.probe import Prober
from tritonpy_router.replica import Place, Replica
from tritonpy_router.replica_client import ReplicaClient
from tritonpy_router.replica_tls import replica_context
from tritonpy_router.tracing import open_tracing
from tritonpy_router.traffic import Traffic
from tritonpy_router.view import View
from tritonpy_router.watching import Readiness
from tritonpy_router.wishes import WishFile

_log = logging.getLogger("tritonpy.router")

_SCRATCH_BYTE_SIZE = 256 * 1024
_SHARE = 1 / 3  # of the descriptors that ports may have; each request has one to a replica, too
_MOST_CONNECTIONS = 16_384
_LAST_BYTES_S = 5.0
_SWEEP_EVERY_S = 1.0
_LOOK_EVERY_S = 0.05  # while servers are awaited
_SHARED_EVERY_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0  # after a fault of the membership


class Router:
    """One router; on the loop only.

    Args:
        options: its settings.
        membership: tells which servers there are.

    Attributes:
        view: the replicas.
        control: all of them as one.
        http_port, grpc_port, metrics_port: listened on, once started; 0 for a port that is off.

    Raises:
        InvalidArg: an option cannot be met, or tracing needs what is not installed.
    """

    def __init__(self, options: RouterOptions, membership: Membership) -> None:
        self._options = options
        self._membership = membership
        ports = options.ports
        registry = CollectorRegistry()
        http_tls, grpc_tls = replica_context(options, ()), replica_context(options, ("h2",))
        self._service_tls = grpc_tls
        self.view = View(time.monotonic, POLICIES[options.policy])
        self._readiness = Readiness(self.view)
        self._dispatcher = Dispatcher(self.view, options.limits)
        self._tracing = open_tracing(ports.trace_config)
        self._traffic = Traffic(
            self.view, self._dispatcher, RouterMetrics(registry), http_tls, grpc_tls, self._tracing
        )
        self._prober = Prober(
            self.view,
            options.probe_interval_s,
            http_tls,
            dict(options.replica_headers),
            self._traffic.drop,
            self._changed,
            self._catch_up,
            self._client,
        )
        shared = None if options.state_file is None else WishFile(options.state_file)
        self.control = Control(self.view, self._prober, options.load_timeout_s, shared=shared)
        registry.register(ReplicaCollector(self._rows, lambda: self._dispatcher.queued))
        self._page = MetricsPage(registry, ())
        admission = Admission(ports.max_inflight_byte_size)
        routes = Routes(
            make_routes(self._traffic, self.control, options.shares_host), ports.http_restricted_apis
        )
        self._http = HttpListener(
            routes,
            admission,
            most_connections(ports.http_max_connection_count, _SHARE, _MOST_CONNECTIONS),
            json_limit=ports.http_max_input_byte_size,
            scratch_byte_size=_SCRATCH_BYTE_SIZE,
            when_crowded=routes.health_alone,
            idle_timeout_s=ports.idle_timeout_s,
            tls=server_context(ports.https_certificate, ports.https_key, ports.https_client_ca),
        )
        calls = make_calls(self._traffic, self.control, self._readiness, options.shares_host)
        self._grpc = GrpcListener(calls, admission, ports)
        self._metrics = MetricsPort(self._page)
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: set[Replica] = set()
        self._is_listening = False
        self.http_port = self.grpc_port = self.metrics_port = 0

    async def start(self) -> None:
        """Begin to ask replicas, and listen.

        Raises:
            InvalidArg: nobody knows an address.
            Unavailable: an address cannot be had, or what other routers were told cannot be read.
        """
        loop = asyncio.get_running_loop()
        await self.control.look_at_shared()  # before replicas are asked: they are brought to it
        self._tasks += [loop.create_task(self._follow()), loop.create_task(self._sweep())]
        if self._options.state_file is not None:
            self._tasks.append(loop.create_task(self.control.follow_shared(_SHARED_EVERY_S)))
        ports = self._options.ports
        try:
            await self._await_servers(self._options.await_servers_s)
            await self._listen(ports)
        except BaseException:
            await self.stop()
            raise

    async def _await_servers(self, limit_s: float) -> None:
        """Return when there are servers and all of them take requests, or the time is up."""
        if not limit_s:
            return
        try:
            async with asyncio.timeout(limit_s):
                while not self._has_all():
                    with contextlib.suppress(TimeoutError):  # that one is silent no more nobody tells
                        async with asyncio.timeout(_LOOK_EVERY_S):
                            await self._readiness.change()
        except TimeoutError:
            _log.warning("not all servers take requests after %g s; listening", limit_s)

    def _has_all(self) -> bool:
        """Whether there are servers, and all of them take requests."""
        now_s = self.view.now_s()
        return bool(self.view.replicas) and all(each.takes(now_s) for each in self.view)

    async def _listen(self, ports: ServerOptions) -> None:
        if ports.allow_http:
            self.http_port = await self._http.start(
                ports.http_address, ports.http_port, ports.http_reuse_port
            )
        if ports.allow_grpc:
            await self._grpc.start()
            self.grpc_port = self._grpc.port
        if ports.allow_metrics:
            self.metrics_port = await self._metrics.start(
                ports.metrics_address, ports.metrics_port, ports.metrics_reuse_port
            )
        self._is_listening = True

    async def taken(self, name: str) -> None:
        """Return when a replica takes requests."""
        while (replica := self.view.replicas.get(name)) is None or not replica.takes(self.view.now_s()):
            await self._readiness.change()

    async def stop(self) -> None:
        """Be unready for the drain delay, refuse new requests, answer what was accepted, and close."""
        options = self._options
        self._readiness.end()
        if options.drain_delay_s and self._is_listening:
            await asyncio.sleep(options.drain_delay_s)
        http = asyncio.get_running_loop().create_task(self._stop_http())
        await self._grpc.stop(options.exit_timeout_s, self._drained, lambda: None)
        await http
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._prober.close()
        self._traffic.close()
        await self._metrics.stop()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)

    async def _stop_http(self) -> None:
        await self._http.stop_accepting()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.exit_timeout_s):
                await self._drained()
        self._dispatcher.close()
        for replica in [*self.view, *self._leaving]:  # what is still under way is answered that it is lost
            self._traffic.drop(replica)
        await self._http.stop(_LAST_BYTES_S)

    async def _drained(self) -> None:
        """Return when no request, load or unload is under way."""
        await self._dispatcher.drained()
        await self.control.idle()

    async def _follow(self) -> None:
        """Take the members as they change; a membership may be a stranger's, and its faults end nothing."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                async for places in self._membership.changes():
                    self._take_members(places)
                    pause_s = _FIRST_PAUSE_S
                return
            except Exception:
                _log.exception("the servers cannot be followed; trying again in %g s", pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _take_members(self, places: Sequence[Place]) -> None:
        joined, left = self.view.set_members(places)
        for replica in left:
            _log.info("replica '%s' has left", replica.name)
            self._leaving.add(replica)
        for replica in joined:
            _log.info("replica '%s' at %s has joined", replica.name, replica.place.host)
            self._prober.add(replica)
        self._changed()

    def _leave(self, replica: Replica) -> None:
        self._prober.remove(replica)
        self._traffic.leave(replica)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            self._leaving.update(self.view.sweep())
            for replica in [each for each in self._leaving if not each.inflight]:
                self._leaving.remove(replica)
                self._leave(replica)

    def _changed(self) -> None:
        self._readiness.may_have_changed()
        self._dispatcher.retry()

    def _client(self, replica: Replica) -> ReplicaClient | None:
        options = self._options
        port = replica.place.replica_port or options.replica_service_port
        return ReplicaClient(replica.place, port, options.replica_token, self._service_tls) if port else None

    def _catch_up(self, replica: Replica) -> Awaitable[None]:
        return self.control.catch_up(replica)

    def _rows(self) -> list[ReplicaRow]:
        now_s = self.view.now_s()
        return [
            ReplicaRow(
                replica.name,
                replica.inflight,
                replica.takes(now_s),
                len(replica.models),
                None if replica.heard_s is None else replica.queue_ms / 1000,
            )
            for replica in self.view
        ]
