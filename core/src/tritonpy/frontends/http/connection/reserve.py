"""Places for connections beyond the limit, whose clients may ask for health."""

from __future__ import annotations

import ipaddress
from typing import Generic, Protocol, TypeVar

PLACES = 8
_NETWORK_OF_V6 = 64


class Reservable(Protocol):
    """A connection as the reserve sees it."""

    @property
    def peer(self) -> str:
        """The address of its client; "" if that is not known."""


_Connection = TypeVar("_Connection", bound=Reservable)


class Reserve(Generic[_Connection]):
    """Holds up to `PLACES` connections; on the loop only.

    When all are taken, a newcomer gets the place of the oldest connection of the network that has most, the
    newcomer counted with its own. So clients that come in great numbers from one address displace each other,
    and not a probe that comes from elsewhere.
    """

    __slots__ = ("_networks",)

    def __init__(self) -> None:
        self._networks: dict[_Connection, str] = {}  # in the order in which they came

    def add(self, newcomer: _Connection) -> _Connection | None:
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

    def discard(self, connection: _Connection) -> None:
        """A connection is closed."""
        self._networks.pop(connection, None)


def _network(address: str) -> str:
    """What addresses have in common that are easily had together."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), _NETWORK_OF_V6), strict=False).network_address)
