"""Clients that hang up while a model works for them, and waits for other models."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol

from tritonpy.request import InferRequest

_MOST_OVER = 64


class Calls(Protocol):
    """The calls of other models that a worker waits for; a `WorkerCalls`."""

    @property
    def count(self) -> int:
        """Those that have not been answered."""

    def give_up(self, batch: int) -> None:
        """Nobody wants the results of a batch any more: cancel what it waits for."""


class HangUps:
    """Cancels the calls of a batch when none of its requests is wanted any more; on the loop only.

    A batch goes on calling after `execute` has returned when coroutines answer it. Such batches are
    remembered here, without holding their requests.
    """

    def __init__(self) -> None:
        self._left: dict[int, list[weakref.ref[InferRequest]]] = {}

    def leave(self, batch: int, requests: Sequence[InferRequest], open_count: int) -> None:
        """The batch has been executed, and is answered later.

        Args:
            batch: its number.
            requests: its requests.
            open_count: requests that the worker has still to answer, of all batches.
        """
        self._left[batch] = [weakref.ref(request) for request in requests]
        if len(self._left) > 2 * open_count + _MOST_OVER:
            for number, left in list(self._left.items()):
                if all(map(_is_over, left)):
                    del self._left[number]

    def note(
        self, cancelled: InferRequest, running: Iterable[tuple[int, Sequence[InferRequest]]], calls: Calls
    ) -> None:
        """A request was cancelled.

        Args:
            cancelled: the request.
            running: the batches that the worker executes, by number.
            calls: what the worker waits for.
        """
        if not calls.count:
            return
        left = ((batch, [each() for each in requests]) for batch, requests in self._left.items())
        for batch, requests in chain(running, left):
            if cancelled in requests:
                if all(each is None or each.ticket.cancelled or each.ticket.answered for each in requests):
                    calls.give_up(batch)
                return


def _is_over(reference: weakref.ref[InferRequest]) -> bool:
    request = reference()
    return request is None or request.ticket.answered
