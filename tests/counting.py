"""What servers count: a real one does it a moment after it has answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tritonpy_sdk.testing import until

QUIET_S = 0.2

T = TypeVar("T")


def at_rest(read: Callable[[], T], quiet_s: float = QUIET_S) -> T:
    """What `read` gives as soon as it has given the same for a while."""
    found, since = read(), time.monotonic()

    def rests() -> bool:
        nonlocal found, since
        if (now := read()) != found:
            found, since = now, time.monotonic()
        return time.monotonic() - since >= quiet_s

    until(rests, lambda: f"it rests, at {found!r}")
    return found


def comes_to(read: Callable[[], T], wanted: T) -> T:
    """What `read` gives as soon as that is what is wanted."""
    found = read()

    def is_wanted() -> bool:
        nonlocal found
        found = read()
        return found == wanted

    until(is_wanted, lambda: f"{found!r} becomes {wanted!r}")
    return found
