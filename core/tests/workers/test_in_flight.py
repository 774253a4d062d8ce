"""Slots and batches of one worker, with numbers only."""

from __future__ import annotations

import asyncio
import gc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tritonpy.errors import Internal
from tritonpy.model.execution import Execution
from tritonpy.request import InferRequest
from tritonpy.workers.in_flight import InFlight, UnansweredWatch

from ..simulator.virtual_loop import in_virtual_time
from .hand_driven import Asked, batch_of

SLOT_COUNT = 6


class NoWatch:
    """A watch over requests that stay open, which only remembers them."""

    def __init__(self) -> None:
        self.open: set[int] = set()

    def add(self, slot: int, request: InferRequest) -> None:
        self.open.add(slot)

    def remove(self, slot: int) -> None:
        self.open.discard(slot)

    def clear(self) -> None:
        self.open.clear()


def in_flight(flags: bytearray | None = None) -> InFlight:
    return InFlight(NoWatch(), bytearray(100) if flags is None else flags)  # type: ignore[arg-type]


def sent(work: InFlight, number: int, *asked: Asked) -> tuple[Execution, list[int]]:
    """Have a batch at the worker."""
    execution = batch_of(*asked)
    work.reserve(len(asked))
    work.batches[number] = execution, [work.add(request) for request in execution.requests]
    return work.batches[number]


def test_slot_is_given_to_another_request_once_its_own_is_over() -> None:
    work = in_flight()
    one, other = Asked(), Asked()
    execution, slots = sent(work, 1, one)

    work.release_all(execution, slots)
    _, again = sent(work, 2, other)

    assert slots == again
    work.release_all(execution, slots)  # late: the slot is another's by now
    assert work.requests == {slots[0]: other.request}


def test_request_cancelled_before_it_was_sent_arrives_cancelled() -> None:
    flags = bytearray(100)
    work = in_flight(flags)
    asked = Asked()
    asked.request.cancel()

    execution, slots = sent(work, 1, asked)
    assert flags[slots[0]] == 1
    work.release_all(execution, slots)

    assert not any(flags)


def test_batch_whose_requests_are_all_cancelled_is_unwanted_if_its_model_calls_others() -> None:
    work = in_flight()
    one, other = Asked(), Asked()
    sent(work, 7, one, other)

    def cancelled(asked: Asked) -> int | None:
        asked.request.cancel()
        return work.cancel(asked.request)

    assert cancelled(one) is None  # the model calls nobody
    work.has_called = True
    assert work.cancel(one.request) is None  # the other one is wanted
    assert cancelled(other) == 7


def test_batch_answered_later_is_unwanted_when_nobody_is_left_who_waits_for_it() -> None:
    work = in_flight()
    work.has_called = True
    cancelled, answered, gone = Asked(), Asked(), Asked()
    execution, slots = sent(work, 7, cancelled, answered, gone)
    del work.batches[7]

    assert work.leave(7, execution, slots) == execution.requests
    answered.request.deliver(None)
    work.release(slots[2])
    del gone, execution
    gc.collect()
    cancelled.request.cancel()

    assert work.cancel(cancelled.request) == 7


def test_batches_that_are_over_are_not_remembered_for_long() -> None:
    work = in_flight()

    for number in range(1000):
        asked = Asked()
        execution, slots = sent(work, number, asked)
        del work.batches[number]
        work.leave(number, execution, slots)
        asked.request.deliver(None)
        work.release(slots[0])

    assert len(work._left) < 100


def test_what_a_dead_worker_had_not_begun_is_spared() -> None:
    work = in_flight()
    begun, waiting, later = Asked(), Asked(), Asked()
    left, slots = sent(work, 1, later)
    del work.batches[1]
    work.leave(1, left, slots)
    sent(work, 2, begun)
    third, _ = sent(work, 3, waiting)

    spared = work.lose(Internal("It died"), 1)

    assert spared == [third]
    assert waiting.responses == []
    assert waiting.request.ticket.slot == -1
    assert begun.error == "It died while it executed this request"
    assert later.error == "It died before this request had its final response"


def test_question_about_a_request_that_is_over_is_answered_at_once() -> None:
    told = []

    in_flight().when_open(3, lambda: told.append("go on"))

    assert told == ["go on"]


