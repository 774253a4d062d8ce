"""Loads that wait for other loads, so that none begins to wait in a circle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Waits:
    """Who waits for whom, by names of models; owned by the loop.

    A model waits for another one when its `initialize` has asked for that one to be loaded, an ensemble for
    those it is made of.
    """

    def __init__(self) -> None:
        self._pairs: list[tuple[str, str]] = []

    @contextmanager
    def waiting(self, model: str, awaited: str) -> Iterator[None]:
        """The load of `model` waits for that of `awaited` while inside."""
        pair = model, awaited
        self._pairs.append(pair)
        try:
            yield
        finally:
            self._pairs.remove(pair)

    def chain(self, name: str, target: str) -> list[str]:
        """The way from `name` to `target`, each waiting for the next; empty when there is none."""
        ways = [[name]]
        seen = {name}
        while ways:
            way = ways.pop()
            if way[-1] == target:
                return way
            for waiting, awaited in self._pairs:
                if waiting == way[-1] and awaited not in seen:
                    seen.add(awaited)
                    ways.append([*way, awaited])
        return []
