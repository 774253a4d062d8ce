"""The headers of clients' calls, as replicas are sent them."""

from __future__ import annotations

from tritonpy.frontends.grpc.native.metadata import RequestHead

from tritonpy_router.grpc_client.header_blocks import encoded

_OF_THE_CONNECTION = frozenset((b"grpc-timeout", b"te", b"content-type", b"connection", b"keep-alive"))
_MOST_REMEMBERED = 256
_LONGEST_MS = 99_999_999


class CallBlocks:
    """Writes the headers of calls; what is the same for a client's next call is not written again."""

    __slots__ = ("_remembered",)

    def __init__(self) -> None:
        self._remembered: dict[RequestHead, bytes] = {}

    def block(self, head: RequestHead, left_s: float | None) -> bytes:
        """The block of a call's headers, as `GrpcUpstream.begin` takes it.

        Args:
            head: of the client.
            left_s: how long the client still waits; None for as long as it takes.
        """
        if left_s is not None:
            left_ms = max(1, min(_LONGEST_MS, round(left_s * 1000)))
            return _block(head) + encoded(((b"grpc-timeout", b"%dm" % left_ms),))
        found = self._remembered.get(head)
        if found is None:
            found = _block(head)
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[head] = found
        return found


def _block(head: RequestHead) -> bytes:
    return encoded(
        (
            (b":path", head.path.encode("latin-1")),
            (b"te", b"trailers"),
            (b"content-type", b"application/grpc"),
            *(
                (name, value)
                for name, value in head.headers
                if name not in _OF_THE_CONNECTION and not name.startswith(b":")
            ),
        )
    )
