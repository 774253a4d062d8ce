"""Eviction of connections, when one more comes than there is room for, and the places beyond the limit."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

PLACES = 8
"""Places for connections beyond the limit, whose clients may ask for health."""
_NETWORK_OF_V6 = 64


class Quietable(Protocol):
    """A connection as this order sees it."""

    @property
    def is_quiet(self) -> bool:
        """Little is lost if the connection ends."""

    @property
    def has_asked(self) -> bool:
        """A request of this connection has been complete."""


_Connection = TypeVar("_Connection", bound=Quietable)


class QuietOrder(Generic[_Connection]):
    """Open connections, the quietest first; on the loop only.

    Those that have asked nothing come before those that have, and among these the one that has done nothing
    for longest. One that is found busy leaves the order and returns with its next answer. So each look
    after that follows something that its client has done, and newcomers cost the same however many there are.

    Attributes:
        busy: those that were found busy, and have not been answered since.
    """

    __slots__ = ("_asked", "_silent", "busy")

    def __init__(self) -> None:
        self._silent: OrderedDict[_Connection, None] = OrderedDict()
        self._asked: OrderedDict[_Connection, None] = OrderedDict()
        self.busy: set[_Connection] = set()

    def add(self, connection: _Connection) -> None:
        """A connection was opened."""
        self._silent[connection] = None

    def discard(self, connection: _Connection) -> None:
        """It is closed."""
        self._silent.pop(connection, None)
        self._asked.pop(connection, None)
        self.busy.discard(connection)

    def renew(self, connection: _Connection) -> None:
        """Its client has done something since the last look at all of them."""
        if connection in self._silent:
            del self._silent[connection]
        elif connection in self._asked:
            del self._asked[connection]
        else:
            return
        (self._asked if connection.has_asked else self._silent)[connection] = None

    def answered(self, connection: _Connection) -> None:
        """It may be quiet again; nothing needs to be said of one that is not in `busy`."""
        if connection in self.busy:
            self.busy.discard(connection)
            self._asked[connection] = None

    def take(self) -> _Connection | None:
        """Remove the quietest connection from the order; None if all are busy."""
        while self._silent:
            connection, _ = self._silent.popitem(last=False)
            if not connection.is_quiet:
                self.busy.add(connection)
            elif connection.has_asked:
                self._asked[connection] = None
            else:
                return connection
        while self._asked:
            connection, _ = self._asked.popitem(last=False)
            if connection.is_quiet:
                return connection
            self.busy.add(connection)
        return None


class Reservable(Protocol):
    """A connection as the reserve sees it."""

    @property
    def peer(self) -> str:
        """The address of its client; "" if that is not known."""


_Reserved = TypeVar("_Reserved", bound=Reservable)


class Reserve(Generic[_Reserved]):
    """Holds up to `PLACES` connections; on the loop only.

    When all are taken, a newcomer gets the place of the oldest connection of the network that has most, the
    newcomer counted with its own. So clients that come in great numbers from one address displace each other,
    and not a probe that comes from elsewhere.
    """

    __slots__ = ("_networks",)

    def __init__(self) -> None:
        self._networks: dict[_Reserved, str] = {}  # in the order in which they came

    def add(self, newcomer: _Reserved) -> _Reserved | None:
        """Give a connection a place; returns the one that loses its place, which is not the newcomer."""
        networks = self._networks
        own = _network(newcomer.peer)
        displaced = None
        if len(networks) >= PLACES:
            counts = dict.fromkeys(networks.values(), 0)
            counts[own] = 1
            for network in networks.values():
                counts[network] += 1
            most = max(counts[network] for network in networks.values())
            displaced = next(each for each, network in networks.items() if counts[network] == most)
            del networks[displaced]
        networks[newcomer] = own
        return displaced

    def discard(self, connection: _Reserved) -> None:
        """A connection is closed."""
        self._networks.pop(connection, None)


def _network(address: str) -> str:
    """The network of an address: clients often have many addresses of one /64 of IPv6."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), _NETWORK_OF_V6), strict=False).network_address)
