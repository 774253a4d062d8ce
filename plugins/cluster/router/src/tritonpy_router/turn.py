"""The clients that one read of a replica was for: what they are sent leaves behind it, in one write each."""

from __future__ import annotations

from tritonpy.frontends.grpc.native.call import CallConnection


class Turn:
    """Collects connections of clients until what has come was looked at; on the loop only."""

    __slots__ = ("_touched",)

    def __init__(self) -> None:
        self._touched: dict[CallConnection, None] = {}

    def sent(self, connection: CallConnection) -> None:
        """Something was sent there, while what a replica sent is looked at."""
        self._touched[connection] = None

    def end(self) -> None:
        """All of it was looked at."""
        if self._touched:
            touched, self._touched = self._touched, {}
            for connection in touched:
                connection.sent_now()
