from __future__ import annotations

import os

import pytest
from tritonpy.workers.read_ahead import ReadAhead


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
