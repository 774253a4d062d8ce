"""Durations of the responses of a decoupled model."""

from __future__ import annotations

import time

from tritonpy.response import InferResponse
from tritonpy.stats import ModelStats


class ResponseClock:
    """Times the responses of one request on the thread that executes it, and counts them on the loop.

    A worker process times its responses itself.

    Attributes:
        mark_ns: when the execution began, or the last response was on its way; the executing thread sets it.
    """

    __slots__ = ("_index", "_stats", "mark_ns")

    def __init__(self, stats: ModelStats) -> None:
        self.mark_ns = 0
        self._index = 0
        self._stats = stats

    def lap(self) -> tuple[int, int]:
        """The nanoseconds that the response which is ready now took to be computed, and to be brought away.

        The second is 0: outputs that stay in this process need no time for it.
        """
        now = time.monotonic_ns()
        infer_ns = now - self.mark_ns
        self.mark_ns = now
        return infer_ns, 0

    def count(
        self,
        response: InferResponse | None,
        durations: tuple[int, int],
        queue_start_ns: int,
        *,
        is_cancelled: bool,
    ) -> None:
        """Count a response.

        Args:
            response: None for a final flag that comes alone.
            durations: as `lap` gives them.
            queue_start_ns: when the request was queued.
            is_cancelled: the request has been given up.
        """
        if self._index == 0 and response is not None:
            self._stats.count_first_response(queue_start_ns)
        self._stats.count_response(self._index, response, durations, is_cancelled)
        self._index += 1
