"""Whether a cache is worth asking: one that fails again and again costs every request its timeout."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger("tritonpy.cache")

MOST_FAILURES = 3
"""So many in a row, and the cache is left alone."""

PAUSE_NS = 1_000_000_000
"""How long it is; then it is asked once."""


class CacheHealth:
    """Counts failures in a row; on the loop only.

    Args:
        name: of the cache, for the log.
        clock: monotonic nanoseconds.
    """

    def __init__(self, name: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._name = name
        self._clock = clock
        self._failures = 0
        self._ask_again_ns = 0

    @property
    def is_failing(self) -> bool:
        """Whether the cache is left alone now."""
        return self._failures >= MOST_FAILURES

    def may_ask(self) -> bool:
        """Whether to ask it now; while it fails, one caller a second is told so."""
        if self._failures < MOST_FAILURES:
            return True
        now = self._clock()
        if now < self._ask_again_ns:
            return False
        self._ask_again_ns = now + PAUSE_NS
        return True

    def succeeded(self) -> None:
        """It has answered, be it that it has nothing."""
        if self.is_failing:
            _log.info("response cache '%s' answers again", self._name)
        self._failures = 0

    def failed(self, reason: str) -> None:
        """It has not; the first time that this is too much, the log says so."""
        self._failures += 1
        if self._failures == MOST_FAILURES:
            self._ask_again_ns = self._clock() + PAUSE_NS
            _log.warning(
                "response cache '%s' has failed %d times in a row, the last time with \"%s\"; requests go on "
                "without it, and it is asked once a second until it answers",
                self._name,
                MOST_FAILURES,
                reason,
            )
