from __future__ import annotations

import asyncio
import itertools
import os
from types import SimpleNamespace
from typing import Any

import pytest
from tritonpy.model import read_ahead
from tritonpy.model.read_ahead import ReadAhead, SpinWait, ThreadReadAhead

from ..simulator.virtual_loop import in_virtual_time


def ahead_of(duration_ns: int, times: int = 200) -> tuple[ReadAhead, int]:
    """What is known of a model whose executions all take this long, and how many batches its worker gets."""
    ahead = ReadAhead()
    capacity = 0
    for _ in range(times):
        capacity = ahead.learn(duration_ns)
    return ahead, capacity


@pytest.mark.parametrize(
    ("duration_ns", "capacity"),
    [
        (0, 16),
        (20_000, 16),
        (100_000, 11),
        (400_000, 3),
        (3_000_000, 2),
        (9_000_000, 2),
        (11_000_000, 1),
        (1_000_000_000, 1),
    ],
)
def test_about_a_millisecond_of_work_is_sent_ahead_and_one_batch_up_to_ten(
    duration_ns: int, capacity: int
) -> None:
    assert ahead_of(duration_ns)[1] == capacity


@pytest.mark.parametrize(
    ("duration_ns", "capacity"),
    [(5_000, 1), (200_000, 1), (300_000, 2), (19_000_000, 2), (30_000_000, 1), (1_000_000_000, 1)],
)
def test_a_thread_is_fed_one_batch_ahead_if_its_calls_are_neither_short_nor_long(
    monkeypatch: pytest.MonkeyPatch, duration_ns: int, capacity: int
) -> None:
    monkeypatch.setattr(read_ahead, "_THREAD_AHEAD_BELOW_NS", 20_000_000)
    ahead = ThreadReadAhead()
    for _ in range(200):
        learnt = ahead.learn(duration_ns)

    assert learnt == capacity


def test_a_model_is_taken_for_a_slow_one_until_it_has_shown_otherwise() -> None:
    ahead, capacity = ahead_of(1_000, times=1)

    assert (ahead.is_quick, capacity) == (False, 2)


def test_one_slow_execution_among_quick_ones_does_not_stop_the_feeding() -> None:
    ahead, _ = ahead_of(20_000)

    assert ahead.learn(2_000_000) > 1
    for _ in range(50):
        capacity = ahead.learn(20_000)
    assert capacity == 16


@pytest.mark.skipif(os.cpu_count() == 1, reason="with one core nobody may stay awake")
def test_only_what_answers_within_microseconds_is_worth_staying_awake_for() -> None:
    assert ahead_of(20_000)[0].is_quick
    assert not ahead_of(100_000)[0].is_quick


class Executing:
    """An instance, as far as it says whether an answer is to come."""

    depth = 1


@in_virtual_time
async def test_loop_turns_until_the_answer_is_there_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    looks = itertools.count(0, 1_000)  # a microsecond for each
    monkeypatch.setattr(read_ahead, "time", SimpleNamespace(monotonic_ns=lambda: next(looks)))
    instance: Any = Executing()
    spin = SpinWait(loop, instance)

    spin.begin()
    for _ in range(10):
        await asyncio.sleep(0)
    assert 5 < next(looks) // 1_000 < 20
    instance.depth = 0
    began = next(looks)
    for _ in range(10):
        await asyncio.sleep(0)
    assert next(looks) == began + 1_000  # it does not look any more

    instance.depth = 1
    spin.begin()
    began = next(looks)
    for _ in range(500):
        await asyncio.sleep(0)
    assert next(looks) - began < 110_000
