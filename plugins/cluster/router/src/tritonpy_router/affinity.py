"""The replicas of running sequences: chosen by a hash, and kept while the sequence lasts.

All routers that see the same replicas choose the same one without a word between them. A replica that joins
meanwhile changes nothing for sequences that have begun.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import xxhash

Key = tuple[str, int | str]
"""A model's name and a correlation id."""


def highest(key: Key, names: Iterable[str]) -> str | None:
    """The replica for a sequence: whose name, hashed with the key, gives the highest number."""
    model, sequence = key
    text = f"{model}\0{type(sequence).__name__}\0{sequence}\0".encode()
    return max(names, key=lambda name: (xxhash.xxh3_64_intdigest(text + name.encode()), name), default=None)


class Pins:
    """Sequences that have begun, each with its replica.

    Those that nobody has sent a request of for as long as their model waits for one are forgotten: the
    replica has ended them, too.
    """

    def __init__(self) -> None:
        self._pins: OrderedDict[Key, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins)

    def find(self, key: Key, now_s: float) -> str | None:
        """The replica of a running sequence; None for one that is not known."""
        found = self._pins.get(key)
        if found is None:
            return None
        if found[1] <= now_s:
            del self._pins[key]
            return None
        return found[0]

    def pin(self, key: Key, replica: str, end_s: float) -> None:
        """Keep a sequence with a replica until `end_s`, unless another request of it comes."""
        self._pins[key] = (replica, end_s)
        self._pins.move_to_end(key)

    def end(self, key: Key) -> None:
        """The sequence is over."""
        self._pins.pop(key, None)

    def lose(self, replica: str) -> list[Key]:
        """Forget the sequences of a replica that is gone; returns them."""
        lost = [key for key, (name, _) in self._pins.items() if name == replica]
        for key in lost:
            del self._pins[key]
        return lost

    def open_on(self, replica: str, now_s: float) -> int:
        """How many sequences a replica has."""
        return sum(name == replica and end_s > now_s for name, end_s in self._pins.values())

    def sweep(self, now_s: float) -> None:
        """Forget what has ended by itself, from those that are idle longest to the first that has not."""
        expired = []
        for key, (_, end_s) in self._pins.items():
            if end_s > now_s:
                break
            expired.append(key)
        for key in expired:
            del self._pins[key]
