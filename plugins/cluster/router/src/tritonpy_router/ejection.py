"""Ejection of replicas whose connections fail again and again; no clock of its own."""

from __future__ import annotations

from collections import deque

FAILURES = 3
"""Failures within `WINDOW_S` that eject a replica."""
WINDOW_S = 5.0
FIRST_EJECTION_S = 1.0
LONGEST_EJECTION_S = 30.0


class Ejection:
    """The failures of one replica, and how long it gets no requests for them.

    Each ejection in a row lasts twice as long as the one before, up to `LONGEST_EJECTION_S`; an answer begins
    anew.

    Attributes:
        until_s: when it is over, on the clock of `now_s`; 0 for none.
        count: ejections since the last answer.
    """

    __slots__ = ("_failures", "count", "until_s")

    def __init__(self) -> None:
        self._failures: deque[float] = deque(maxlen=FAILURES)
        self.until_s = 0.0
        self.count = 0

    def failed(self, now_s: float) -> bool:
        """Note a connection that could not be made or was lost; True if that ejects the replica."""
        self._failures.append(now_s)
        is_full = len(self._failures) == FAILURES
        if not is_full or now_s - self._failures[0] > WINDOW_S or self.is_ejected(now_s):
            return False
        self.until_s = now_s + min(FIRST_EJECTION_S * 2**self.count, LONGEST_EJECTION_S)
        self.count += 1
        self._failures.clear()
        return True

    def answered(self) -> None:
        """Note an answer, whatever it says."""
        if self._failures or self.count:
            self._failures.clear()
            self.count = 0
            self.until_s = 0.0

    def is_ejected(self, now_s: float) -> bool:
        """True while no request goes to the replica."""
        return now_s < self.until_s
