"""Compressed messages of gRPC, which are inflated here instead of in gRPC's core.

The core takes its memory in pieces of a kilobyte, most of which stays with the process, works on the threads
that read from sockets, and knows one limit for what is compressed and what is not. Told to leave messages as
they came, it does not say which of them are compressed. Their first bytes do: gzip's would be a field of a
type that does not exist, and zlib's, with the largest window, which is what gRPC writes, field 15, which no
request has.
"""

from __future__ import annotations

from tritonpy.admission import Admission
from tritonpy.errors import InvalidArg
from tritonpy.frontends.grpc.wire import RAW_INPUT_CONTENTS, split_field
from tritonpy.frontends.inflation import Inflater, inflated

COMPRESSED = (b"\x1f\x8b", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
"""How a compressed message begins."""

_FLAG = "--grpc-max-inflated-size"
_MOST_HERE = 64 * 1024
_MOST_PARSED = 4 * 1024 * 1024
_MOST_RATIO = 100


class MessageInflation:
    """Inflates messages that begin as `COMPRESSED` says.

    Args:
        limit: bytes that one may become.
        admission: counts what comes out while it does.
    """

    def __init__(self, limit: int, admission: Admission) -> None:
        self._limit = min(limit, admission.limit or limit)
        self._admission = admission

    async def inflate(self, body: bytes) -> memoryview:
        """The message of a request; see `inflation.inflated`.

        Raises:
            InvalidArg: also if much of what came out of little would have to be parsed, which takes the loop
                and many times the memory; raw tensors are not parsed.
            Unavailable: there is no room for what comes out.
        """
        message = await inflated(body, _coding(body), self._limit, _FLAG, self._admission)
        if len(message) > max(_MOST_PARSED, _MOST_RATIO * len(body)):
            split = split_field(message, RAW_INPUT_CONTENTS)
            parsed = len(message if split is None else split[0])
            if parsed > _MOST_PARSED:
                raise InvalidArg(
                    f"{parsed} bytes of the request's message are no raw_input_contents, and it came "
                    f"compressed to {len(body)}: no more than {_MOST_PARSED} may be, of a message that is "
                    f"compressed to less than 1/{_MOST_RATIO}"
                )
        return message


def inflate_here(body: bytes) -> bytes:
    """A message that can only be small, without giving up the thread.

    Raises:
        InvalidArg: it is not small, or broken.
    """
    inflater = Inflater(body, _coding(body), _MOST_HERE, _FLAG)
    inflater.inflate(None)
    return bytes(inflater.result)


def _coding(body: bytes) -> bytes:
    return b"gzip" if body.startswith(COMPRESSED[0]) else b"deflate"
