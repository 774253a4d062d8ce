"""Requests to ensembles, step by step."""

from __future__ import annotations

import gc
import logging
import weakref
from itertools import pairwise

import numpy as np
import pytest
from tritonpy.errors import ErrorCode, InvalidArg, Unavailable
from tritonpy.request import SEQUENCE_END, SEQUENCE_START, InferRequest
from tritonpy.response import InferResponse
from tritonpy.tensor import Tensor

from core.tests.scheduler.ensemble.conftest import Client, Ensemble, FakeModel, answer, fail, number, plus

SEQUENCE = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}


def test_steps_run_one_after_the_other_when_each_needs_the_one_before() -> None:
    first, second = FakeModel("first"), FakeModel("second")
    ensemble = Ensemble([(second, {"X": "T"}, {"Y": "OUT"}), (first, {"X": "IN"}, {"Y": "T"})])
    _, client = ensemble.ask(IN=1)
    assert (len(first.open), len(second.open)) == (1, 0)

    answer(first.open[0], Y=2)
    answer(second.open[0], Y=3)

    assert client.answers == [{"OUT": 3}]
    assert client.is_done


def test_branches_run_side_by_side_and_join_when_both_have_answered() -> None:
    left, right, join = FakeModel("left"), FakeModel("right"), FakeModel("join", ("A", "B"))
    ensemble = Ensemble(
        [
            (left, {"X": "IN"}, {"Y": "L"}),
            (right, {"X": "IN"}, {"Y": "R"}),
            (join, {"A": "L", "B": "R"}, {"Y": "OUT"}),
        ]
    )
    _, client = ensemble.ask(IN=1)
    assert (len(left.open), len(right.open)) == (1, 1)

    answer(right.open[0], Y=20)
    assert not join.requests
    answer(left.open[0], Y=10)
    request = join.open[0]
    answer(request, Y=5)

    assert {name: tensor.numpy().item() for name, tensor in request.inputs.items()} == {"A": 10, "B": 20}
    assert client.answers == [{"OUT": 5}]


def test_tensors_are_handed_from_step_to_step_without_a_copy() -> None:
    first, second = FakeModel("first"), FakeModel("second")
    ensemble = Ensemble([(first, {"X": "IN"}, {"Y": "T"}), (second, {"X": "T"}, {"Y": "OUT"})])
    ensemble.ask(IN=1)
    made = np.array([7], np.int64)

    first.open[0].deliver(InferResponse([Tensor.from_numpy("Y", made)]))

    assert second.open[0].inputs["X"].numpy() is made


def test_a_tensor_is_let_go_when_its_last_reader_has_it() -> None:
    first, second, third = FakeModel("first"), FakeModel("second"), FakeModel("third")
    ensemble = Ensemble(
        [
            (first, {"X": "IN"}, {"Y": "T"}),
            (second, {"X": "T"}, {"Y": "U"}),
            (third, {"X": "U"}, {"Y": "OUT"}),
        ]
    )
    ensemble.ask(IN=1)
    made = np.array([7], np.int64)
    is_there = weakref.ref(made)
    first.open[0].deliver(InferResponse([Tensor.from_numpy("Y", made)]))
    del made
    first.requests.clear()

    request = second.requests.pop()
    answer(request, Y=8)
    del request
    gc.collect()

    assert third.open
    assert is_there() is None


def test_a_finished_request_leaves_nothing_to_the_collector() -> None:
    model = FakeModel("m")
    model.on_request = plus(1)
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})])
    gc.collect()
    gc.disable()
    try:
        request, _ = ensemble.ask(IN=1)
        is_there = weakref.ref(request)
        model.requests.clear()
        del request, _
        assert is_there() is None
    finally:
        gc.enable()


def test_only_the_steps_that_requested_outputs_need_are_run() -> None:
    left, right, both = FakeModel("left"), FakeModel("right"), FakeModel("both", outputs=("Y", "Z"))
    ensemble = Ensemble(
        [
            (both, {"X": "IN"}, {"Y": "S", "Z": "T"}),
            (left, {"X": "S"}, {"Y": "L"}),
            (right, {"X": "T"}, {"Y": "R"}),
        ],
        outputs=("L", "R"),
    )
    _, client = ensemble.ask("R", IN=1)
    assert both.open[0].requested_outputs == ("Z",)

    answer(both.open[0], Z=2)
    answer(right.open[0], Y=3)

    assert not left.requests
    assert client.answers == [{"R": 3}]


def test_a_step_gets_all_that_the_request_says() -> None:
    model = FakeModel("m")
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})])

    ensemble.ask(
        IN=1,
        id="q",
        parameters={"k": "v"},
        flags=SEQUENCE_START | SEQUENCE_END,
        correlation_id="c",
        priority=2,
        timeout_us=50,
    )

    request = model.open[0]
    assert (request.id, request.parameters, request.flags, request.correlation_id) == (
        "q",
        {"k": "v"},
        3,
        "c",
    )
    assert (request.priority, request.timeout_us) == (2, 50)


