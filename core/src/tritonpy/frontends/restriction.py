"""Which parts of the protocol only those may call who know a key."""

from __future__ import annotations

from dataclasses import dataclass

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
"""What can be restricted, each as a whole."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """Calls of some categories need a header.

    Attributes:
        categories: of `CATEGORIES`.
        header: the name of the header, as it was configured.
        value: what the header must say.
    """

    categories: frozenset[str]
    header: str
    value: str
