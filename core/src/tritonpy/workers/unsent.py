"""Batches that wait for a worker, because theirs has died and the next one is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tritonpy.errors import TritonError
from tritonpy.model.execution import Execution


class UnsentBatches:
    """The batches of one instance that no worker has, in their order; on the loop only."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Execution] = []

    def add(self, execution: Execution) -> None:
        """Have one wait behind the others."""
        self._waiting.append(execution)

    def add_first(self, executions: Sequence[Execution]) -> None:
        """Have some wait before the others: a worker had them that has not begun them."""
        self._waiting[:0] = executions

    def take_all(self) -> list[Execution]:
        """There is a worker: what it is to be sent."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def fail(
        self, reason: TritonError, is_meant: Callable[[Execution], bool] = lambda execution: True
    ) -> int:
        """Answer those that are meant with an error; how many they are."""
        failed_count = 0
        for execution in self.take_all():
            if is_meant(execution):
                failed_count += 1
                execution.fail(reason)
            else:
                self._waiting.append(execution)
        return failed_count