def test_the_answer_tells_of_the_sequence() -> None:
    model = FakeModel("m")
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})])
    _, client = ensemble.ask(IN=1, correlation_id=7, flags=SEQUENCE_END)

    answer(model.open[0], Y=1)

    assert client.parameters == [{"sequence_id": 7, "sequence_start": False, "sequence_end": True}]


def test_a_model_can_change_the_sequence_for_the_steps_behind_it() -> None:
    first, second, aside = FakeModel("first"), FakeModel("second"), FakeModel("aside")
    ensemble = Ensemble(
        [
            (first, {"X": "IN"}, {"Y": "T"}),
            (second, {"X": "T"}, {"Y": "OUT"}),
            (aside, {"X": "IN"}, {"Y": "OUT2"}),
        ],
        outputs=("OUT", "OUT2"),
    )
    _, client = ensemble.ask("OUT", IN=1, correlation_id=7, flags=SEQUENCE_START)
    changed = {"sequence_id": "new", "sequence_start": False, "sequence_end": True, "other": 1}

    first.open[0].deliver(InferResponse([number("Y", 2)], parameters=changed))
    request = second.open[0]
    answer(request, Y=3)

    assert (request.correlation_id, request.flags) == ("new", SEQUENCE_END)
    assert client.parameters == [{"sequence_id": "new", "sequence_start": False, "sequence_end": True}]


@pytest.mark.parametrize(("given", "seen"), [({"IN": 1}, ["A"]), ({"IN": 1, "IN2": 2}, ["A", "B"])])
def test_an_optional_input_that_was_left_out_is_left_out_for_the_step(
    given: dict[str, int], seen: list[str]
) -> None:
    model = FakeModel("m", ("A", "B"), optional=("B",))
    ensemble = Ensemble(
        [(model, {"A": "IN", "B": "IN2"}, {"Y": "OUT"})], inputs=("IN", "IN2"), optional=("IN2",)
    )

    ensemble.ask(**given)

    assert list(model.open[0].inputs) == seen


def test_a_step_that_needs_what_a_client_may_leave_out_fails_the_request() -> None:
    model = FakeModel("m", ("A", "B"))
    ensemble = Ensemble(
        [(model, {"A": "IN", "B": "IN2"}, {"Y": "OUT"})], inputs=("IN", "IN2"), optional=("IN2",)
    )

    _, client = ensemble.ask(IN=1)

    assert client.error is not None
    assert client.error.code is ErrorCode.INVALID_ARG
    assert client.error.message.startswith(
        "in ensemble 'e', [request id: <id_unknown>] expected 2 inputs but"
    )


def test_an_output_that_a_model_leaves_out_is_missing_in_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tritonpy.scheduler")
    model = FakeModel("m", outputs=("Y", "Z"))
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT", "Z": "OUT2"})], outputs=("OUT", "OUT2"))
    _, client = ensemble.ask(IN=1)

    answer(model.open[0], Y=1)

    assert client.answers == [{"OUT": 1}]
    assert client.is_done
    assert caplog.messages == ["Composing models did not output tensor OUT2"]


def test_the_first_step_that_fails_fails_the_request_and_abandons_the_others() -> None:
    left, right = FakeModel("left"), FakeModel("right")
    ensemble = Ensemble(
        [(left, {"X": "IN"}, {"Y": "L"}), (right, {"X": "IN"}, {"Y": "R"})], outputs=("L", "R")
    )
    _, client = ensemble.ask(IN=1)

    left.open[0].fail(Unavailable("no"))

    assert (str(client.error), client.error and client.error.code) == (
        "in ensemble 'e', no",
        ErrorCode.UNAVAILABLE,
    )
    assert right.open[0].is_cancelled()
    answer(right.open[0], Y=1)  # a model that does not look
    assert client.is_done
    assert not client.answers
    assert ensemble.stats.failures["OTHER"] == ensemble.stats.fail_count == 1


def test_a_step_that_refuses_its_request_fails_the_one_to_the_ensemble() -> None:
    model = FakeModel("m")

    def refuse(request: InferRequest) -> None:
        raise InvalidArg("not that")

    model.on_request = refuse
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})])

    _, client = ensemble.ask(IN=1)

    assert str(client.error) == "in ensemble 'e', not that"
    assert client.is_done


