"""The dynamic batcher's decisions, driven with numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import InvalidArg, TritonError
from tritonpy.request import InferRequest
from tritonpy.scheduler.compatibility import RequestKinds
from tritonpy.scheduler.decision import Closed, Dispatch, Idle, WaitUntil
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy.scheduler.queues import LeveledQueue, QueuePolicy
from tritonpy.tensor import Tensor

MS = 1_000_000
EQUAL_SHAPES = RequestKinds(1, ["INPUT0"], has_optional_inputs=False)


def request(
    rows: int = 1,
    *,
    at_ns: int = 0,
    columns: int = 2,
    inputs: Sequence[str] = ("INPUT0",),
    priority: int = 0,
) -> InferRequest:
    tensors = {name: Tensor.from_numpy(name, np.zeros((rows, columns), np.float32)) for name in inputs}
    made = InferRequest("m", tensors, priority=priority)
    made.batch_size = rows
    made.queue_start_ns = at_ns
    return made


def add(policy: DynamicPolicy, *requests: InferRequest) -> list[InferRequest]:
    for one in requests:
        policy.add(one)
    return list(requests)


class ByteLimit:
    """A strategy as `scheduler/batcher.py` presents it: input bytes of a batch stay within a limit."""

    def __init__(self, limit: int, failing: Sequence[InferRequest] = ()) -> None:
        self.limit = limit
        self.failing = failing
        self.left = limit
        self.calls: list[str] = []

    def admit(self, request: InferRequest) -> None:
        pass

    def begin(self, head: InferRequest) -> TritonError | None:
        self.calls.append("begin")
        self.left = self.limit
        return None

    def refused_alone(self, request: InferRequest) -> None:
        self.calls.append("refused alone")

    def accept(self, requests: Sequence[InferRequest]) -> tuple[int, TritonError | None]:
        for index, one in enumerate(requests):
            if one in self.failing:
                return index, InvalidArg("no")
            if one.byte_size > self.left:
                return index, None
            self.left -= one.byte_size
        return len(requests), None

    def padded_size(self, rows: int) -> int:
        return rows

    def end(self) -> None:
        self.calls.append("end")


def drain(policy: DynamicPolicy, now_ns: int = 0) -> list[tuple[list[int], Closed]]:
    """Dispatch until the policy has nothing ready; rows of each batch and why it closed."""
    batches = []
    while isinstance(decision := policy.decide(now_ns), Dispatch):
        assert decision.batch_size == sum(one.batch_size for one in decision.requests)
        batches.append(([one.batch_size for one in decision.requests], decision.closed))
    return batches


def test_an_empty_queue_is_idle() -> None:
    assert isinstance(DynamicPolicy(max_batch_size=8).decide(0), Idle)


def test_without_a_delay_whatever_is_queued_leaves_at_once() -> None:
    policy = DynamicPolicy(max_batch_size=8)
    requests = add(policy, request(), request(2), request())

    decision = policy.decide(0)

    assert decision == Dispatch(requests, 4, Closed.QUEUE_EMPTY)
    assert policy.waiting_count == 0


def test_full_batch_leaves_without_waiting_for_the_delay() -> None:
    policy = DynamicPolicy(max_batch_size=4, queue_delay_ns=100 * MS)
    add(policy, *(request() for _ in range(6)))

    assert drain(policy, now_ns=1) == [([1, 1, 1, 1], Closed.PREFERRED)]
    assert policy.waiting_count == 2


def test_an_underfull_batch_waits_for_the_rest_of_the_delay_of_its_oldest_request() -> None:
    policy = DynamicPolicy(max_batch_size=4, queue_delay_ns=100 * MS)
    add(policy, request(at_ns=10 * MS), request(at_ns=60 * MS))

    assert policy.decide(70 * MS) == WaitUntil(110 * MS)
    assert drain(policy, now_ns=110 * MS) == [([1, 1], Closed.DELAY)]


def test_a_preferred_size_leaves_at_once_and_no_larger_than_that() -> None:
    policy = DynamicPolicy(max_batch_size=8, preferred_batch_sizes=[4], queue_delay_ns=100 * MS)
    add(policy, *(request() for _ in range(3)))
    assert policy.decide(0) == WaitUntil(100 * MS)

    add(policy, request(), request())

    assert drain(policy) == [([1, 1, 1, 1], Closed.PREFERRED)]


def test_the_largest_preferred_size_in_the_queue_is_taken() -> None:
    policy = DynamicPolicy(max_batch_size=16, preferred_batch_sizes=[2, 4, 8], queue_delay_ns=100 * MS)
    add(policy, *(request() for _ in range(6)))

    assert drain(policy) == [([1] * 4, Closed.PREFERRED), ([1, 1], Closed.PREFERRED)]


def test_when_the_delay_is_over_everything_pending_leaves_also_beyond_a_preferred_size() -> None:
    policy = DynamicPolicy(max_batch_size=16, preferred_batch_sizes=[4, 8], queue_delay_ns=100 * MS)
    add(policy, *(request() for _ in range(6)))

    assert drain(policy, now_ns=200 * MS) == [([1] * 6, Closed.DELAY)]


def test_a_request_that_jumps_over_every_preferred_size_sends_what_is_before_it() -> None:
    policy = DynamicPolicy(max_batch_size=8, preferred_batch_sizes=[4], queue_delay_ns=100 * MS)
    add(policy, request(3), request(3))

    assert drain(policy)[0] == ([3], Closed.PREFERRED)


def test_a_request_that_does_not_fit_closes_the_batch() -> None:
    policy = DynamicPolicy(max_batch_size=4, queue_delay_ns=100 * MS)
    add(policy, request(3), request(2), request(1))

    assert drain(policy)[0][0] == [3]


def test_requests_of_different_shapes_do_not_share_a_batch() -> None:
    policy = DynamicPolicy(max_batch_size=8, kinds=EQUAL_SHAPES, queue_delay_ns=100 * MS)
    add(policy, request(columns=2), request(2, columns=2), request(columns=3))

    assert drain(policy) == [([1, 2], Closed.SHAPE)]


def test_fixed_shapes_are_not_compared() -> None:
    policy = DynamicPolicy(max_batch_size=8)
    add(policy, request(columns=2), request(columns=3))

    assert drain(policy) == [([1, 1], Closed.QUEUE_EMPTY)]


def test_requests_with_other_optional_inputs_do_not_share_a_batch() -> None:
    kinds = RequestKinds(1, (), has_optional_inputs=True)
    policy = DynamicPolicy(max_batch_size=8, kinds=kinds)
    add(policy, request(inputs=["A", "B"]), request(inputs=["B", "A"]), request(inputs=["A"]))

    assert drain(policy) == [([1, 1], Closed.SHAPE), ([1], Closed.QUEUE_EMPTY)]


def test_max_batch_size_zero_means_one_request_at_a_time() -> None:
    policy = DynamicPolicy(max_batch_size=0)
    add(policy, request(), request())

    assert [rows for rows, _ in drain(policy)] == [[1], [1]]


def test_the_test_hook_holds_the_batcher_until_enough_requests_are_queued_and_then_never_again() -> None:
    policy = DynamicPolicy(max_batch_size=8, hold_until_count=3)
    add(policy, request(), request())
    assert isinstance(policy.decide(0), Idle)

    add(policy, request())

    assert drain(policy) == [([1, 1, 1], Closed.QUEUE_EMPTY)]
    add(policy, request())
    assert drain(policy) == [([1], Closed.QUEUE_EMPTY)]


def test_a_removed_request_is_never_dispatched_and_the_batch_is_formed_anew() -> None:
    policy = DynamicPolicy(max_batch_size=4, queue_delay_ns=100 * MS)
    first, second, third = add(policy, request(2), request(3), request(2))
    assert policy.waiting_count == 3

    assert policy.remove(second)

    assert policy.decide(0) == Dispatch([first, third], 4, Closed.PREFERRED)
    assert not policy.remove(second)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([4] * 12, [6, 6]),
        ([4, 8, 12, 4, 4, 4, 20, 24], [3, 3, 1, 1]),  # 16 32 48 · 16 16 16 · 80 · 96 bytes
    ],
)
def test_a_strategys_refusal_closes_the_batch(columns: list[int], expected: list[int]) -> None:
    policy = DynamicPolicy(max_batch_size=64, strategy=ByteLimit(96), hold_until_count=len(columns))
    add(policy, *(request(columns=count) for count in columns))

    assert [len(rows) for rows, _ in drain(policy)] == expected


def test_a_request_the_strategy_refuses_even_alone_runs_alone() -> None:
    policy = DynamicPolicy(max_batch_size=64, strategy=ByteLimit(96))
    add(policy, request(columns=2), request(columns=100), request(columns=2))

    assert [len(rows) for rows, _ in drain(policy)] == [1, 1, 1]


def test_a_request_the_strategy_fails_on_is_refused_once_and_the_others_run() -> None:
    bad = request()
    policy = DynamicPolicy(max_batch_size=64, strategy=ByteLimit(96, failing=[bad]))
    first, _, last = add(policy, request(), bad, request())

    batches = [policy.decide(0), policy.decide(0)]

    assert [batch.requests for batch in batches if isinstance(batch, Dispatch)] == [[first], [last]]
    assert [one for one, _, _ in policy.take_refused()] == [bad]
    assert policy.take_refused() == []
    assert isinstance(policy.decide(0), Idle)


def test_a_failing_first_request_does_not_stop_those_behind_it() -> None:
    bad = request()
    policy = DynamicPolicy(max_batch_size=64, strategy=ByteLimit(96, failing=[bad]))
    _, good = add(policy, bad, request())

    decision = policy.decide(0)

    assert isinstance(decision, Dispatch)
    assert decision.requests == [good]


def test_each_request_is_asked_once_per_attempt_while_the_batch_grows() -> None:
    strategy = ByteLimit(96)
    policy = DynamicPolicy(max_batch_size=64, strategy=strategy, queue_delay_ns=100 * MS)
    for arrival in range(5):
        add(policy, request(at_ns=arrival))
        policy.decide(arrival)

    assert strategy.calls == ["begin"]
    assert strategy.left == 96 - 5 * 8
    assert drain(policy, now_ns=200 * MS) == [([1] * 5, Closed.DELAY)]
    assert strategy.calls == ["begin", "end"]


@given(
    max_batch_size=st.integers(1, 9),
    preferred=st.lists(st.integers(1, 9), max_size=3),
    delay_ns=st.sampled_from([0, 5, 50]),
    byte_limit=st.none() | st.integers(8, 200),
    events=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 9), st.integers(1, 3)),
            st.tuples(st.just("cancel"), st.integers(0, 20), st.just(0)),
            st.tuples(st.just("decide"), st.just(0), st.just(0)),
            st.tuples(st.just("pass"), st.integers(1, 40), st.just(0)),
        ),
        max_size=60,
    ),
)
def test_no_request_is_lost_or_sent_twice_and_no_batch_exceeds_the_limit(
    max_batch_size: int,
    preferred: list[int],
    delay_ns: int,
    byte_limit: int | None,
    events: list[tuple[str, int, int]],
) -> None:
    policy = DynamicPolicy(
        max_batch_size=max_batch_size,
        preferred_batch_sizes=[size for size in preferred if size <= max_batch_size],
        queue_delay_ns=delay_ns,
        kinds=EQUAL_SHAPES,
        strategy=ByteLimit(byte_limit) if byte_limit is not None else None,
    )
    now = 0
    waiting: list[InferRequest] = []
    arrived: list[InferRequest] = []

    def check(decision: object) -> bool:
        if not isinstance(decision, Dispatch):
            return False
        assert decision.requests == waiting[: len(decision.requests)]
        assert decision.requests
        assert decision.batch_size == sum(one.batch_size for one in decision.requests) <= max_batch_size
        assert len({one.inputs["INPUT0"].shape[1] for one in decision.requests}) == 1
        if byte_limit is not None and len(decision.requests) > 1:
            assert sum(one.byte_size for one in decision.requests) <= byte_limit
        del waiting[: len(decision.requests)]
        return True

    for kind, number, columns in events:
        if kind == "add":
            one = request(min(number, max_batch_size), at_ns=now, columns=columns)
            policy.add(one)
            waiting.append(one)
            arrived.append(one)
        elif kind == "cancel" and arrived:
            one = arrived[number % len(arrived)]
            assert policy.remove(one) == (one in waiting)
            if one in waiting:
                waiting.remove(one)
        elif kind == "pass":
            now += number
        else:
            decision = policy.decide(now)
            if not check(decision) and isinstance(decision, WaitUntil):
                assert now < decision.deadline_ns <= now + delay_ns
    now += delay_ns
    while check(policy.decide(now)):
        pass

    assert waiting == []
    assert policy.waiting_count == 0


def test_a_request_of_a_higher_level_starts_the_attempt_over_and_goes_first() -> None:
    policy = DynamicPolicy(max_batch_size=2, queue_delay_ns=10 * MS, queue=LeveledQueue(QueuePolicy(), 2))
    low = request(at_ns=0, priority=2)
    policy.add(low)
    assert policy.decide(0) == WaitUntil(10 * MS)
    high, higher = request(at_ns=1, priority=1), request(at_ns=2, priority=1)

    add(policy, high, higher)

    assert policy.decide(2) == Dispatch([high, higher], 2, Closed.PREFERRED)
    assert policy.decide(10 * MS) == Dispatch([low], 1, Closed.DELAY)


def test_a_batch_takes_from_several_levels_in_their_order() -> None:
    policy = DynamicPolicy(max_batch_size=4, queue=LeveledQueue(QueuePolicy(), 2))
    low, high = request(priority=2), request(priority=1)
    add(policy, low, high)

    assert policy.decide(0) == Dispatch([high, low], 2, Closed.QUEUE_EMPTY)


def test_a_request_that_expires_leaves_the_attempt_it_was_in() -> None:
    policy = DynamicPolicy(
        max_batch_size=4, queue_delay_ns=100 * MS, queue=LeveledQueue(QueuePolicy(timeout_ns=10 * MS))
    )
    first, second = add(policy, request(at_ns=0), request(at_ns=5 * MS))
    assert policy.decide(5 * MS) == WaitUntil(100 * MS)

    assert policy.expire(10 * MS) == 15 * MS

    ((expired, error, reason),) = policy.take_refused()
    assert (expired, str(error), reason) == (first, "Request timeout expired", "REJECTED")
    assert policy.decide(10 * MS) == WaitUntil(105 * MS)
    assert policy.take_all() == [second]
    assert policy.expire(20 * MS) == 0
