"""A message of a client: what the router reads of it, and the pieces that it leaves in."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from tritonpy.frontends.grpc.native.call import Refused
from tritonpy.frontends.grpc.native.framing import PREFIX, Body
from tritonpy.frontends.grpc.status import Status

from tritonpy_router.scan import Asked, Unreadable, scan_message

_JOIN_BELOW = 16 * 1024
_MOST_SCANNED = 1 << 26


def scanned(flag: int, coding: bytes, body: Body) -> Asked:
    """What a message says.

    Args:
        flag: whether it is compressed.
        coding: how.
        body: of the message.

    Raises:
        Refused: it cannot be read.
    """
    try:
        if not flag:
            return scan_message(body)
        inflate = zlib.decompressobj(wbits=31 if coding == b"gzip" else 15)
        return scan_message(inflate.decompress(body, _MOST_SCANNED))
    except (Unreadable, zlib.error) as exc:
        raise Refused(Status.INTERNAL, f"Unable to parse request: {exc}") from None


def framed(flag: int, body: Body) -> Sequence[Body]:
    """A message with its prefix, as pieces to send; a large one is not copied."""
    prefix = PREFIX.pack(flag, len(body))
    return (prefix, body) if len(body) > _JOIN_BELOW else (b"".join((prefix, body)),)
