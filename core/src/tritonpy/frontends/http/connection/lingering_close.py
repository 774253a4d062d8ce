"""The end of a connection whose request was refused while its client may still be sending it.

Most clients read only after they have sent everything. Closed meanwhile, the connection would be reset, and
the answer that says why lost with it. So what still comes is read and forgotten until nothing has come for a
while, though not for ever.
"""

from __future__ import annotations

import asyncio

from tritonpy.frontends.sockets import has_unread

QUIET_S = 2.0
MOST_LOOKS = 15


class Parting:
    """Closes a connection on which nothing more is answered; on the loop only.

    Args:
        transport: of the connection; its side is ended where the protocol can say that.

    Attributes:
        has_sent: the client has sent something since the last look; set by who reads it.
    """

    __slots__ = ("_looks", "_transport", "has_sent")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._looks = 0
        self.has_sent = False
        if transport.can_write_eof():
            transport.write_eof()
        self._wait()

    def hurry(self) -> None:
        """Close at the next look, whatever still comes."""
        self._looks = MOST_LOOKS

    def _wait(self) -> None:
        asyncio.get_running_loop().call_later(QUIET_S, self._look)

    def _look(self) -> None:
        self._looks += 1
        # A loop that was kept from reading comes here first.
        if self._looks < MOST_LOOKS and (self.has_sent or has_unread(self._transport)):
            self.has_sent = False
            self._wait()
        else:
            self._transport.close()
