"""How many bytes of requests are held at once, over all frontends."""

from __future__ import annotations


class Admission:
    """Counts the bytes of requests that are held, so that memory stays bounded; on the loop only.

    Args:
        limit: bytes held at once; a request that arrives while nothing is held is let in whatever its size.
            0 means no limit.

    Attributes:
        held: bytes held now; frontends add what they read and take away what they have answered.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def admits(self, byte_size: int) -> bool:
        """Whether so many bytes more may be held now."""
        return not self.limit or not self.held or self.held + byte_size <= self.limit
