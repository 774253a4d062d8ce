"""Where the requests of a client come from: prepared ones again and again, or sequences."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Protocol

from tritonpy_bench.answers import Expected
from tritonpy_bench.request_parts import Parts


class Source(Protocol):
    """The requests that a call sends one after the other.

    Attributes:
        is_open: a sequence has begun and not ended.
        expected: what the answer to the request that `next` gave last has to be; empty if nobody says it.
    """

    is_open: bool
    expected: Sequence[Expected]

    def next(self) -> bytes:
        """The next request."""

    def abandon(self) -> None:
        """A request failed: what follows begins a sequence of its own."""


class Repeated:
    """Requests one after the other, again and again; satisfies `Source`."""

    is_open = False
    expected: Sequence[Expected] = ()

    def __init__(self, requests: Sequence[bytes], offset: int) -> None:
        self.next = islice(cycle(requests), offset % len(requests), None).__next__

    def abandon(self) -> None:
        """Nothing depends on the request that failed."""


class Checked:
    """As `Repeated`, where it is known what the answers have to be; satisfies `Source`.

    Args:
        requests: sent one after the other, again and again.
        expected: what the answer to each has to be.
        offset: the request that is sent first.
    """

    is_open = False

    def __init__(
        self, requests: Sequence[bytes], expected: Sequence[Sequence[Expected]], offset: int
    ) -> None:
        self.expected: Sequence[Expected] = ()
        pairs = zip(requests, expected, strict=True)
        self._pairs = islice(cycle(pairs), offset % len(requests), None)

    def next(self) -> bytes:
        """The next request."""
        request, self.expected = next(self._pairs)
        return request

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
        expected: what the answer to each request of each stream has to be; empty if nobody says it.
    """

    streams: Sequence[Sequence[Parts]]
    length: int | None
    variation: float
    ids: range
    seed: int
    expected: Sequence[Sequence[Sequence[Expected]]] = ()


class Sequences:
    """Makes the sources of calls, each of which sends one sequence after the other.

    Args:
        plan: how sequences are made.
    """

    def __init__(self, plan: SequencePlan) -> None:
        self._plan = plan
        self._ids = cycle(plan.ids)
        nothing: list[list[Sequence[Expected]]] = [[()] * len(stream) for stream in plan.streams]
        self._streams = cycle(zip(plan.streams, plan.expected or nothing, strict=True))
        self._random = random.Random(plan.seed)

    def requests(self) -> Iterator[tuple[bytes, bool, Sequence[Expected]]]:
        """The requests of the next sequence, each with whether others follow, and what is expected."""
        stream, expected = next(self._streams)
        length = len(stream) if self._plan.length is None else self._plan.length
        length = max(1, round(length * (1 + self._random.uniform(-1, 1) * self._plan.variation)))
        correlation_id = next(self._ids)
        for number in range(length):
            is_last = number == length - 1
            step = number % len(stream)
            request = stream[step].of_sequence(correlation_id, number == 0, is_last)
            yield request, not is_last, expected[step]


class SequenceSource:
    """One sequence after the other; satisfies `Source`."""

    def __init__(self, sequences: Sequences) -> None:
        self.is_open = False
        self.expected: Sequence[Expected] = ()
        self._sequences = sequences
        self._rest = sequences.requests()

    def next(self) -> bytes:
        """The next request of the sequence, or the first of another."""
        if not self.is_open:
            self._rest = self._sequences.requests()
        request, self.is_open, self.expected = next(self._rest)
        return request

    def abandon(self) -> None:
        """The rest of the sequence is not sent."""
        self.is_open = False
