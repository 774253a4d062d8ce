"""What servers count: a real one does it a moment after it has answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tritonpy_sdk.testing import DEADLINE_S

QUIET_S = 0.2

T = TypeVar("T")


def at_rest(read: Callable[[], T], quiet_s: float = QUIET_S) -> T:
    """What `read` gives as soon as it has given the same for a while."""
    deadline = time.monotonic() + DEADLINE_S
    found, since = read(), time.monotonic()
    while time.monotonic() - since < quiet_s:
        time.sleep(0.02)
        if (now := read()) != found:
            assert time.monotonic() < deadline, f"it never rests: {now}"
            found, since = now, time.monotonic()
    return found


def comes_to(read: Callable[[], T], wanted: T) -> T:
    """What `read` gives as soon as that is what is wanted, or what it gives in the end."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := read()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return found
