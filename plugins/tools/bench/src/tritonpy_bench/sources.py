"""Where the requests of a client come from: prepared ones again and again, or sequences."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol

from tritonpy_bench.request_parts import Parts


class Source(Protocol):
    """The requests that a call sends one after the other.

    Attributes:
        is_open: a sequence has begun and not ended.
    """

    is_open: bool

    def next(self) -> bytes:
        """The next request."""

    def abandon(self) -> None:
        """A request failed: what follows begins a sequence of its own."""


class Repeated:
    """Requests one after the other, again and again; satisfies `Source`."""

    is_open = False

    def __init__(self, requests: Sequence[bytes], offset: int) -> None:
        self.next = islice(cycle(requests), offset % len(requests), None).__next__

    def abandon(self) -> None:
        """Nothing depends on the request that failed."""


@dataclass(frozen=True, slots=True)
class SequencePlan:
    """How sequences are made, in one client.

    Attributes:
        streams: rows of which a sequence takes one after the other, beginning with a stream's first.
        length: requests of a sequence.
        variation: part of the length by which sequences are longer or shorter.
        ids: the correlation ids that are used one after the other, again and again.
        seed: of lengths and of the choice of streams.
    """

    streams: Sequence[Sequence[Parts]]
    length: int | None
    variation: float
    ids: range
    seed: int


class Sequences:
    """Makes the sources of calls, each of which sends one sequence after the other.

    Args:
        plan: how sequences are made.
    """

    def __init__(self, plan: SequencePlan) -> None:
        self._plan = plan
        self._ids = cycle(plan.ids)
        self._streams = cycle(plan.streams)
        self._random = random.Random(plan.seed)

    def requests(self) -> Iterator[tuple[bytes, bool]]:
        """The requests of the next sequence, each with whether others follow."""
        stream = next(self._streams)
        length = len(stream) if self._plan.length is None else self._plan.length
        length = max(1, round(length * (1 + self._random.uniform(-1, 1) * self._plan.variation)))
        correlation_id = next(self._ids)
        for number in range(length):
            is_last = number == length - 1
            parts = stream[number % len(stream)]
            yield parts.of_sequence(correlation_id, number == 0, is_last), not is_last


class SequenceSource:
    """One sequence after the other; satisfies `Source`."""

    def __init__(self, sequences: Sequences) -> None:
        self.is_open = False
        self._sequences = sequences
        self._rest = sequences.requests()

    def next(self) -> bytes:
        """The next request of the sequence, or the first of another."""
        if not self.is_open:
            self._rest = self._sequences.requests()
        request, self.is_open = next(self._rest)
        return request

    def abandon(self) -> None:
        """The rest of the sequence is not sent."""
        self.is_open = False
