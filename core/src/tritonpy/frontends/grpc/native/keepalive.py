"""The age and idleness of connections, pings to silent clients, and limits to the pings of clients.

The rules and their numbers are those of gRPC's core, which the flags are named after.
"""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass
from typing import Protocol

from tritonpy.options import ServerOptions

GREETING_S = 20.0
"""How long a client may take to say that it speaks HTTP/2."""
TOO_MANY_PINGS = b"too_many_pings"
"""What a client is told that pings too often; clients of gRPC then do so half as often."""
AGED = b"max_age"
IDLE = b"max_idle"
"""What a client is told whose connection is asked to end."""

_IDLE_PING_S = 7200.0  # between the pings of a client that has no call open and needs none to be kept
_LEAVING_S = 5.0
_JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The limits of a connection's life; durations in seconds, `math.inf` for no limit.

    Attributes:
        idle_s: how long one may have no call.
        age_s: how long one may live, give or take a tenth.
        grace_s: how long its calls may take after that.
        ping_after_s: silence after which its client is pinged.
        ping_timeout_s: how long the answer may take.
        pings_without_calls: also ping while no call is open.
        most_pings_without_data: pings sent without any call in between; 0 for no limit.
        least_between_pings_s: how often a client may ping that is sent nothing else.
        most_strikes: how many pings beyond that are borne; 0 for no limit.
    """

    idle_s: float
    age_s: float
    grace_s: float
    ping_after_s: float
    ping_timeout_s: float
    pings_without_calls: bool
    most_pings_without_data: int
    least_between_pings_s: float
    most_strikes: int

    @classmethod
    def of(cls, options: ServerOptions) -> Lifetimes:
        """The limits that the options of a server set."""
        return cls(
            idle_s=options.idle_timeout_s or math.inf,
            age_s=options.grpc_max_connection_age_ms / 1000 or math.inf,
            grace_s=options.grpc_max_connection_age_grace_ms / 1000 or math.inf,
            ping_after_s=options.grpc_keepalive_time_ms / 1000,
            ping_timeout_s=options.grpc_keepalive_timeout_ms / 1000,
            pings_without_calls=options.grpc_keepalive_permit_without_calls,
            most_pings_without_data=options.grpc_http2_max_pings_without_data,
            least_between_pings_s=options.grpc_http2_min_recv_ping_interval_without_data_ms / 1000,
            most_strikes=options.grpc_http2_max_ping_strikes,
        )


class PingStrikes:
    """Counts pings of a client that come too soon.

    Args:
        lifetimes: how often they may come.
    """

    __slots__ = ("_last", "_lifetimes", "_sent_count", "_strikes")

    def __init__(self, lifetimes: Lifetimes) -> None:
        self._lifetimes = lifetimes
        self._last = -math.inf
        self._strikes = 0
        self._sent_count = 0

    def are_too_many(self, now: float, call_count: int, sent_count: int) -> bool:
        """A client has pinged; whether it is to be sent away.

        Args:
            now: of the loop's clock.
            call_count: calls that are open.
            sent_count: how often it was sent something, ever; what is sent makes up for earlier pings.
        """
        limits = self._lifetimes
        if sent_count != self._sent_count:
            self._sent_count = sent_count
            self._last = -math.inf
            self._strikes = 0
        is_idle = not call_count and not limits.pings_without_calls
        soonest = self._last + (_IDLE_PING_S if is_idle else limits.least_between_pings_s)
        self._last = now
        if now < soonest:
            self._strikes += 1
        return 0 < limits.most_strikes < self._strikes


class Kept(Protocol):
    """A connection whose time is limited."""

    @property
    def call_count(self) -> int:
        """Calls that are open."""

    @property
    def has_greeted(self) -> bool:
        """The client has said that it speaks HTTP/2."""

    @property
    def is_blocked(self) -> bool:
        """The client takes nothing of what is written, and nothing is read from it meanwhile."""

    @property
    def is_leaving(self) -> bool:
        """Its client has been asked to open no more calls, or will have been."""

    def ping(self) -> None:
        """Ask the client whether it is there."""

    def leave(self, text: bytes) -> None:
        """Ask the client to open no more calls, and say why."""

    def end(self) -> None:
        """Take no more calls, and close when those that are open have been answered."""

    def abort(self) -> None:
        """Drop the connection at once."""


class Lifetime:
    """The clock of one connection; on the loop only. One timer serves all that may become due.

    Args:
        connection: the connection, which has just been made.
        lifetimes: its limits.
        loop: has the time.

    Attributes:
        last_read: when bytes came.
        idle_since: when the last call ended.
    """

    __slots__ = (
        "_aged_at",
        "_connection",
        "_left_at",
        "_lifetimes",
        "_loop",
        "_opened",
        "_pinged",
        "_pings",
        "_pings_idle_since",
        "_timer",
        "idle_since",
        "last_read",
    )

    def __init__(self, connection: Kept, lifetimes: Lifetimes, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._lifetimes = lifetimes
        self._loop = loop
        now = loop.time()
        self._opened = self.last_read = self.idle_since = now
        self._aged_at = now + lifetimes.age_s * random.uniform(1 - _JITTER, 1 + _JITTER)
        self._left_at = math.inf
        self._pinged = math.inf  # when the ping was sent that waits for its answer
        self._pings = 0  # sent since a call was open
        self._pings_idle_since = now
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def stop(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()

    def answered(self) -> None:
        """A ping has been answered: the next one is due after as much silence again."""
        if self._pinged != math.inf:
            self.stop()
            self._look()

    def _look(self) -> None:
        now = self._loop.time()
        due = min(self._greeting(now), self._silence(now), self._idleness(now), self._age(now))
        self._timer = None if due == math.inf else self._loop.call_at(max(due, now + 0.001), self._look)

    # Each does what is due, and says when to look again.

    def _greeting(self, now: float) -> float:
        due = self._opened + GREETING_S
        if self._connection.has_greeted:
            return math.inf
        if now >= due:
            self._connection.abort()
            return math.inf
        return due

    def _silence(self, now: float) -> float:
        limits, connection = self._lifetimes, self._connection
        if connection.is_blocked:  # a ping would not leave, nor its answer be read
            self._pinged = math.inf
            return now + limits.ping_after_s
        if self._pinged != math.inf:
            if self.last_read >= self._pinged:
                self._pinged = math.inf
            elif now >= self._pinged + limits.ping_timeout_s:
                connection.abort()
                return math.inf
            else:
                return self._pinged + limits.ping_timeout_s
        due = self.last_read + limits.ping_after_s
        if now < due:
            return due
        if self._pings_idle_since != self.idle_since:
            self._pings_idle_since = self.idle_since
            self._pings = 0
        may = connection.has_greeted and (connection.call_count or limits.pings_without_calls)
        most = limits.most_pings_without_data
        if not may or (most and not connection.call_count and self._pings >= most):
            return now + limits.ping_after_s
        self._pings += 1
        self._pinged = now
        connection.ping()
        return now + limits.ping_timeout_s

    def _idleness(self, now: float) -> float:
        connection, limits = self._connection, self._lifetimes
        if limits.idle_s == math.inf or connection.is_leaving:
            return math.inf
        if connection.call_count or not connection.has_greeted:
            return now + limits.idle_s
        due = self.idle_since + limits.idle_s
        if now < due:
            return due
        self._begin_to_leave(now, IDLE)
        return math.inf

    def _age(self, now: float) -> float:
        connection, limits = self._connection, self._lifetimes
        if self._left_at == math.inf:
            if now < self._aged_at:
                return self._aged_at
            if not connection.is_leaving:
                self._begin_to_leave(now, AGED)
        if now >= self._left_at + _LEAVING_S:
            connection.end()  # whether or not the client has said that it knows
        if now >= self._left_at + limits.grace_s:
            connection.abort()
            return math.inf
        ends = self._left_at + limits.grace_s
        return min(ends, self._left_at + _LEAVING_S) if now < self._left_at + _LEAVING_S else ends

    def _begin_to_leave(self, now: float, text: bytes) -> None:
        self._left_at = now
        self._connection.leave(text)
