"""Room for requests: what counts, who waits, who comes next."""

from __future__ import annotations

from asyncio import sleep

import pytest
from tritonpy.admission import Admission
from tritonpy.errors import Unavailable

from .simulator.virtual_loop import in_virtual_time


class Reader:
    """Waits for room; satisfies `Waiter`."""

    def __init__(self, admission: Admission, held: int) -> None:
        self.held = held
        self.admission = admission
        self.has_given_up = False
        self.may_read = admission.hold(held)
        if not self.may_read:
            admission.wait(self)

    def on_room(self) -> None:
        self.may_read = True

    def on_no_room(self) -> None:
        self.has_given_up = True


def test_room_is_what_the_limit_leaves() -> None:
    admission = Admission(100)

    assert admission.hold(60)
    assert admission.admits(40)
    assert not admission.admits(41)
    assert not admission.hold(41)
    admission.release(101)
    assert admission.held == 0
    assert admission.admits(1000)  # alone


def test_without_a_limit_there_is_always_room() -> None:
    admission = Admission(0)

    assert admission.hold(10**15)
    assert admission.admits(10**15)


@in_virtual_time
async def test_those_who_wait_are_woken_in_their_order_as_room_is_made() -> None:
    admission = Admission(100)
    admission.hold(90)
    first, second = Reader(admission, 20), Reader(admission, 50)
    assert not first.may_read

    admission.release(50)  # 110 are held
    assert not first.may_read
    admission.release(10)

    assert first.may_read
    assert second.may_read


@in_virtual_time
async def test_one_who_holds_everything_goes_on_whatever_its_size() -> None:
    admission = Admission(100)
    admission.hold(10)
    large = Reader(admission, 500)
    admission.release(10)

    assert large.may_read


@in_virtual_time
async def test_one_who_has_left_is_not_called() -> None:
    admission = Admission(100)
    admission.hold(100)
    gone, patient = Reader(admission, 10), Reader(admission, 10)
    admission.leave(gone)
    admission.leave(gone)
    admission.release(110)

    assert not gone.may_read
    assert patient.may_read


@in_virtual_time
async def test_one_who_waits_for_long_is_told_once_that_there_was_no_room() -> None:
    admission = Admission(100, patience_s=5)
    admission.hold(100)
    first = Reader(admission, 10)
    await sleep(3)
    second, gone = Reader(admission, 10), Reader(admission, 10)
    admission.leave(gone)
    await sleep(3)
    assert (first.has_given_up, second.has_given_up) == (True, False)
    admission.release(130)
    await sleep(10)

    assert (first.may_read, second.may_read, gone.may_read) == (False, True, False)
    assert (second.has_given_up, gone.has_given_up) == (False, False)


def test_a_refusal_names_the_sizes_and_the_knob() -> None:
    admission = Admission(100)
    admission.hold(90)

    assert admission.refusal(20).message == (
        "request of 20 bytes refused: 90 bytes of requests are held and --max-inflight-bytes is 100"
    )


def test_bytes_are_held_while_a_block_runs_and_released_also_where_there_was_no_room() -> None:
    admission = Admission(10)

    with admission.holding(7):
        assert admission.held == 7
        with pytest.raises(Unavailable, match="request of 4 bytes refused"), admission.holding(4):
            raise AssertionError
        assert admission.held == 7

    assert admission.held == 0
