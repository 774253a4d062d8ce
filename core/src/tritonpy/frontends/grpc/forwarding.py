"""Metadata of a call that becomes parameters of its requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self, TypeAlias

from tritonpy.frontends.header_forwarding import HeaderForwarding, forwarded_parameters

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]


class MetadataForwarding:
    """Makes parameters of the metadata whose keys a pattern finds.

    Keys that end in `-bin` carry bytes, and parameters are text: those are left out.

    Args:
        pattern: see `HeaderForwarding`.

    Raises:
        InvalidArg: the pattern is no regular expression.
    """

    def __init__(self, pattern: str) -> None:
        self._forwarding = HeaderForwarding(pattern, "--grpc-header-forward-pattern")

    @classmethod
    def of(cls, pattern: str) -> Self | None:
        """The forwarding that a pattern asks for; None for an empty one."""
        return cls(pattern) if pattern else None

    def parameters(self, metadata: Metadata) -> dict[str, str]:
        """The parameters that a call's requests get.

        Raises:
            InvalidArg: a key means something to the server.
        """
        pairs = ((key.encode(), value.encode()) for key, value in metadata if isinstance(value, str))
        return forwarded_parameters(pair for pair in pairs if self._forwarding.finds(pair[0]))
