"""Loops against a transport that answers as a test wants it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import repeat

import pytest
from tritonpy.protos import messages
from tritonpy_bench import Concurrency, PeriodicConcurrency, Rate, Schedule
from tritonpy_bench.calls import Call
from tritonpy_bench.closed_loop import ClosedLoop
from tritonpy_bench.open_loop import OpenLoop
from tritonpy_bench.request_parts import GrpcParts
from tritonpy_bench.sources import Repeated, SequencePlan, Sequences, SequenceSource, Source
from tritonpy_bench.tally import Tally
from tritonpy_sdk.testing import until_async


class Answers:
    """Answers each request in the next turn of the loop; satisfies `Transport`."""

    def __init__(self, answer: Callable[[int], str | None] = lambda number: None) -> None:
        self.number = self.flying = self.most_flying = 0
        self._answer = answer

    async def open(self, count: int) -> None: ...

    async def close(self) -> None: ...

    def send(self, request: bytes, call: Call) -> None:
        self.number += 1
        self.flying += 1
        self.most_flying = max(self.most_flying, self.flying)
        asyncio.get_running_loop().call_soon(self._over, call, self._answer(self.number))

    def _over(self, call: Call, error: str | None) -> None:
        self.flying -= 1
        call.answered(error)


def requests() -> Source:
    return Repeated([b""], 0)


async def test_a_closed_loop_keeps_so_many_in_flight_and_ends_at_its_limit() -> None:
    transport, tally = Answers(), Tally()
    loop = ClosedLoop(transport, requests, tally, Concurrency(3), 10)

    loop.start()
    await loop.idle.wait()

    window = tally.take()
    assert (transport.number, transport.most_flying) == (10, 3)
    assert (window.sent_count, window.request_count, window.error_count) == (10, 10, 0)


class Prompt(Answers):
    """Says that each answer came 5 µs after its request, long before it tells the call of it."""

    def _over(self, call: Call, error: str | None) -> None:
        call.answered(error, call.sent_ns + 5_000)


async def test_latencies_end_when_answers_came_and_not_when_they_were_read() -> None:
    closed, opened = Tally(), Tally()
    loops = (
        ClosedLoop(Prompt(), requests, closed, Concurrency(1), 4),
        OpenLoop(Prompt(), requests, opened, repeat(0.0), 4),
    )

    for loop in loops:
        loop.start()
        await loop.idle.wait()
        loop.stop()

    for series in (closed.latency, opened.service):
        histogram = series.take()
        assert (histogram.count, histogram.least, histogram.greatest) == (4, 5_000, 5_000)


async def test_a_closed_loop_goes_on_after_failures_and_counts_each_text() -> None:
    tally = Tally()
    transport = Answers(lambda number: ("odd" if number % 2 else "even") if number <= 4 else None)
    loop = ClosedLoop(transport, requests, tally, Concurrency(2), 10)

    loop.start()
    await loop.idle.wait()

    window = tally.take()
    assert (window.errors, window.request_count) == ({"odd": 2, "even": 2}, 6)


async def test_a_growing_loop_grows_after_so_many_answers_and_ends() -> None:
    transport, tally = Answers(), Tally()
    loop = ClosedLoop(transport, requests, tally, PeriodicConcurrency(1, 5, 2, 6))

    loop.start()
    assert transport.flying == 1
    await loop.idle.wait()

    assert transport.most_flying == 5
    assert 18 <= tally.take().request_count < 18 + 5


async def test_a_growing_loop_ends_though_all_of_its_requests_fail() -> None:
    tally = Tally()
    loop = ClosedLoop(Answers(lambda number: "why"), requests, tally, PeriodicConcurrency(1, 2, 1, 3))

    loop.start()
    await loop.idle.wait()

    assert set(tally.take().errors) == {"why"}


async def test_a_stopped_loop_is_idle_when_the_last_answer_is_there() -> None:
    transport = Answers()
    loop = ClosedLoop(transport, requests, Tally(), Concurrency(2))

    loop.start()
    loop.stop()
    assert not loop.idle.is_set()
    await loop.idle.wait()

    assert transport.number == 2


@pytest.mark.parametrize("pace", [Schedule([0.0, 0.001, 0.002]), Schedule([0.0, 0.0, 0.0])], ids=repr)
async def test_an_open_loop_sends_each_request_of_a_schedule_and_ends(pace: Schedule) -> None:
    transport, tally = Answers(), Tally()
    loop = OpenLoop(transport, requests, tally, pace.times_s())

    loop.start()
    await loop.idle.wait()
    loop.stop()

    window = tally.take()
    assert (transport.number, window.request_count, window.due_count) == (3, 3, 3)


async def test_a_client_that_is_held_up_makes_all_requests_late_that_were_due_in_that_time() -> None:
    def hold(number: int) -> None:
        if number == 1:
            time.sleep(0.2)

    tally = Tally()
    loop = OpenLoop(Answers(hold), requests, tally, Rate(500).times_s(), 100)

    loop.start()
    await loop.idle.wait()
    loop.stop()

    window = tally.take()
    # All were due within the 0.2 s; the half that was due in the first 0.1 s waited for 0.1 s or more.
    assert window.latency_ns.percentile(50) > 0.09e9
    assert window.latency_ns.count == window.service_ns.count == 100
    assert window.service_ns.least < 0.09e9


async def test_an_open_loop_sends_while_nothing_is_answered_up_to_a_limit() -> None:
    class Silent(Answers):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[Call] = []

        def send(self, request: bytes, call: Call) -> None:
            self.calls.append(call)

    transport, tally = Silent(), Tally()
    loop = OpenLoop(transport, requests, tally, repeat(0.0), 1500)

    loop.start()
    await until_async(lambda: len(transport.calls) >= 1024)
    assert len(transport.calls) == 1024
    await until_async(lambda: tally.due_count == 1500)
    for number in range(1500):
        await until_async(lambda number=number: number < len(transport.calls))
        transport.calls[number].answered(None)
    await loop.idle.wait()
    loop.stop()

    assert tally.take().request_count == 1500


async def test_sequences_at_a_rate_are_under_way_at_the_same_time() -> None:
    class Kept(Answers):
        def __init__(self) -> None:
            super().__init__()
            self.ids: list[int] = []

        def send(self, request: bytes, call: Call) -> None:
            message = messages.ModelInferRequest.FromString(request[5:])
            self.ids.append(message.parameters["sequence_id"].int64_param)
            super().send(request, call)

    transport = Kept()
    parts = GrpcParts(messages.ModelInferRequest(model_name="m").SerializeToString())
    sequences = Sequences(SequencePlan([[parts]], 2, 0.0, range(1, 100), 0))
    loop = OpenLoop(
        *(transport, lambda: SequenceSource(sequences), Tally(), Rate(500).times_s(), 12, 3), takes_turns=True
    )

    loop.start()
    await loop.idle.wait()
    loop.stop()

    assert transport.ids == [1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6]


def test_a_tally_counts_many_kinds_of_errors_together() -> None:
    tally = Tally()

    for number in range(60):
        tally.failed(f"error {number}")

    errors = tally.take().errors
    assert (errors.total(), len(errors), errors["errors of other texts"]) == (60, 51, 10)
