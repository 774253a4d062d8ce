"""Responses in the order of their requests, and what becomes of those that wait for their turn."""

from __future__ import annotations

import numpy as np
from tritonpy.errors import Cancelled
from tritonpy.flow import FlowLimits
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.ordering import ResponseOrder

from core.tests.tracing.support import Kept, begin

LIMITS = FlowLimits(max_response_count=1000, max_byte_size=100)


class Sink:
    """Notes what comes."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, object, bool]] = []

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        value: object = None
        if response is not None:
            value = response.error or int(response.outputs[0].numpy()[0])
        self.taken.append((request.id, value, final))


def enrolled(order: ResponseOrder, sink: Sink, *ids: str) -> list[InferRequest]:
    requests = [InferRequest("m", {}, id=id) for id in ids]
    for request in requests:
        request.ticket.sink = sink
        order.enroll(request)
    return requests


def output(value: int, byte_size: int = 1) -> InferResponse:
    return InferResponse().add("OUT", np.full(byte_size, value, np.uint8))


async def test_several_responses_of_each_request_keep_the_order_of_requests() -> None:
    order, sink = ResponseOrder(), Sink()
    first, second, third = enrolled(order, sink, "a", "b", "c")

    second.deliver(output(1), final=False)
    third.deliver(output(2))
    first.deliver(output(3), final=False)
    assert sink.taken == [("a", 3, False)]  # the head of the line waits for nobody
    second.deliver(None)
    first.deliver(output(4), final=False)
    first.deliver(None)

    assert sink.taken == [
        ("a", 3, False),
        ("a", 4, False),
        ("a", None, True),
        ("b", 1, False),
        ("b", None, True),
        ("c", 2, True),
    ]
    assert order.held_byte_size == 0


async def test_a_response_is_complete_in_a_trace_when_it_is_let_go() -> None:
    order, sink = ResponseOrder(), Sink()
    traces = [begin(Kept()) for _ in range(3)]
    first, second, third = (InferRequest("m", {}, id=id) for id in "abc")
    for request, trace in zip((first, second, third), traces, strict=True):
        request.ticket.sink = sink
        request.ticket.trace = trace
        order.enroll(request)

    def completed() -> list[bool]:
        return ["INFER_RESPONSE_COMPLETE" in [name for name, _ in trace._span.stamps] for trace in traces]

    second.deliver(output(1))
    assert completed() == [False, False, False]
    first.deliver(output(2))
    assert completed() == [True, True, False]
    order.withdraw(third)
    third.deliver(output(3))  # as one that is in no line
    assert completed() == [True, True, True]


async def test_a_request_that_is_refused_or_answers_nothing_holds_up_nobody() -> None:
    order, sink = ResponseOrder(), Sink()
    refused, silent, last = enrolled(order, sink, "a", "b", "c")

    last.deliver(output(1))
    silent.deliver(None)
    assert sink.taken == []
    refused.fail(Cancelled("no"))

    assert [(id, final) for id, _, final in sink.taken] == [("a", True), ("b", True), ("c", True)]


async def test_the_sender_of_a_later_request_waits_when_much_is_held() -> None:
    order, sink = ResponseOrder(LIMITS, can_wait=True), Sink()
    first, second = enrolled(order, sink, "a", "b")
    went_on: list[str] = []

    second.deliver(output(1, 60), final=False)
    second.response_flow().when_open(lambda: went_on.append("early"))
    second.deliver(output(2, 60), final=False)
    second.response_flow().when_open(lambda: went_on.append("late"))
    waiting = list(went_on)
    first.deliver(output(0))

    assert waiting == ["early"]
    assert went_on == ["early", "late"]
    assert [value for _, value, _ in sink.taken] == [0, 1, 2]
    assert order.held_byte_size == 0


async def test_a_sender_that_the_first_request_may_need_does_not_wait_but_is_given_up() -> None:
    limits = FlowLimits(max_response_count=100, max_byte_size=16 * 1024 * 1024)
    order, sink = ResponseOrder(limits, can_wait=False), Sink()
    first, second, third = enrolled(order, sink, "a", "b", "c")
    large = output(1, 1024 * 1024)

    for _ in range(100):
        assert not second.response_flow().is_paused
        second.deliver(large, final=False)
    most_held = order.held_byte_size
    second.deliver(None)
    third.deliver(output(2))
    first.deliver(output(0))

    assert most_held == 0  # it was given up, and what was held dropped
    assert second.ticket.is_given_up
    assert [(id, final) for id, _, final in sink.taken] == [("a", True), ("b", True), ("c", True)]
    error = sink.taken[1][1]
    assert isinstance(error, Cancelled)
    assert str(error) == "64 responses of 67108928 bytes wait for those of an earlier request"


async def test_the_one_response_of_a_request_is_held_whatever_its_size() -> None:
    order, sink = ResponseOrder(LIMITS), Sink()
    first, *later = enrolled(order, sink, *"abcdef")

    for number, request in enumerate(later):
        request.deliver(output(number, 1000))
    first.deliver(output(9))

    assert [value for _, value, _ in sink.taken] == [9, 0, 1, 2, 3, 4]
