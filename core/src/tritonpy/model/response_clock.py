"""How long each response of a decoupled model took."""

from __future__ import annotations

import time

from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.stats import ModelStats


class ResponseClock:
    """Times the responses of one request, where the model runs, and counts them on the loop.

    See `tritonpy.parties.ResponseClock`. A worker process times its responses itself.
    """

    __slots__ = ("_index", "_stats", "mark_ns")

    def __init__(self, stats: ModelStats) -> None:
        self.mark_ns = 0
        self._index = 0
        self._stats = stats

    def lap(self) -> tuple[int, int]:
        """See `ResponseClock`; outputs that stay in this process need no time to get away."""
        now = time.monotonic_ns()
        infer_ns = now - self.mark_ns
        self.mark_ns = now
        return infer_ns, 0

    def count(
        self, request: InferRequest, response: InferResponse | None, durations: tuple[int, int]
    ) -> None:
        """See `ResponseClock`; what follows the final response is not counted."""
        if not request.answered:
            if self._index == 0 and response is not None:
                self._stats.count_first_response(request.queue_start_ns)
            self._stats.count_response(self._index, response, durations, request.cancelled)
            self._index += 1
