"""What a batching strategy may do wrong, and whom it costs what; hooks called in the order they promise."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Internal, NotFound, TritonError
from tritonpy.handles import Backend, Batch, Batcher, Model
from tritonpy.request import InferRequest
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.decision import IDLE, Decision, Dispatch
from tritonpy.scheduler.dynamic import DynamicPolicy
from tritonpy.scheduler.queues import LeveledQueue, QueuePolicy
from tritonpy.tensor import Tensor


class Journal:
    """A strategy that bounds the bytes of a batch and writes down what it is called for."""

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.calls: list[str] = []

    def hooks(self, **others: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
        return {
            "model_batcher_initialize": lambda model: None,
            "model_batcher_finalize": lambda batcher: None,
            "model_batch_initialize": self.initialize,
            "model_batch_include_request": self.include,
            "model_batch_finalize": self.finalize,
            **others,
        }

    def initialize(self, batcher: Batcher) -> list[int]:
        self.calls.append("I")
        return [self.limit]

    def include(self, request: InferRequest, batch: Batch) -> bool:
        batch.state[0] -= request.byte_size
        self.calls.append(request.id + ("+" if batch.state[0] >= 0 else "-"))
        return bool(batch.state[0] >= 0)

    def finalize(self, batch: Batch) -> None:
        self.calls.append("F")


def bound(hooks: dict[str, Callable[..., Any]]) -> BoundStrategy:
    return BoundStrategy("s", hooks.get, Model("m", 1, {"name": "m"}, Path("/m"), Backend("b")))


def policy_of(strategy: BoundStrategy, **settings: Any) -> DynamicPolicy:
    return DynamicPolicy(max_batch_size=64, strategy=strategy, **settings)


def request(id: str = "", columns: int = 4) -> InferRequest:
    return InferRequest("m", {"I": Tensor.from_numpy("I", np.zeros((1, columns), np.float32))}, id=id)


def add(policy: DynamicPolicy, *ids: str) -> list[InferRequest]:
    added = [request(id) for id in ids]
    for each in added:
        policy.add(each)
    return added


def ids_of(decision: Decision) -> list[str]:
    assert isinstance(decision, Dispatch)
    return [each.id for each in decision.requests]


def refused(policy: DynamicPolicy) -> list[tuple[str, str]]:
    return [(each.id, str(error)) for each, error, _ in policy.take_refused()]


def test_a_strategy_that_is_ended_while_it_begins_is_finalised_when_it_has_begun() -> None:
    calls: list[str] = []
    has_begun, may_go_on = threading.Event(), threading.Event()

    def initialize(model: Model) -> None:
        has_begun.set()
        may_go_on.wait(20)
        calls.append("initialize")

    strategy = bound(
        Journal().hooks(
            model_batcher_initialize=initialize,
            model_batcher_finalize=lambda batcher: calls.append("finalize"),
        )
    )
    opening = threading.Thread(target=strategy.open)
    opening.start()
    has_begun.wait(20)
    strategy.close()
    may_go_on.set()
    opening.join(20)

    assert calls == ["initialize", "finalize"]


def test_a_strategy_that_has_not_begun_is_not_finalised() -> None:
    calls: list[str] = []

    def refuse(model: Model) -> None:
        raise NotFound("no limit")

    strategy = bound(
        Journal().hooks(
            model_batcher_initialize=refuse, model_batcher_finalize=lambda batcher: calls.append("finalize")
        )
    )
    with pytest.raises(NotFound, match="no limit"):
        strategy.open()
    strategy.close()

    assert calls == []


def test_a_request_is_admitted_once_however_often_it_is_scanned() -> None:
    journal, admitted = Journal(limit=40), []

    def admit(batcher: Batcher, request: InferRequest) -> str:
        admitted.append((batcher.model.name, request.id))
        return f"note of {request.id}"

    policy = policy_of(bound(journal.hooks(model_batcher_admit_request=admit)))

    a, b, c = add(policy, "a", "b", "c")

    assert admitted == [("m", "a"), ("m", "b"), ("m", "c")]
    assert [each.batching_state for each in (a, b, c)] == ["note of a", "note of b", "note of c"]
    assert ids_of(policy.decide(0)) == ["a", "b"]
    assert ids_of(policy.decide(0)) == ["c"]
    assert len(admitted) == 3
    assert "c-" in journal.calls
    assert "c+" in journal.calls


def test_what_was_noted_of_a_request_goes_with_it_after_its_batch_is_finalised() -> None:
    seen = []

    class Note:
        pass

    def finalize(batch: Batch) -> None:
        seen.append([note() is not None for note in notes])

    def admit(batcher: Batcher, request: InferRequest) -> Note:
        note = Note()
        notes.append(weakref.ref(note))
        return note

    notes: list[weakref.ref[Note]] = []
    journal = Journal()
    hooks = journal.hooks(model_batcher_admit_request=admit, model_batch_finalize=finalize)
    policy = policy_of(bound(hooks))
    add(policy, "a", "b")

    decision = policy.decide(0)
    gc.collect()

    assert ids_of(decision) == ["a", "b"]  # they live on
    assert seen == [[True, True]]
    assert [note() for note in notes] == [None, None]


def test_a_request_that_is_given_up_leaves_a_batch_that_is_finalised_first() -> None:
    journal = Journal()
    policy = policy_of(bound(journal.hooks()), queue_delay_ns=100)
    a, _ = add(policy, "a", "b")
    policy.decide(0)

    policy.remove(a)

    assert journal.calls == ["I", "a+", "b+", "F"]
    assert ids_of(policy.decide(200)) == ["b"]
    assert journal.calls == ["I", "a+", "b+", "F", "I", "b+", "F"]


def test_a_batch_that_is_given_up_with_the_whole_queue_is_finalised() -> None:
    journal = Journal()
    policy = policy_of(bound(journal.hooks()), queue_delay_ns=100)
    add(policy, "a")
    policy.decide(0)

    policy.take_all()

    assert journal.calls == ["I", "a+", "F"]


def test_an_error_while_a_request_is_admitted_fails_it_alone(caplog: pytest.LogCaptureFixture) -> None:
    def admit(batcher: Batcher, request: InferRequest) -> None:
        if request.id == "b":
            raise NotFound("no such input")

    policy = policy_of(bound(Journal().hooks(model_batcher_admit_request=admit)))
    add(policy, "a")

    with pytest.raises(NotFound, match=r"^no such input$"):
        policy.add(request("b"))

    add(policy, "c")
    assert ids_of(policy.decide(0)) == ["a", "c"]
    assert "[request id: b] batching strategy 's' failed" in caplog.text


def test_a_request_that_finds_the_queue_full_is_not_admitted() -> None:
    admitted: list[str] = []
    hooks = Journal().hooks(model_batcher_admit_request=lambda batcher, request: admitted.append(request.id))
    policy = policy_of(bound(hooks), queue=LeveledQueue(QueuePolicy(max_size=1)))
    add(policy, "a")

    with pytest.raises(TritonError, match="Exceeds maximum queue size"):
        policy.add(request("b"))

    assert admitted == ["a"]


def test_an_error_as_a_batch_begins_fails_the_request_at_its_head_with_code_and_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal, failures = Journal(), [NotFound("no room")]

    def initialize(batcher: Batcher) -> list[int]:
        if failures:
            raise failures.pop()
        return journal.initialize(batcher)

    policy = policy_of(bound(journal.hooks(model_batch_initialize=initialize)))
    (a, *_) = add(policy, "a", "b", "c")

    decision = policy.decide(0)

    ((failed, error, reason),) = policy.take_refused()
    assert (failed, type(error), str(error), reason) == (a, NotFound, "no room", "BACKEND")
    assert ids_of(decision) == ["b", "c"]
    assert journal.calls == ["I", "b+", "c+", "F"]  # nothing is asked or finalised without a state
    assert "[request id: a] batching strategy 's' failed: NotFound('no room')" in caplog.text


def test_a_strategy_that_can_never_begin_fails_each_request_once_and_does_not_spin() -> None:
    calls: list[int] = []

    def initialize(batcher: Batcher) -> None:
        calls.append(1)
        raise ValueError("out of order")

    policy = policy_of(bound(Journal().hooks(model_batch_initialize=initialize)))
    add(policy, "a", "b", "c")

    assert policy.decide(0) is IDLE
    assert len(calls) == 3
    failed = policy.take_refused()
    assert [(each.id, type(error)) for each, error, _ in failed] == [
        ("a", Internal),
        ("b", Internal),
        ("c", Internal),
    ]
    assert "[request id: b] batching strategy 's' failed: ValueError: out of order" in str(failed[1][1])
    assert policy.decide(0) is IDLE
    assert len(calls) == 3


def test_an_error_as_a_batch_begins_leaves_no_request_in_a_queue_with_levels() -> None:
    def initialize(batcher: Batcher) -> None:
        raise ValueError("no")

    queue = LeveledQueue(QueuePolicy(), 2, 2, {1: QueuePolicy(timeout_ns=50)})
    policy = policy_of(bound(Journal().hooks(model_batch_initialize=initialize)), queue=queue)
    add(policy, "a", "b")

    assert policy.decide(0) is IDLE
    assert policy.waiting_count == 0
    assert policy.expire(1000) == 0


@pytest.mark.parametrize(("head", "expected"), [("ok", ["ok"]), ("bad", ["last"])])
def test_a_run_may_be_answered_with_an_error_for_the_request_behind_its_head(
    head: str, expected: list[str]
) -> None:
    asked: list[list[str]] = []

    def include(batch: Batch, requests: list[InferRequest]) -> int | tuple[int, Exception]:
        asked.append([each.id for each in requests])
        ids = asked[-1]
        return (ids.index("bad"), NotFound("bad input")) if "bad" in ids else len(ids)

    policy = policy_of(bound(Journal().hooks(model_batch_include_requests=include)))
    add(policy, *(["bad"] if head == "bad" else ["ok", "bad"]), "last")

    decision = policy.decide(0)

    assert ids_of(decision) == expected
    assert refused(policy) == [("bad", "bad input")]
    assert asked[0][-1] == "last"
    assert sum("bad" in ids for ids in asked) == 1  # it was asked once


@pytest.mark.parametrize("count", [-1, 7])
def test_a_count_beside_an_error_is_held_to_the_run(count: int) -> None:
    answers: list[Any] = [(count, NotFound("no"))]
    hooks = Journal().hooks(
        model_batch_include_requests=lambda batch, requests: answers.pop() if answers else len(requests)
    )
    policy = policy_of(bound(hooks))
    add(policy, "a", "b", "c")

    decision = policy.decide(0)

    assert [id for id, _ in refused(policy)] == (["a"] if count < 0 else ["c"])
    assert ids_of(decision) == (["b", "c"] if count < 0 else ["a", "b"])


def test_a_request_refused_alone_runs_alone_and_one_warning_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = Journal(limit=8)
    policy = policy_of(bound(journal.hooks()))

    with caplog.at_level(logging.WARNING, "tritonpy.batching"):
        add(policy, "a", "b")
        batches = [ids_of(policy.decide(0)), ids_of(policy.decide(0))]

    assert batches == [["a"], ["b"]]
    (warning,) = caplog.messages
    assert warning.startswith("[request id: a] batching strategy 's' refuses a request of model 'm' even for")


def test_the_time_a_batch_takes_to_begin_is_part_of_the_scan() -> None:
    now = [0]

    def initialize(batcher: Batcher) -> None:
        now[0] += 700_000

    def include(request: InferRequest, batch: Batch) -> bool:
        now[0] += 400_000
        return True

    hooks = Journal().hooks(model_batch_initialize=initialize, model_batch_include_request=include)
    model = Model("m", 1, {"name": "m"}, Path("/m"), Backend("b"))
    strategy = BoundStrategy("s", hooks.get, model, clock=lambda: now[0])
    slow: list[None] = []
    strategy.on_slow_scan = lambda: slow.append(None)
    policy = policy_of(strategy)
    add(policy, "a")

    policy.decide(0)

    assert len(slow) == 1


@pytest.mark.parametrize(("quick", "warnings"), [(40, 1), (60, 0)])
def test_only_slow_scans_close_to_each_other_are_a_reason_to_warn(
    quick: int, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    now, slow_ns = [0], [0]

    def include(request: InferRequest, batch: Batch) -> bool:
        now[0] += slow_ns[0]
        return True

    model = Model("m", 1, {"name": "m"}, Path("/m"), Backend("b"))
    hooks = Journal().hooks(model_batch_include_request=include)
    strategy = BoundStrategy("s", hooks.get, model, clock=lambda: now[0])
    slow: list[None] = []
    strategy.on_slow_scan = lambda: slow.append(None)
    policy = policy_of(strategy)

    for _ in range(4):
        for slow_ns[0] in [2_000_000, *[1000] * quick]:
            add(policy, "a")
            policy.decide(0)

    assert len(slow) == 4
    assert len([text for text in caplog.messages if "repeatedly takes over 1 ms" in text]) == warnings
