"""The order of a queue with levels, against a plain model of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tritonpy.errors import Unavailable
from tritonpy.request import InferRequest
from tritonpy.scheduler.queues import LeveledQueue, QueuePolicy

US = 1000
MS = 1_000_000


def request(priority: int = 0, *, at_ns: int = 0, timeout_us: int = 0) -> InferRequest:
    made = InferRequest("m", {}, priority=priority, timeout_us=timeout_us)
    made.queue_start_ns = at_ns
    return made


def queue(*policies: QueuePolicy, default_level: int = 1) -> LeveledQueue:
    return LeveledQueue(QueuePolicy(), len(policies), default_level, dict(enumerate(policies, 1)))


def add(waiting: LeveledQueue, *requests: InferRequest) -> Sequence[InferRequest]:
    for one in requests:
        waiting.add(one)
    return requests


def test_levels_run_one_after_the_other_and_each_in_order_of_arrival() -> None:
    waiting = queue(*[QueuePolicy()] * 3, default_level=2)
    priorities = (3, 3, 2, 0, 1, 0, 1, 99)
    requests = add(waiting, *map(request, priorities))

    assert [requests.index(one) for one in waiting.order] == [4, 6, 2, 3, 5, 7, 0, 1]
    assert waiting.take(3) == [requests[4], requests[6], requests[2]]
    assert list(waiting.order) == [requests[3], requests[5], requests[7], requests[0], requests[1]]


def test_adding_tells_where_the_request_went() -> None:
    waiting = queue(QueuePolicy(), QueuePolicy())

    assert [waiting.add(request(priority)) for priority in (2, 2, 1, 1, 2)] == [0, 1, 0, 1, 4]


def test_a_full_level_refuses_and_counts_delayed_requests_too() -> None:
    waiting = queue(QueuePolicy(max_size=2, timeout_ns=10, delays=True), QueuePolicy(max_size=1))
    add(waiting, request(1), request(1), request(2))
    assert waiting.expire(10) == ([], 0)

    for priority in (1, 2):
        with pytest.raises(Unavailable, match="Exceeds maximum queue size"):
            waiting.add(request(priority))
    waiting.take(1)
    waiting.add(request(1))


def test_a_request_whose_time_is_up_leaves_with_an_error() -> None:
    waiting = queue(QueuePolicy(timeout_ns=10 * MS))
    first, second = add(waiting, request(at_ns=0), request(at_ns=4 * MS))

    assert waiting.next_deadline_ns == 10 * MS
    assert waiting.expire(10 * MS - 1) == ([], 2)
    ((expired, error),), lowest = waiting.expire(10 * MS)
    assert (expired, str(error), lowest) == (first, "Request timeout expired", 0)
    assert list(waiting.order) == [second]
    assert waiting.next_deadline_ns == 14 * MS


def test_a_delayed_request_waits_behind_its_level_and_before_the_next_one() -> None:
    waiting = queue(QueuePolicy(timeout_ns=10, delays=True), QueuePolicy())
    late, timely, low = add(waiting, request(1, at_ns=0), request(1, at_ns=5), request(2))

    assert waiting.expire(10) == ([], 0)

    assert list(waiting.order) == [timely, late, low]
    new = request(1, at_ns=11)
    assert waiting.add(new) == 1
    assert list(waiting.order) == [timely, new, late, low]
    assert waiting.next_deadline_ns == 15  # the delayed one has none any more


@pytest.mark.parametrize(
    ("timeout_us", "allowed", "default_us", "deadline_us"),
    [(5, True, 10, 5), (50, True, 10, 10), (5, False, 10, 10), (0, True, 10, 10), (5, True, 0, 0)],
)
def test_a_shorter_timeout_of_a_request_counts_where_it_is_allowed(
    timeout_us: int, allowed: bool, default_us: int, deadline_us: int
) -> None:
    waiting = queue(QueuePolicy(timeout_ns=default_us * US, allows_override=allowed))

    waiting.add(request(timeout_us=timeout_us))

    assert waiting.next_deadline_ns == deadline_us * US


def test_deadlines_of_requests_that_left_do_not_pile_up() -> None:
    waiting = queue(QueuePolicy(timeout_ns=3600 * 10**9))
    for _ in range(10_000):
        waiting.add(request())
        waiting.take(1)

    assert len(waiting._deadlines) < 100


def test_delayed_requests_go_in_the_order_of_arrival_whose_time_was_ever_up_first() -> None:
    waiting = queue(QueuePolicy(timeout_ns=20 * US, delays=True, allows_override=True))
    first, second, third = add(waiting, request(), request(timeout_us=5), request(timeout_us=10))

    for now_us in (5, 10, 20):
        waiting.expire(now_us * US)

    assert list(waiting.order) == [first, second, third]


def test_any_number_of_levels_costs_nothing_until_they_have_requests() -> None:
    level_count = 2**64 - 1
    waiting = LeveledQueue(
        QueuePolicy(),
        level_count,
        2**63,
        {level_count: QueuePolicy(max_size=1), 7: QueuePolicy(timeout_ns=1)},
    )
    requests = add(waiting, *map(request, (level_count, 0, 1, 2**63 + 1, 7)))

    assert [requests.index(one) for one in waiting.order] == [2, 4, 1, 3, 0]
    with pytest.raises(Unavailable, match="Exceeds maximum queue size"):
        waiting.add(request(level_count))
    assert [one for one, _ in waiting.expire(1)[0]] == [requests[4]]


class QueueMachine(RuleBasedStateMachine):
    """Does the same to a queue and to a list that is sorted each time."""

    policies = (
        QueuePolicy(max_size=4, timeout_ns=20),
        QueuePolicy(timeout_ns=30, delays=True, allows_override=True),
        QueuePolicy(max_size=3),
    )

    def __init__(self) -> None:
        super().__init__()
        self.queue = queue(*self.policies, default_level=2)
        self.model: list[tuple[int, bool, int, InferRequest]] = []  # level, delayed, arrival, request
        self.now = 0
        self.arrivals = 0

    @rule(priority=st.integers(0, 4), timeout_us=st.integers(0, 1))
    def add(self, priority: int, timeout_us: int) -> None:
        one = request(priority, at_ns=self.now, timeout_us=timeout_us)
        level = priority if priority in (1, 2, 3) else 2
        limit = self.policies[level - 1].max_size
        if limit and sum(entry[0] == level for entry in self.model) >= limit:
            with pytest.raises(Unavailable):
                self.queue.add(one)
            return
        self.arrivals += 1
        self.model.append((level, False, self.arrivals, one))
        self.model.sort(key=lambda entry: entry[:3])
        assert self.model[self.queue.add(one)][3] is one

    @rule(count=st.integers(0, 3))
    def take(self, count: int) -> None:
        count = min(count, len(self.model))
        assert self.queue.take(count) == [entry[3] for entry in self.model[:count]]
        del self.model[:count]

    @rule(index=st.integers(0, 20))
    def remove(self, index: int) -> None:
        if index < len(self.model):
            assert self.queue.remove(self.model.pop(index)[3]) == index
        else:
            assert self.queue.remove(request()) == -1

    @rule(duration=st.integers(1, 15))
    def wait(self, duration: int) -> None:
        self.now += duration
        late = [
            entry
            for entry in self.model
            if not entry[1] and 0 < self.policies[entry[0] - 1].deadline_ns(entry[3]) <= self.now
        ]
        late.sort(key=lambda entry: (self.policies[entry[0] - 1].deadline_ns(entry[3]), entry[2]))
        refused, _ = self.queue.expire(self.now)
        assert [one for one, _ in refused] == [entry[3] for entry in late if entry[0] == 1]
        for entry in late:
            self.model.remove(entry)
            if entry[0] == 2:
                self.model.append((2, True, *entry[2:]))
        self.model.sort(key=lambda entry: entry[:3])

    @invariant()
    def orders_are_equal(self) -> None:
        assert list(self.queue.order) == [entry[3] for entry in self.model]
        deadlines = [
            deadline
            for level, delayed, _, one in self.model
            if not delayed and (deadline := self.policies[level - 1].deadline_ns(one))
        ]
        assert self.queue.next_deadline_ns == min(deadlines, default=0)


TestQueue = QueueMachine.TestCase
