"""Eviction of connections, when one more comes than there is room for."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


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
