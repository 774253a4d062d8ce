"""Sequences whose clients have stopped to send."""

from __future__ import annotations

from collections import OrderedDict

from tritonpy.scheduler.sequences.sequence import Sequence


class IdleWatch:
    """Knows which sequences have nothing to do, and since when.

    A sequence is idle while none of its requests waits or is executed: a model that takes long for one does
    not make its client late.

    Args:
        limit_ns: how long a sequence may be idle.
    """

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns
        self._since: OrderedDict[Sequence, int] = OrderedDict()  # the longest idle one first
        self._new: dict[Sequence, None] = {}  # they have become idle, and nobody has looked at the clock yet

    def add(self, sequence: Sequence) -> None:
        """A sequence has nothing to do; its time counts from the next look at the clock."""
        self._new[sequence] = None

    def remove(self, sequence: Sequence) -> None:
        """A sequence has something to do, or is over."""
        if self._since.pop(sequence, None) is None:
            self._new.pop(sequence, None)

    def expire(self, now_ns: int) -> list[Sequence]:
        """Look at the clock: those that have been idle for too long."""
        since = self._since
        if self._new:
            since.update(dict.fromkeys(self._new, now_ns))
            self._new.clear()
        expired = []
        for sequence, since_ns in since.items():
            if now_ns - since_ns < self._limit_ns:
                break
            expired.append(sequence)
        for sequence in expired:
            del since[sequence]
        return expired

    @property
    def next_deadline_ns(self) -> int:
        """When the next one will have been idle for too long; 0 for never."""
        return next(iter(self._since.values())) + self._limit_ns if self._since else 0

    def clear(self) -> None:
        """Forget them all."""
        self._since.clear()
        self._new.clear()
