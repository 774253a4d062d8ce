"""Restriction of parts of the protocol to clients that know a key."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from tritonpy.errors import InvalidArg
from tritonpy.options import RestrictedCalls

CATEGORIES = (
    "health",
    "metadata",
    "inference",
    "shared-memory",
    "model-config",
    "model-repository",
    "statistics",
    "trace",
    "logging",
)
"""Categories of calls that can be restricted, each as a whole."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """A header that calls need.

    Attributes:
        header: the name of the header, as it was configured.
        value: what the header must say.
    """

    header: str
    value: str

    @property
    def key(self) -> bytes:
        """The header's name in lower case, as frontends keep headers."""
        return self.header.lower().encode("latin-1", "replace")

    def admits(self, value: bytes | str | None) -> bool:
        """True if this header admits a caller; takes the same time for every wrong value."""
        if value is None:
            return False
        said = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        return hmac.compare_digest(said, self.value.encode())


def guards(restricted: Iterable[RestrictedCalls]) -> dict[str, Restriction]:
    """The restriction of each category; those that are free for all are not in it.

    Args:
        restricted: as the server's options have it.

    Raises:
        InvalidArg: a category is not one of Triton's, or is restricted twice.
    """
    found: dict[str, Restriction] = {}
    for categories, header, value in restricted:
        for category in sorted(set(categories)):
            if category not in CATEGORIES:
                raise InvalidArg(
                    f"cannot restrict '{category}': the protocol has the categories {', '.join(CATEGORIES)}"
                )
            if category in found:
                raise InvalidArg(
                    f"category '{category}' is restricted twice, by the headers '{found[category].header}' "
                    f"and '{header}'; one header guards each"
                )
            found[category] = Restriction(header, value)
    return found
