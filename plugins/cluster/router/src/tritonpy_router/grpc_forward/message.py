"""A message of a client: how it arrives, what the router reads of it, and the pieces that it leaves in."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

from tritonpy.frontends.grpc.native.call import Refused
from tritonpy.frontends.grpc.native.framing import PREFIX, Body, BrokenFraming
from tritonpy.frontends.grpc.status import Status

from tritonpy_router.grpc_client.call import Piece
from tritonpy_router.scan import Asked, Pieces, Unreadable, scan_message

_JOIN_BELOW = 16 * 1024
_MOST_SCANNED = 1 << 26
_SMALL = 4 * 1024
_PREFIX_SIZE = PREFIX.size


class OneMessage:
    """The message of a call that takes one, kept as the pieces that it came in, with its prefix.

    Pieces that are small are joined, for each costs more than its bytes.

    Args:
        announced: called with the size of the message when that is known; may raise to refuse it.

    Attributes:
        pieces: what has come.
        byte_size: of the message without its prefix; -1 while that is not known.
        received: bytes that have come.
    """

    __slots__ = ("_announced", "byte_size", "pieces", "received")

    def __init__(self, announced: Callable[[int], None]) -> None:
        self._announced = announced
        self.pieces: list[Piece] = []
        self.byte_size = -1
        self.received = 0

    @property
    def flag(self) -> int:
        """Whether it is compressed."""
        return self.pieces[0][0]

    def add(self, data: bytes) -> None:
        """Take bytes.

        Raises:
            BrokenFraming: they are no message.
            Refused: they are more than one.
        """
        pieces = self.pieces
        last = pieces[-1] if pieces else b""
        if pieces and len(data) < _SMALL and len(last) < _SMALL:
            if isinstance(last, bytearray):
                last += data
            else:
                pieces[-1] = bytearray(last) + data
        elif data:
            pieces.append(data)
        self.received += len(data)
        if self.byte_size < 0 and self.received >= _PREFIX_SIZE:
            if len(pieces[0]) < _PREFIX_SIZE:
                pieces[:] = [b"".join(pieces)]
            flag, self.byte_size = PREFIX.unpack_from(pieces[0])
            if flag > 1:
                raise BrokenFraming(f"a message begins with the flag {flag}")
            self._announced(self.byte_size)
        if self.byte_size >= 0 and self.received > _PREFIX_SIZE + self.byte_size:
            raise Refused(Status.UNIMPLEMENTED, "a call that takes one message got more")

    def end(self) -> None:
        """Nothing more comes.

        Raises:
            BrokenFraming: it is not complete.
            Refused: it has not begun.
        """
        if not self.received:
            raise Refused(Status.UNIMPLEMENTED, "a call that takes one message got none")
        if self.received != _PREFIX_SIZE + self.byte_size:
            raise BrokenFraming("the client's last message is incomplete")


def scanned(flag: int, coding: bytes, pieces: Sequence[Piece], position: int) -> Asked:
    """What a message says.

    Args:
        flag: whether it is compressed.
        coding: how.
        pieces: hold it.
        position: where it begins.

    Raises:
        Refused: it cannot be read.
    """
    try:
        if not flag:
            whole = pieces[0]
            if len(pieces) == 1 and not isinstance(whole, bytearray):
                return scan_message(whole, position)
            return scan_message(Pieces(pieces), position)
        inflate = zlib.decompressobj(wbits=31 if coding == b"gzip" else 15)
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return scan_message(inflate.decompress(memoryview(body)[position:], _MOST_SCANNED))
    except (Unreadable, zlib.error) as exc:
        raise Refused(Status.INTERNAL, f"Unable to parse request: {exc}") from None


def framed(flag: int, body: Body) -> Sequence[Piece]:
    """A message with its prefix, as pieces to send; a large one is not copied."""
    prefix = PREFIX.pack(flag, len(body))
    return (prefix, body) if len(body) > _JOIN_BELOW else (b"".join((prefix, body)),)
