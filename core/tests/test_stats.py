"""What is counted when, in numbers; that it is what Triton counts is seen on whole servers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tritonpy.errors import Cancelled, Internal
from tritonpy.model.execution import Execution
from tritonpy.request import InferRequest
from tritonpy.response import InferResponse
from tritonpy.response_clock import ResponseClock
from tritonpy.stats import MOST_RESPONSES, ModelStats, ResponseStats, statistics_json

SOME = np.zeros(1, np.float32)
TIMES = (1_000, 1_100, 1_400, 1_500)


def request(queued_ns: int = 0, rows: int = 1) -> InferRequest:
    made = InferRequest("m", {})
    made.queue_start_ns = queued_ns
    made.batch_size = rows
    return made


def phases(stats: ModelStats) -> dict[str, tuple[int, int]]:
    document: Any = statistics_json("m", "1", stats)
    return {
        phase: (leaf["count"], leaf["ns"])
        for phase, leaf in document["inference_stats"].items()
        if leaf["count"]
    }


def test_every_request_of_a_batch_waits_for_the_whole_batch() -> None:
    stats = ModelStats()
    requests = [request(900, rows=2), request(700)]

    Execution(requests, 3, stats).finish(TIMES, [InferResponse(), InferResponse()])

    found = phases(stats)
    assert found.pop("success")[0] == 2
    assert found == {
        "queue": (2, 100 + 300),
        "compute_input": (2, 2 * 100),
        "compute_infer": (2, 2 * 300),
        "compute_output": (2, 2 * 100),
    }
    assert (stats.inference_count, stats.execution_count) == (3, 1)


def test_a_failed_batch_counts_as_an_execution_and_as_failures_only() -> None:
    stats = ModelStats()

    Execution([request(), request()], 2, stats).fail(Internal("boom"), TIMES)

    assert {phase: count for phase, (count, _) in phases(stats).items()} == {"fail": 2}
    assert (stats.inference_count, stats.execution_count) == (0, 1)
    assert stats.batch_stats[2].count == 1
    assert stats.failures == {"REJECTED": 0, "CANCELED": 0, "BACKEND": 2, "OTHER": 0}


def test_what_was_answered_before_the_batch_failed_has_succeeded() -> None:
    stats = ModelStats()
    requests = [request(900), request(700, rows=4)]
    requests[1].deliver(InferResponse())

    Execution(requests, 5, stats).fail(Internal("boom"), TIMES)

    found = phases(stats)
    assert [found[phase][0] for phase in ("success", "fail", "queue")] == [1, 1, 1]
    assert found["queue"][1] == 300
    assert (stats.inference_count, stats.execution_count) == (4, 1)


def test_an_execution_that_did_not_end_is_not_counted() -> None:
    stats = ModelStats()

    Execution([request()], 1, stats).fail(Internal("the worker died"))

    assert list(phases(stats)) == ["fail"]
    assert stats.execution_count == 0


def test_a_request_that_waits_anew_is_counted_from_where_it_waited_first() -> None:
    stats = ModelStats()
    waiting = request(900)
    execution = Execution([waiting], 1, stats)
    execution.rescheduled_count = 1
    waiting.queue_start_ns = 1_450

    execution.leave(TIMES, [])

    assert phases(stats)["queue"] == (1, 100)
    assert stats.success_count == 0


def test_a_batch_that_ends_as_cancelled_has_that_reason() -> None:
    stats = ModelStats()

    Execution([request()], 1, stats).fail(Cancelled("gone"), TIMES)

    assert stats.failures["CANCELED"] == 1


@pytest.mark.parametrize(
    ("response", "is_cancelled", "counted"),
    [
        (InferResponse().add("OUT", SOME), False, {"compute_infer": 5, "compute_output": 2, "success": 7}),
        (InferResponse().add("OUT", SOME), True, {"compute_infer": 5, "compute_output": 2, "success": 7}),
        (InferResponse(error=Internal("")), False, {"compute_infer": 5, "compute_output": 2, "fail": 7}),
        (InferResponse(), False, {"compute_infer": 5, "empty_response": 5}),
        (None, False, {"compute_infer": 5, "empty_response": 5}),
        (None, True, {"cancel": 7}),
        (InferResponse(error=Internal("")), True, {"cancel": 7}),
        (InferResponse(error=Cancelled("")), False, {"cancel": 7}),
    ],
    ids=["outputs", "outputs nobody wants", "error", "no outputs", "final flag", "end", "error end", "code"],
)
def test_a_response_is_counted_as_what_it_is(
    response: InferResponse | None, is_cancelled: bool, counted: dict[str, int]
) -> None:
    stats = ModelStats()

    stats.count_response(3, response, (5, 2), is_cancelled=is_cancelled)

    document: Any = statistics_json("m", "1", stats)
    [(index, found)] = document["response_stats"].items()
    assert index == "3"
    assert {phase: leaf["ns"] for phase, leaf in found.items() if leaf["count"]} == counted
    assert all(leaf["count"] == (phase in counted) for phase, leaf in found.items())


def test_responses_are_counted_by_their_place_in_their_own_stream() -> None:
    stats = ModelStats()
    one, two = request(), request()
    for each in (one, two):
        each.ticket.clock = ResponseClock(stats)
    for each in (one, two, one):
        each.count_response(InferResponse().add("OUT", SOME), (1, 0))

    assert {index: found.success_count for index, found in stats.response_stats.items()} == {0: 2, 1: 1}


def test_the_only_response_of_a_decoupled_model_takes_what_its_batch_took() -> None:
    stats = ModelStats()
    good, bad = request(), request()
    for each in (good, bad):
        each.ticket.clock = ResponseClock(stats)
    Execution([good], 1, stats).finish(TIMES, [InferResponse().add("OUT", SOME)])
    Execution([bad], 1, stats).fail(Internal("boom"), TIMES)

    found = stats.response_stats[0]
    assert (found.success_count, found.success_ns) == (1, 500)
    assert (found.fail_count, found.fail_ns) == (1, 500)
    assert (found.compute_infer_ns, found.compute_output_ns) == (2 * 400, 2 * 100)


def test_what_comes_after_the_final_response_is_not_counted() -> None:
    stats = ModelStats()
    answered = request()
    answered.ticket.clock = ResponseClock(stats)
    answered.deliver(None)

    answered.count_response(None, (1, 0))

    assert stats.response_stats == {}


def test_a_stream_without_end_holds_no_memory() -> None:
    stats = ModelStats()
    clock = ResponseClock(stats)
    for _ in range(MOST_RESPONSES + 10):
        clock.count(None, (1, 0), 0, is_cancelled=False)

    assert len(stats.response_stats) == MOST_RESPONSES


def test_a_copy_for_another_thread_shares_nothing_that_changes() -> None:
    stats = ModelStats(success_count=1)
    stats.response_stats[0] = ResponseStats(success_count=1)
    copy = stats.snapshot()

    stats.count_failure("OTHER", 1)
    stats.count_execution(1, 1, 1, 0, TIMES)

    assert (copy.success_count, copy.failures["OTHER"], copy.batch_stats, copy.response_stats) == (
        1,
        0,
        {},
        {},
    )
