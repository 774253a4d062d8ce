"""What all connections of one listening port share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tritonpy.frontends.admission import Admission
from tritonpy.frontends.header_forwarding import HeaderForwarding
from tritonpy.frontends.http.connection.access_log import AccessLog
from tritonpy.frontends.http.connection.answering import Handler
from tritonpy.frontends.http.connection.half_closed import UnreadWatch
from tritonpy.frontends.http.connection.quiet_order import Quietable, QuietOrder

Connection = TypeVar("Connection", bound=Quietable)


@dataclass(frozen=True, slots=True)
class Port(Generic[Connection]):
    """One for all connections; a connection only refers to it.

    Attributes:
        handler: answers requests.
        admission: counts the bytes of requests that are held.
        json_limit: the largest body that is not binary.
        scratch: where small reads land.
        on_open, on_close: keep the server's list of connections.
        forwarding: which headers are kept as they were written; None for none.
        access_log: where answers are noted; None for nowhere.
        is_tls: bytes are encrypted.
        quiet_order: is told when a connection that was found busy has been answered.
        unread: notices clients that go away while they are not read.
    """

    handler: Handler
    admission: Admission
    json_limit: int
    scratch: memoryview
    on_open: Callable[[Connection], None]
    on_close: Callable[[Connection], None]
    forwarding: HeaderForwarding | None = None
    access_log: AccessLog | None = None
    is_tls: bool = False
    quiet_order: QuietOrder[Connection] = field(default_factory=QuietOrder)
    unread: UnreadWatch = field(default_factory=UnreadWatch)
