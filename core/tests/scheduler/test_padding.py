"""Batches that are filled up to a size of their model: by which rows, and what follows from them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.errors import TritonError
from tritonpy.handles import Backend, Model
from tritonpy.model.execution import Execution
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.batcher import BoundStrategy
from tritonpy.scheduler.compatibility import RequestKinds
from tritonpy.scheduler.decision import Dispatch
from tritonpy.scheduler.dynamic import DynamicPolicy, null_rows
from tritonpy.stats import ModelStats
from tritonpy.tensor import Tensor

KINDS = RequestKinds(1, ["I"], has_optional_inputs=False, shape_tensors=["S"])


def strategy(padded_size: Callable[[Any, int], Any]) -> BoundStrategy:
    hooks: dict[str, Callable[..., Any]] = {
        "model_batcher_initialize": lambda model: None,
        "model_batcher_finalize": lambda batcher: None,
        "model_batch_initialize": lambda batcher: None,
        "model_batch_include_request": lambda request, batch: True,
        "model_batch_finalize": lambda batch: None,
        "model_batch_padded_size": padded_size,
    }
    return BoundStrategy("pad", hooks.get, Model("m", 1, {"name": "m"}, Path("/m"), Backend("b")))


def request(rows: int, first: float = 1.0, columns: int = 2) -> InferRequest:
    array = np.full((rows, columns), first, np.float32)
    made = InferRequest("m", {"I": Tensor.from_numpy("I", array)})
    made.batch_size = rows
    return made


def batch(policy: DynamicPolicy, *requests: InferRequest) -> Dispatch:
    for each in requests:
        policy.add(each)
    decision = policy.decide(0)
    assert isinstance(decision, Dispatch)
    return decision


def test_a_batch_is_filled_with_null_requests_that_share_a_row_of_it() -> None:
    policy = DynamicPolicy(max_batch_size=8, strategy=strategy(lambda batch, size: 4), kinds=KINDS)
    three, one = request(2), request(1, first=7.0)

    filled = batch(policy, three, one)

    assert (filled.batch_size, filled.null_count) == (4, 1)
    assert filled.requests[:2] == [three, one]
    assert filled.requests[2].is_null
    assert filled.requests[2].inputs["I"] is one.inputs["I"]  # nothing was copied


def test_where_every_request_has_several_rows_the_first_row_of_one_is_taken() -> None:
    strings = np.array([[b"first", b"x"], [b"second", b""]], object)
    like = request(2)
    like.inputs["TEXT"] = Tensor.from_numpy("TEXT", strings)
    like.inputs["S"] = Tensor.from_numpy("S", np.array([9, 9, 9], np.int64))

    one, other = null_rows([like], 2, ["S"])

    assert one is not other
    assert one.inputs["I"].shape == (1, 2)
    assert one.inputs["TEXT"].numpy().tolist() == [[b"first", b"x"]]
    assert one.inputs["S"] is like.inputs["S"]


@pytest.mark.parametrize("size", [0, -3, 3])
def test_a_size_that_is_not_larger_adds_nothing(size: int) -> None:
    policy = DynamicPolicy(max_batch_size=8, strategy=strategy(lambda batch, rows: size))

    filled = batch(policy, request(3))

    assert (filled.batch_size, filled.null_count, len(filled.requests)) == (3, 0, 1)


def test_no_batch_is_filled_beyond_the_largest_size() -> None:
    policy = DynamicPolicy(max_batch_size=4, strategy=strategy(lambda batch, size: 100))

    assert batch(policy, request(1)).batch_size == 4


def test_a_strategy_that_fails_leaves_the_batch_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def fail(batch: Any, size: int) -> int:
        raise ValueError("no idea")

    policy = DynamicPolicy(max_batch_size=4, strategy=strategy(fail))

    with caplog.at_level(logging.ERROR, "tritonpy.batching"):
        filled = batch(policy, request(1))

    assert filled.batch_size == 1
    assert "batching strategy 'pad' failed; the batch is not padded" in caplog.text
    assert "no idea" in caplog.text


def test_an_input_that_cannot_be_read_is_left_to_the_model(caplog: pytest.LogCaptureFixture) -> None:
    broken = request(2)
    broken.inputs["TEXT"] = Tensor("TEXT", "BYTES", (2, 1), b"\xff\xff\xff\xff")
    policy = DynamicPolicy(max_batch_size=4, strategy=strategy(lambda batch, size: 4))

    with caplog.at_level(logging.ERROR, "tritonpy.batching"):
        filled = batch(policy, broken)

    assert filled.batch_size == 2
    assert "a batch cannot be padded: incomplete string data" in caplog.text


class Sink:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def on_response(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        self.answers.append(response)


def test_added_rows_are_answered_to_nobody_and_counted_as_executed_only() -> None:
    policy = DynamicPolicy(max_batch_size=4, strategy=strategy(lambda batch, size: 4))
    real = request(3)
    real.ticket.sink = sink = Sink()
    filled, stats = batch(policy, real), ModelStats()

    execution = Execution(filled.requests, filled.batch_size, stats, null_count=filled.null_count)
    execution.finish((0, 0, 0, 0), [InferResponse() for _ in filled.requests])

    assert len(sink.answers) == 1
    assert (stats.inference_count, stats.success_count, stats.execution_count) == (3, 1, 1)
    assert list(stats.batch_stats) == [4]


def test_a_failed_batch_fails_its_real_requests_only() -> None:
    policy = DynamicPolicy(max_batch_size=4, strategy=strategy(lambda batch, size: 4))
    filled, stats = batch(policy, request(1)), ModelStats()

    execution = Execution(filled.requests, filled.batch_size, stats, null_count=filled.null_count)
    execution.fail(TritonError("no"))

    assert stats.fail_count == 1


@given(
    rows=st.lists(st.integers(1, 6), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 16), max_size=3),
    delay_ns=st.sampled_from((0, 1)),
)
def test_every_batch_has_a_size_of_the_model_and_every_row_is_executed_once(
    rows: Sequence[int], sizes: list[int], delay_ns: int
) -> None:
    allowed = sorted({*sizes, 16})
    policy = DynamicPolicy(
        max_batch_size=16,
        preferred_batch_sizes=sizes,
        queue_delay_ns=delay_ns,
        strategy=strategy(lambda batch, size: next(each for each in allowed if each >= size)),
    )
    requests = [request(count) for count in rows]
    for each in requests:
        policy.add(each)

    executed: list[InferRequest] = []
    while isinstance(filled := policy.decide(1), Dispatch):
        assert filled.batch_size in allowed
        assert filled.batch_size == sum(each.batch_size for each in filled.requests)
        assert filled.null_count == sum(each.is_null for each in filled.requests)
        executed += [each for each in filled.requests if not each.is_null]
    assert executed == requests
