"""What all requests share on their way through the router: the choice, the connections, the counters."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakSet

from tritonpy.frontends.http.connection.answering import HttpConnection

from tritonpy_router.call_blocks import CallBlocks
from tritonpy_router.dispatcher import Dispatcher
from tritonpy_router.grpc_client.pool import GrpcPool
from tritonpy_router.http_client import HttpPool
from tritonpy_router.metrics import RouterMetrics
from tritonpy_router.replica import Replica
from tritonpy_router.scan import Asked
from tritonpy_router.tracing import RouterTracing
from tritonpy_router.turn import Turn
from tritonpy_router.view import View

_log = logging.getLogger("tritonpy.router")

_MOST_RETRIES = 1  # of a request that was sent
_RETRY_SHARE = 0.1
_RETRIES_AT_ONCE = 10.0


class Pools(NamedTuple):
    """The connections to one replica.

    Attributes:
        http: to its HTTP port.
        grpc: to its gRPC port.
        host: what its HTTP port is called in requests.
    """

    http: HttpPool
    grpc: GrpcPool
    host: bytes


class RetryBudget:
    """Lets so many requests be executed again: one for ten that are sent, and a few at once."""

    def __init__(self) -> None:
        self._left = _RETRIES_AT_ONCE

    def sent(self) -> None:
        """Note a request."""
        self._left = min(_RETRIES_AT_ONCE, self._left + _RETRY_SHARE)

    def take(self) -> bool:
        """Whether one more may be executed again; counts it if so."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Traffic:
    """The way through the router; on the loop only.

    Args:
        view: knows the replicas.
        dispatcher: gives requests to them.
        metrics: counts.
        http_tls, grpc_tls: how the ports of replicas are encrypted; None for not.
        tracing: says which inference requests are traced; None where none is.

    Attributes:
        budget: of retries.
        turn: of clients that replicas have answered.
        blocks: writes the headers of calls.
    """

    def __init__(
        self,
        view: View,
        dispatcher: Dispatcher,
        metrics: RouterMetrics,
        http_tls: ssl.SSLContext | None,
        grpc_tls: ssl.SSLContext | None,
        tracing: RouterTracing | None = None,
    ) -> None:
        self.view = view
        self.dispatcher = dispatcher
        self.metrics = metrics
        self.tracing = tracing
        self.now_s: Callable[[], float] = view.now_s
        self.budget = RetryBudget()
        self.turn = Turn()
        self.blocks = CallBlocks()
        self._tls = http_tls, grpc_tls
        self._pools: dict[Replica, Pools] = {}
        self._left: WeakSet[Replica] = WeakSet()

    def pools(self, replica: Replica) -> Pools:
        """The connections to a replica."""
        found = self._pools.get(replica)
        if found is None:
            place = replica.place
            host = f"[{place.host}]" if ":" in place.host else place.host
            http_tls, grpc_tls = self._tls
            found = Pools(
                HttpPool(place, http_tls),
                GrpcPool(place, grpc_tls, self.turn.end),
                f"{host}:{place.http_port}".encode(),
            )
            if replica in self._left:  # nobody would close them
                found.http.close()
                found.grpc.close()
            else:
                self._pools[replica] = found
        return found

    def leave(self, replica: Replica) -> None:
        """Close the connections to a replica when they are free."""
        self._left.add(replica)
        pools = self._pools.pop(replica, None)
        if pools is not None:
            pools.http.close()
            pools.grpc.close()

    def drop(self, replica: Replica) -> None:
        """End what is under way at a replica that answers nothing any more."""
        pools = self._pools.get(replica)
        if pools is not None:
            pools.http.drop()
            pools.grpc.drop()

    def close(self) -> None:
        """Close all connections to replicas."""
        for replica in list(self._pools):
            self.leave(replica)

    def may_retry(self, asked: Asked, replica: Replica, tried: int) -> bool:
        """Whether a request that a replica was sent, and that it may have executed, is executed again."""
        facts = replica.facts.get(asked.model)
        return (
            tried < _MOST_RETRIES
            and facts is not None
            and facts.is_retriable
            and not self.view.is_pinned(asked)
            and self.budget.take()
        )

    def log_unreachable(self, replica: Replica, exc: Exception) -> None:
        """Say that a connection could not be made."""
        _log.warning("replica '%s' cannot be reached: %s", replica.name, exc or type(exc).__name__)

    @staticmethod
    def peer(connection: HttpConnection) -> bytes:
        """The address of a client, for the replica's log."""
        peer = getattr(connection, "peer", "")
        return peer.encode() or b"unknown"