class Slots(RuleBasedStateMachine):
    """Whatever happens in whichever order: open requests have slots of their own, and free ones no flag."""

    def __init__(self) -> None:
        super().__init__()
        self.flags = bytearray(SLOT_COUNT)
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("tritonpy.workers.in_flight.CONTROL_SLOTS", SLOT_COUNT)
        self.work = in_flight(self.flags)
        self.number = 0
        self.open: list[Asked] = []

    def teardown(self) -> None:
        self.patch.undo()

    def wanted(self, asked: Asked) -> bool:
        return self.work.requests.get(asked.request.ticket.slot) is asked.request

    @precondition(lambda self: self.work.room > 1)
    @rule(count=st.integers(1, 2), is_cancelled=st.booleans())
    def send(self, count: int, is_cancelled: bool) -> None:
        asked = [Asked() for _ in range(count)]
        if is_cancelled:
            asked[0].request.cancel()
        self.number += 1
        sent(self.work, self.number, *asked)
        self.open += asked

    @precondition(lambda self: bool(self.work.batches))
    @rule(data=st.data(), is_left=st.booleans())
    def execute(self, data: st.DataObject, is_left: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.work.batches)))
        execution, slots = self.work.batches.pop(number)
        if is_left:
            self.work.leave(number, execution, slots)
        else:
            self.work.release_all(execution, slots)
            self.open = [asked for asked in self.open if asked.request not in execution.requests]

    @precondition(lambda self: bool(self.open))
    @rule(data=st.data())
    def answer_one(self, data: st.DataObject) -> None:
        asked = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.work.release(asked.request.ticket.slot)

    @precondition(lambda self: bool(self.open))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.open))
        asked.request.cancel()
        self.work.cancel(asked.request)

    @invariant()
    def open_requests_have_slots_of_their_own(self) -> None:
        assert all(map(self.wanted, self.open))
        assert len(self.work.requests) == len(self.open)
        assert self.work.room == SLOT_COUNT - len(self.open)

    @invariant()
    def flags_are_those_of_open_requests_that_are_cancelled(self) -> None:
        cancelled = {asked.request.ticket.slot for asked in self.open if asked.request.ticket.cancelled}
        assert {slot for slot in range(SLOT_COUNT) if self.flags[slot]} == cancelled


TestSlots = Slots.TestCase
TestSlots.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class Reports:
    """A watch over requests, what it reports, and when."""

    def __init__(self, after_s: float = 60) -> None:
        self.told: list[tuple[str, float]] = []
        self.watch = UnansweredWatch(after_s, self._report)

    def _report(self, request: InferRequest, age_s: float) -> None:
        self.told.append((request.id, round(age_s)))


def named(name: str) -> InferRequest:
    return InferRequest("m", {}, id=name)


@in_virtual_time
async def test_a_request_is_reported_once_when_its_time_is_over() -> None:
    reports = Reports()

    reports.watch.add(4, named("a"))
    await asyncio.sleep(59)
    assert reports.told == []

    await asyncio.sleep(2)
    assert reports.told == [("a", 60)]
    await asyncio.sleep(1000)
    assert reports.told == [("a", 60)]


@in_virtual_time
async def test_an_answered_request_is_not_reported() -> None:
    reports = Reports()

    reports.watch.add(4, named("a"))
    reports.watch.remove(4)
    reports.watch.remove(5)
    await asyncio.sleep(1000)

    assert reports.told == []


@in_virtual_time
async def test_each_request_has_its_own_time() -> None:
    reports = Reports()

    reports.watch.add(4, named("a"))
    await asyncio.sleep(10)
    reports.watch.add(5, named("b"))
    await asyncio.sleep(10)
    reports.watch.remove(4)
    reports.watch.add(4, named("c"))

    await asyncio.sleep(45)  # the time of the first, which has been answered
    assert reports.told == []
    await asyncio.sleep(10)
    assert reports.told == [("b", 60)]
    await asyncio.sleep(10)
    assert reports.told == [("b", 60), ("c", 60)]


@in_virtual_time
async def test_nothing_is_left_after_clear() -> None:
    reports = Reports()

    reports.watch.add(4, named("a"))
    reports.watch.clear()
    reports.watch.clear()
    await asyncio.sleep(30)
    reports.watch.add(4, named("b"))
    await asyncio.sleep(100)

    assert reports.told == [("b", 60)]


@in_virtual_time
async def test_zero_watches_nothing() -> None:
    reports = Reports(0)

    reports.watch.add(4, named("a"))
    await asyncio.sleep(1000)

    assert reports.told == []
