"""The headers of clients' calls, as replicas are sent them."""

from __future__ import annotations

from tritonpy.frontends.grpc.native.engine import Headers
from tritonpy.frontends.grpc.native.metadata import RequestHead

from tritonpy_router.grpc_client.header_blocks import encoded
from tritonpy_router.tracing import TRACE_HEADERS

_OF_THE_CONNECTION = frozenset((b"grpc-timeout", b"te", b"content-type", b"connection", b"keep-alive"))
_OF_TRACED = _OF_THE_CONNECTION | TRACE_HEADERS
_MOST_REMEMBERED = 256
_LONGEST_MS = 99_999_999


class CallBlocks:
    """Writes the headers of calls; what is the same for a client's next call is not written again."""

    __slots__ = ("_remembered",)

    def __init__(self) -> None:
        self._remembered: dict[RequestHead, bytes] = {}

    def block(self, head: RequestHead, left_s: float | None, trace: Headers | None = None) -> bytes:
        """The block of a call's headers, as `GrpcUpstream.begin` takes it.

        Args:
            head: of the client.
            left_s: how long the client still waits; None for as long as it takes.
            trace: stand in the place of those of the client; None where they stay.
        """
        if left_s is not None or trace is not None:
            block = _block(head) if trace is None else _block(head, _OF_TRACED) + encoded(trace)
            if left_s is None:
                return block
            left_ms = max(1, min(_LONGEST_MS, round(left_s * 1000)))
            return block + encoded(((b"grpc-timeout", b"%dm" % left_ms),))
        found = self._remembered.get(head)
        if found is None:
            found = _block(head)
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[head] = found
        return found


def _block(head: RequestHead, left_out: frozenset[bytes] = _OF_THE_CONNECTION) -> bytes:
    return encoded(
        (
            (b":path", head.path.encode("latin-1")),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            *(
                (name, value)
                for name, value in head.headers
                if name not in left_out and not name.startswith(b":")
            ),
        )
    )
