"""Errors of insertions: those about the entry, and those about the cache."""

from __future__ import annotations

from tritonpy.plugin import AlreadyExists, ErrorCode, TritonError

_REFUSALS = frozenset({ErrorCode.INVALID_ARG, ErrorCode.UNSUPPORTED})
"""With these a cache says that it does not want this one entry."""

_AMBIGUOUS = frozenset({ErrorCode.INTERNAL, ErrorCode.UNKNOWN})
"""With these it says that too, as Triton's own does of one that is too large; or that it does not work."""


class CacheFailure(Exception):
    """A cache that could not keep an entry for a reason that lies in itself; the text is its own."""


def of_insertion(error: TritonError, *, are_lookups_answered: bool) -> Exception:
    """The error for the server: a `TritonError` is about this entry only.

    Args:
        error: of the library.
        are_lookups_answered: the cache works as far as can be seen.
    """
    if (
        isinstance(error, AlreadyExists)
        or error.code in _REFUSALS
        or (error.code in _AMBIGUOUS and are_lookups_answered)
    ):
        return error
    return CacheFailure(error.described())
