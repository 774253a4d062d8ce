"""Responses in the order their requests arrived, for `preserve_ordering`.

A decoupled model may answer later requests many times while an early one is slow. Of what waits for its turn
so much is held as for a client that does not read; then senders wait, or, where the early request may itself
wait for the instance that such a sender occupies, their requests are given up when far more is held. The one
response of other models is held at any size: it cannot wait anywhere else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from tritonpy.errors import Cancelled
from tritonpy.flow import DEFAULT_LIMITS, Backlog, FlowLimits, ResponseFlow
from tritonpy.request import InferRequest, ResponseSink
from tritonpy.response import InferResponse


class _Place:
    """One request's place in the line; holds its responses until everything before it is complete."""

    __slots__ = ("_order", "held", "is_complete", "sink")

    def __init__(self, order: ResponseOrder, sink: ResponseSink | None) -> None:
        self._order = order
        self.sink = sink
        self.held: list[tuple[InferRequest, InferResponse | None, bool, int]] = []
        self.is_complete = False

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Take a response from the model."""
        if self.is_complete:  # it was given up
            return
        order = self._order
        byte_size = 0
        if not (final or order.is_first(self)):
            byte_size = 1 if response is None else sum(output.byte_size for output in response.outputs) + 1
            if not order.hold(request, byte_size):
                order.drop(self.held)
                self.held = []
                response, final, byte_size = InferResponse(error=Cancelled(order.reason)), True, 0
                request.give_up()
        self.is_complete = self.is_complete or final
        self.held.append((request, response, final, byte_size))
        order.release()

    def flush(self) -> None:
        """Hand on what is held."""
        held, self.held = self.held, []
        self._order.drop(held)
        for request, response, final, _ in held:
            if request.ticket.trace is not None:
                request.ticket.trace.responded(response, final, is_let_go=True)
            if self.sink is not None:
                self.sink.on_response(request, response, final)


class ResponseOrder:
    """A line of requests: only the first one's responses pass; on the loop only.

    Args:
        limits: how many responses may wait for their turn.
        can_wait: requests are executed in the order of the line, so that senders of later requests can wait
            for the first one.

    Attributes:
        reason: why the last request was given up.
    """

    def __init__(self, limits: FlowLimits = DEFAULT_LIMITS, *, can_wait: bool = False) -> None:
        self._line: deque[_Place] = deque()
        self._is_releasing = False
        self._can_wait = can_wait
        self._unheard = ResponseFlow()
        # No client is slow, only the model.
        self._backlog = Backlog(replace(limits, timeout_s=0), self._note_reason)
        self.reason = ""

    @property
    def held_byte_size(self) -> int:
        """Bytes of the responses that wait for their turn, without the last ones of their requests."""
        return self._backlog.byte_size

    def is_first(self, place: _Place) -> bool:
        """True if this is the head of the line."""
        return bool(self._line) and self._line[0] is place

    def hold(self, request: InferRequest, byte_size: int) -> bool:
        """Count a response that waits; False when so much does that the request is to be given up."""
        flow = request.response_flow if self._can_wait else lambda: self._unheard
        return self._backlog.add(byte_size, flow)

    def drop(self, held: list[tuple[InferRequest, InferResponse | None, bool, int]]) -> None:
        """Uncount responses that waited."""
        for _, _, _, byte_size in held:
            if byte_size:
                self._backlog.take(byte_size)

    def _note_reason(self, reason: str) -> None:
        self.reason = f"{reason.partition(' wait for the client')[0]} wait for those of an earlier request"

    def enroll(self, request: InferRequest) -> None:
        """Give the request a place at the end of the line."""
        place = _Place(self, request.ticket.sink)
        request.ticket.sink = place
        if request.ticket.trace is not None:
            request.ticket.trace.hold()
        self._line.append(place)

    def withdraw(self, request: InferRequest) -> None:
        """Take back the place of a request that was refused after all."""
        place = request.ticket.sink
        if isinstance(place, _Place):
            request.ticket.sink = place.sink
            if request.ticket.trace is not None:
                request.ticket.trace.hold(False)
            self._line.remove(place)
            self.release()

    def release(self) -> None:
        """Hand on the responses whose turn has come."""
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
