"""Responses in the order their requests arrived, for `preserve_ordering`."""

from __future__ import annotations

from collections import deque

from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse


class _Place:
    """One request's place in the line; holds its responses until everything before it is complete."""

    __slots__ = ("_order", "held", "is_complete", "sink")

    def __init__(self, order: ResponseOrder, sink: ResponseSink | None) -> None:
        self._order = order
        self.sink = sink
        self.held: list[tuple[InferRequest, InferResponse | None, bool]] = []
        self.is_complete = False

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Take a response from the model."""
        self.is_complete = self.is_complete or final
        self.held.append((request, response, final))
        self._order.release()

    def flush(self) -> None:
        """Hand on what is held."""
        held, self.held = self.held, []
        if self.sink is not None:
            for request, response, final in held:
                self.sink.on_response(request, response, final)


class ResponseOrder:
    """A line of requests: only the first one's responses pass."""

    def __init__(self) -> None:
        self._line: deque[_Place] = deque()
        self._is_releasing = False

    def enroll(self, request: InferRequest) -> None:
        """Give the request a place at the end of the line."""
        place = _Place(self, request.sink)
        request.sink = place
        self._line.append(place)

    def withdraw(self, request: InferRequest) -> None:
        """Take back the place of a request that was refused after all."""
        place = request.sink
        if isinstance(place, _Place):
            request.sink = place.sink
            self._line.remove(place)
            self.release()

    def release(self) -> None:
        """Let pass what may pass now."""
        if self._is_releasing:  # a sink that answers another request at once comes back here
            return
        self._is_releasing = True
        try:
            while self._line:
                first = self._line[0]
                first.flush()
                if not first.is_complete:
                    return
                self._line.popleft()
        finally:
            self._is_releasing = False
