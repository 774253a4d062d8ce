from __future__ import annotations

import asyncio

from tritonpy.request import InferRequest
from tritonpy.workers.unanswered import UnansweredWatch

from ..simulator.virtual_loop import in_virtual_time


class Reports:
    """A watch over requests, what it reports, and when."""

    def __init__(self, after_s: float = 60) -> None:
        self.told: list[tuple[str, float]] = []
        self.watch = UnansweredWatch(after_s, self._report)

    def _report(self, request: InferRequest, age_s: float) -> None:
        self.told.append((request.id, round(age_s)))


def request(name: str) -> InferRequest:
    return InferRequest("m", {}, id=name)


@in_virtual_time
async def test_a_request_is_reported_once_when_its_time_is_over() -> None:
    reports = Reports()

    reports.watch.add(4, request("a"))
    await asyncio.sleep(59)
    assert reports.told == []

    await asyncio.sleep(2)
    assert reports.told == [("a", 60)]
    await asyncio.sleep(1000)
    assert reports.told == [("a", 60)]


@in_virtual_time
async def test_an_answered_request_is_not_reported() -> None:
    reports = Reports()

    reports.watch.add(4, request("a"))
    reports.watch.remove(4)
    reports.watch.remove(5)
    await asyncio.sleep(1000)

    assert reports.told == []


@in_virtual_time
async def test_each_request_has_its_own_time() -> None:
    reports = Reports()

    reports.watch.add(4, request("a"))
    await asyncio.sleep(10)
    reports.watch.add(5, request("b"))
    await asyncio.sleep(10)
    reports.watch.remove(4)
    reports.watch.add(4, request("c"))

    await asyncio.sleep(45)  # the time of the first, which has been answered
    assert reports.told == []
    await asyncio.sleep(10)
    assert reports.told == [("b", 60)]
    await asyncio.sleep(10)
    assert reports.told == [("b", 60), ("c", 60)]


@in_virtual_time
async def test_nothing_is_left_after_clear() -> None:
    reports = Reports()

    reports.watch.add(4, request("a"))
    reports.watch.clear()
    reports.watch.clear()
    await asyncio.sleep(30)
    reports.watch.add(4, request("b"))
    await asyncio.sleep(100)

    assert reports.told == [("b", 60)]


@in_virtual_time
async def test_zero_watches_nothing() -> None:
    reports = Reports(0)

    reports.watch.add(4, request("a"))
    await asyncio.sleep(1000)

    assert reports.told == []