@pytest.mark.parametrize(
    "wrong",
    [
        InferResponse([Tensor("Y", "INT64", (1,), None)]),  # type: ignore[arg-type]
        InferResponse([number("Y", 1)], parameters=3),  # type: ignore[arg-type]
    ],
)
def test_a_response_that_cannot_be_read_fails_the_request_and_leaves_room_for_others(
    wrong: InferResponse,
) -> None:
    first, second = FakeModel("first"), FakeModel("second")
    ensemble = Ensemble(
        [(first, {"X": "IN"}, {"Y": "M"}), (second, {"X": "M"}, {"Y": "OUT"})], max_inflight_requests=1
    )
    clients = [ensemble.ask(IN=1)[1] for _ in range(3)]

    for _ in range(2):
        first.open[0].deliver(wrong)
    answer(first.open[0], Y=1)
    answer(second.open[0], Y=2)

    for client in clients[:2]:
        assert str(client.error).startswith("in ensemble 'e', the step of model '")
    assert clients[2].answers == [{"OUT": 2}]
    assert all(client.is_done for client in clients)


def test_a_cancelled_request_cancels_its_steps_and_begins_no_other() -> None:
    first, second = FakeModel("first"), FakeModel("second")
    ensemble = Ensemble([(first, {"X": "IN"}, {"Y": "T"}), (second, {"X": "T"}, {"Y": "OUT"})])
    request, client = ensemble.ask(IN=1, id="q")

    request.cancel()

    assert first.open[0].is_cancelled()
    assert client.error is not None
    assert client.error.code is ErrorCode.CANCELLED
    answer(first.open[0], Y=1)
    assert not second.requests
    assert ensemble.stats.failures["CANCELED"] == 1


def test_closing_answers_what_is_under_way_and_refuses_what_comes() -> None:
    model = FakeModel("m")
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})])
    _, client = ensemble.ask(IN=1)

    ensemble.scheduler.close(Unavailable("gone"))

    assert str(client.error) == "gone"
    assert model.open[0].is_cancelled()
    with pytest.raises(Unavailable, match="gone"):
        ensemble.ask(IN=1)


def test_durations_are_the_sums_over_the_steps() -> None:
    first, second = FakeModel("first"), FakeModel("second")
    ensemble = Ensemble([(first, {"X": "IN"}, {"Y": "T"}), (second, {"X": "T"}, {"Y": "OUT"})])
    ensemble.ask(IN=1)
    for model, durations in ((first, (1, 2, 3)), (second, (10, 20, 30))):
        request = model.open[0]
        assert request.ticket.on_executed is not None
        request.ticket.on_executed(*durations)
        answer(request, Y=1)

    stats = ensemble.stats
    assert (stats.success_count, stats.inference_count, stats.execution_count) == (1, 1, 1)
    assert (stats.compute_input_ns, stats.compute_infer_ns, stats.compute_output_ns) == (11, 22, 33)
    assert (stats.batch_stats[1].count, stats.batch_stats[1].compute_infer_ns) == (1, 22)
    assert stats.pending_count == 0


def test_a_duration_that_comes_after_the_answer_counts_too_also_for_an_outer_ensemble() -> None:
    model = FakeModel("m")
    inner = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})])
    outer_model = FakeModel("e", ("IN",), ("OUT",))
    outer_model.on_request = inner.scheduler.enqueue
    outer = Ensemble([(outer_model, {"IN": "IN"}, {"OUT": "OUT"})])
    outer.ask(IN=1)
    request = model.open[0]
    answer(request, Y=1)
    assert request.ticket.on_executed is not None

    request.ticket.on_executed(1, 2, 3)

    assert [each.stats.compute_infer_ns for each in (inner, outer)] == [2, 2]
    assert outer.stats.batch_stats[1].compute_output_ns == 3


def test_ensembles_inside_each_other_answer_as_one(add_one: FakeModel) -> None:
    inner = Ensemble([(add_one, {"X": "IN"}, {"Y": "OUT"})])
    as_model = FakeModel("e", ("IN",), ("OUT",))
    as_model.on_request = inner.scheduler.enqueue
    outer = Ensemble([(as_model, {"IN": "IN"}, {"OUT": "T"}), (as_model, {"IN": "T"}, {"OUT": "OUT"})])

    _, client = outer.ask(IN=1, correlation_id=5)

    assert client.answers == [{"OUT": 3}]
    assert client.parameters == [{**SEQUENCE, "sequence_id": 5}]


def test_thousands_of_steps_that_answer_at_once_do_not_exhaust_the_stack(add_one: FakeModel) -> None:
    names = ["IN", *(f"T{index}" for index in range(2999)), "OUT"]
    ensemble = Ensemble([(add_one, {"X": read}, {"Y": written}) for read, written in pairwise(names)])

    _, client = ensemble.ask(IN=0)

    assert client.answers == [{"OUT": 3000}]


def test_a_failing_client_costs_nobody_else() -> None:
    model = FakeModel("m")
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})])
    ensemble.ask(IN=1)
    _, other = ensemble.ask(IN=2)

    fail(model.open[0])
    answer(model.open[0], Y=9)

    assert isinstance(other, Client)
    assert other.answers == [{"OUT": 9}]
