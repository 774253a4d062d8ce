"""Decisions about the number of servers, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tritonpy_ray.autoscale import Autoscaler, Rule
from tritonpy_ray.looks import Load

RULE = Rule(least=1, most=6, target_ms=10)


class Fleet:
    """Servers that share a traffic evenly, looked at each second."""

    def __init__(self, count: int, rule: Rule = RULE) -> None:
        self.count = count
        self.now_s = 0.0
        self.counts: list[int] = []
        self._scaler = Autoscaler(rule, 0.0)
        self._requests = self._queue_us = 0.0

    def live(
        self,
        seconds: int,
        rate: float,
        delay_ms: Callable[[int], float],
        pending: float = 0,
        every_s: int = 1,
    ) -> None:
        for _ in range(0, seconds, every_s):
            self.now_s += every_s
            self._requests += every_s * rate
            self._queue_us += every_s * rate * 1000 * delay_ms(self.count)
            load = Load({"m": self._requests}, {"m": self._queue_us}, pending)
            self._scaler.observe(self.now_s, {"all": load})
            self.count = self._scaler.decide(self.now_s, self.count)
            self.counts.append(self.count)


def steps(counts: list[int]) -> list[tuple[int, int]]:
    """When the number changed, in seconds, and to what."""
    return [(second + 2, after) for second, (before, after) in enumerate(pairwise(counts)) if before != after]


def test_a_server_comes_every_half_minute_while_requests_wait_too_long() -> None:
    fleet = Fleet(1)
    fleet.live(130, 10, lambda count: 25)

    assert steps([1, *fleet.counts]) == [(31, 2), (61, 3), (91, 4), (121, 5)]


def test_a_server_goes_after_five_minutes_in_which_one_less_would_do() -> None:
    fleet = Fleet(3)
    fleet.live(700, 10, lambda count: 1)

    assert [after for _, after in steps(fleet.counts)] == [2, 1]
    assert [second for second, _ in steps(fleet.counts)] == [300, 600]


def test_delays_that_need_all_servers_change_nothing() -> None:
    fleet = Fleet(3)
    fleet.live(2000, 10, lambda count: 9)

    assert set(fleet.counts) == {3}


def test_few_requests_say_nothing_of_delays() -> None:
    fleet = Fleet(1)
    fleet.live(200, 0.5, lambda count: 10_000)

    assert set(fleet.counts) == {1}


def test_without_requests_servers_go_unless_some_wait() -> None:
    idle, waiting = Fleet(2), Fleet(2)
    idle.live(400, 0, lambda count: 0)
    waiting.live(400, 0, lambda count: 0, pending=3)

    assert (idle.count, waiting.count) == (1, 2)


def test_the_worst_model_counts_and_counters_may_begin_anew() -> None:
    scaler = Autoscaler(RULE, 0)
    for second in range(41):
        looked = second % 20  # its server is started again every 20 s
        quick, slow = {"m": 100.0 * looked, "n": 10.0 * looked}, {"m": 0.0, "n": 10.0 * looked * 30_000}
        scaler.observe(second, {"a": Load(quick, slow)})

    assert scaler.delay_ms() == 30
    assert scaler.decide(41, 1) == 2


def test_limits_that_have_changed_count_at_once() -> None:
    assert Autoscaler(Rule(least=3, most=6, target_ms=10), 0).decide(0, 1) == 3


def test_a_number_that_was_too_small_is_tried_again_with_less_traffic_only() -> None:
    def delay_ms(rate: float) -> Callable[[int], float]:
        return lambda count: 1.0 if rate < 100 * count else 40.0

    fleet = Fleet(1)
    fleet.live(200, 150, delay_ms(150))
    assert fleet.count == 2
    fleet.live(2000, 150, delay_ms(150))
    assert set(fleet.counts[-2000:]) == {2}
    fleet.live(400, 90, delay_ms(90))
    assert fleet.count == 1


@given(
    start=st.integers(1, 6),
    rate=st.floats(0.1, 2000),
    capacity=st.floats(10, 500),
    service_ms=st.floats(0.1, 50),
)
def test_with_even_traffic_the_number_turns_once_at_most(
    start: int, rate: float, capacity: float, service_ms: float
) -> None:
    def delay_ms(count: int) -> float:
        used = min(rate / (count * capacity), 0.99)
        return service_ms * used / (1 - used)

    fleet = Fleet(start)
    fleet.live(3000, rate, delay_ms, every_s=5)

    changes = [after - before for before, after in pairwise(fleet.counts) if after != before]
    assert set(changes) <= {1, -1}
    assert sum(one != next_one for one, next_one in pairwise(changes)) <= 1
