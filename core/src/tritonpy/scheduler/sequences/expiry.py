"""Sequences that may expire: those in the backlog, and those whose clients send nothing."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator

from tritonpy.scheduler.sequences.sequence import Sequence

_US = 1000
_LEAST_GONE = 64


class Backlog:
    """A line of sequences; the first one that may begin gets the next slot that becomes free."""

    def __init__(self) -> None:
        self._line: dict[Sequence, None] = {}
        self._deadlines: list[tuple[int, int, Sequence]] = []
        self._count = 0  # no two entries are compared by sequence

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._line)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._line

    def add(self, sequence: Sequence) -> None:
        """Put a sequence at the end."""
        self._line[sequence] = None

    def put_back(self, sequences: list[Sequence]) -> None:
        """Put sequences that had a slot before all others, in this order."""
        self._line = dict.fromkeys([*sequences, *self._line])

    def limit(self, sequence: Sequence, now_ns: int, timeout_us: int) -> None:
        """Shorten the wait of a sequence to the timeout of one of its requests."""
        deadline_ns = now_ns + timeout_us * _US
        if not sequence.deadline_ns or deadline_ns < sequence.deadline_ns:
            sequence.deadline_ns = deadline_ns
            self._count += 1
            heapq.heappush(self._deadlines, (deadline_ns, self._count, sequence))

    def pop(self) -> Sequence | None:
        """Take out the first one that may begin."""
        for sequence in self._line:
            if sequence.before is None:
                self.remove(sequence)
                return sequence
        return None

    def remove(self, sequence: Sequence) -> None:
        """Take one out, wherever it is."""
        self._line.pop(sequence, None)
        self._sweep()

    def expire(self, now_ns: int) -> list[Sequence]:
        """Take out those that have waited too long."""
        expired = []
        while (deadline_ns := self.next_deadline_ns) and deadline_ns <= now_ns:
            _, _, sequence = heapq.heappop(self._deadlines)
            del self._line[sequence]
            expired.append(sequence)
        return expired

    @property
    def next_deadline_ns(self) -> int:
        """The time at which the next one will have waited too long; 0 for never."""
        deadlines = self._deadlines
        while deadlines and deadlines[0][2] not in self._line:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else 0

    def _sweep(self) -> None:
        """Forget the deadlines of sequences that left, before they outnumber those that wait."""
        if len(self._deadlines) > 2 * len(self._line) + _LEAST_GONE:
            self._deadlines = [entry for entry in self._deadlines if entry[2] in self._line]
            heapq.heapify(self._deadlines)


class IdleWatch:
    """Tracks the idle sequences, and since when they are idle.

    A sequence is idle while none of its requests waits or is executed: a model that takes long for one does
    not make its client late.

    Args:
        limit_ns: how long a sequence may be idle.
    """

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns
        self._since: OrderedDict[Sequence, int] = OrderedDict()  # the longest idle one first
        self._new: dict[Sequence, None] = {}  # idle since the last look at the clock

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
        """The time at which the next one will have been idle for too long; 0 for never."""
        return next(iter(self._since.values())) + self._limit_ns if self._since else 0

    def clear(self) -> None:
        """Forget them all."""
        self._since.clear()
        self._new.clear()
