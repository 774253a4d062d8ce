"""A reserve of connections: the places beyond a port's limit, whose clients may ask for health."""

from __future__ import annotations

import ipaddress
from typing import Generic, Protocol, TypeVar

PLACES = 8
NO_ROOM = "the server has no room for more connections"
"""What a client is told that asks for anything else."""
_NETWORK_OF_V6 = 64


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

    def __len__(self) -> int:
        return len(self._networks)

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
