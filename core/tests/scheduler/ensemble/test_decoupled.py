"""Decoupled steps: what is behind them runs once for each of their responses."""

from __future__ import annotations

import pytest
from tritonpy.errors import InvalidArg, Unavailable
from tritonpy.request import SEQUENCE_START, InferRequest
from tritonpy.response import InferResponse
from tritonpy.scheduler.ensemble import open_step

from core.tests.scheduler.ensemble.conftest import Client, Ensemble, FakeModel, answer, number, plus


def repeat(**more: int) -> tuple[FakeModel, FakeModel, Ensemble]:
    """A decoupled model, and one that gets each of its responses."""
    source, behind = FakeModel("source", decoupled=True), FakeModel("behind")
    ensemble = Ensemble([(source, {"X": "IN"}, {"Y": "T"}), (behind, {"X": "T"}, {"Y": "OUT"})], **more)
    return source, behind, ensemble


def outputs(client: Client) -> list[int]:
    return [each["OUT"] for each in client.answers]


def finish(request: InferRequest) -> None:
    request.deliver(None)


def test_an_ensemble_with_a_decoupled_step_is_decoupled() -> None:
    _, _, ensemble = repeat()

    assert ensemble.is_decoupled


def test_each_response_is_carried_on_as_it_comes() -> None:
    source, behind, ensemble = repeat()
    behind.on_request = plus(100)
    _, client = ensemble.ask(IN=1)

    answer(source.open[0], final=False, Y=1)
    assert outputs(client) == [101]
    answer(source.open[0], final=False, Y=2)
    assert outputs(client) == [101, 102]
    assert not client.is_done
    finish(source.open[0])

    assert client.is_done


def test_the_last_response_is_final_when_its_model_has_said_so_before_it_is_ready() -> None:
    source, behind, ensemble = repeat()
    _, client = ensemble.ask(IN=1)

    answer(source.open[0], final=True, Y=1)
    assert not client.is_done
    answer(behind.open[0], Y=5)

    assert outputs(client) == [5]
    assert client.is_done
    assert ensemble.stats.success_count == 1


def test_responses_come_in_the_order_in_which_they_are_ready() -> None:
    source, behind, ensemble = repeat()
    _, client = ensemble.ask(IN=1)
    answer(source.open[0], final=False, Y=1)
    answer(source.open[0], final=True, Y=2)

    answer(behind.open[1], Y=2)
    answer(behind.open[0], Y=1)

    assert outputs(client) == [2, 1]
    assert client.is_done


def test_no_response_at_all_is_a_final_flag() -> None:
    source, behind, ensemble = repeat()
    _, client = ensemble.ask(IN=1)

    finish(source.open[0])

    assert client.is_done
    assert not client.answers
    assert not behind.requests
    assert ensemble.stats.success_count == 1


def test_a_step_behind_that_fails_fails_the_request_and_cancels_the_producer() -> None:
    source, behind, ensemble = repeat()
    _, client = ensemble.ask(IN=1)
    answer(source.open[0], final=False, Y=1)

    behind.open[0].fail(InvalidArg("no"))

    assert str(client.error) == "in ensemble 'e', no"
    assert source.open[0].is_cancelled()
    answer(source.open[0], final=True, Y=2)
    assert len(behind.requests) == 1
    assert client.is_done


def test_decoupled_steps_behind_each_other_multiply() -> None:
    first, second = FakeModel("first", decoupled=True), FakeModel("second", decoupled=True)
    ensemble = Ensemble([(first, {"X": "IN"}, {"Y": "T"}), (second, {"X": "T"}, {"Y": "OUT"})])
    _, client = ensemble.ask(IN=1)
    for value in (1, 2):
        answer(first.open[0], final=value == 2, Y=value)

    for request in second.open:
        value = int(request.inputs["X"].numpy().item())
        answer(request, final=False, Y=value * 10)
        answer(request, final=False, Y=value * 10 + 1)
        finish(request)

    assert outputs(client) == [10, 11, 20, 21]
    assert client.is_done


def test_outputs_of_a_decoupled_step_are_answered_together_with_what_is_made_of_them() -> None:
    source, behind = FakeModel("source", decoupled=True), FakeModel("behind")
    ensemble = Ensemble(
        [(source, {"X": "IN"}, {"Y": "OUT"}), (behind, {"X": "OUT"}, {"Y": "OUT2"})], outputs=("OUT", "OUT2")
    )
    _, client = ensemble.ask(IN=1)

    answer(source.open[0], final=True, Y=1)
    answer(behind.open[0], Y=2)

    assert client.answers == [{"OUT": 1, "OUT2": 2}]
    assert client.is_done


def test_a_decoupled_step_nobody_needs_is_not_run_and_one_answer_comes() -> None:
    source, plain, behind = FakeModel("source", decoupled=True), FakeModel("plain"), FakeModel("behind")
    ensemble = Ensemble(
        [
            (plain, {"X": "IN"}, {"Y": "T"}),
            (source, {"X": "T"}, {"Y": "OUT"}),
            (behind, {"X": "OUT"}, {"Y": "OUT2"}),
        ],
        outputs=("OUT", "OUT2"),
    )
    plain.on_request = plus(1)
    _, client = ensemble.ask("OUT", IN=1)

    answer(source.open[0], final=True, Y=7)

    assert not behind.requests
    assert outputs(client) == [7]
    assert client.is_done


def test_a_response_can_change_the_sequence_of_what_is_behind_it() -> None:
    source, behind, ensemble = repeat()
    ensemble.ask(IN=1)

    source.open[0].deliver(
        InferResponse([number("Y", 1)], parameters={"sequence_id": 9, "sequence_start": True}), False
    )

    assert (behind.open[0].correlation_id, behind.open[0].flags) == (9, SEQUENCE_START)


def test_a_limit_has_the_model_before_it_wait_and_drops_nothing() -> None:
    source, behind, ensemble = repeat(max_inflight_requests=2)
    _, client = ensemble.ask(IN=1)
    producer = source.open[0]
    for value in (1, 2):
        answer(producer, final=False, Y=value)
    assert not producer.response_flow().is_paused

    for value in (3, 4):  # what was under way when it was told
        answer(producer, final=False, Y=value)
    assert len(behind.open) == 2
    assert producer.response_flow().is_paused
    answer(behind.open[0], Y=1)
    assert producer.response_flow().is_paused
    answer(behind.open[0], Y=2)
    assert not producer.response_flow().is_paused
    assert len(behind.open) == 2
    finish(producer)
    answer(behind.open[0], Y=3)
    answer(behind.open[0], Y=4)

    assert outputs(client) == [1, 2, 3, 4]
    assert client.is_done


def test_a_limit_holds_for_all_requests_together() -> None:
    model = FakeModel("m")
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})], max_inflight_requests=1)
    clients = [ensemble.ask(IN=index)[1] for index in range(3)]
    assert len(model.open) == 1

    for index in range(3):
        answer(model.open[0], Y=index)

    assert [outputs(client) for client in clients] == [[0], [1], [2]]


@pytest.mark.parametrize("is_refused", [False, True])
def test_thousands_that_waited_for_their_turn_are_answered_when_their_turns_are_short(
    is_refused: bool,
) -> None:
    def refuse(request: InferRequest) -> None:
        raise Unavailable("down")

    model = FakeModel("m")
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})], max_inflight_requests=1)
    clients = [ensemble.ask(IN=index)[1] for index in range(3000)]
    model.on_request = refuse if is_refused else plus(1)

    answer(model.open[0], Y=1)

    assert all(client.is_done for client in clients)
    assert sum(client.error is not None for client in clients) == (2999 if is_refused else 0)


def test_a_request_that_was_cancelled_while_a_step_of_it_waited_takes_nobodys_turn() -> None:
    model = FakeModel("m")
    ensemble = Ensemble([(model, {"X": "IN"}, {"Y": "OUT"})], max_inflight_requests=1)
    ensemble.ask(IN=0)
    waiting, _ = ensemble.ask(IN=1)
    _, last = ensemble.ask(IN=2)

    waiting.cancel()
    answer(model.open[0], Y=0)
    answer(model.open[0], Y=2)

    assert [int(request.inputs["X"].numpy().item()) for request in model.requests] == [0, 2]
    assert last.is_done


def test_a_model_is_not_told_to_wait_for_itself() -> None:
    model = FakeModel("m", decoupled=True)
    ensemble = Ensemble(
        [(model, {"X": "IN"}, {"Y": "T"}), (model, {"X": "T"}, {"Y": "OUT"})], max_inflight_requests=1
    )
    ensemble.ask(IN=1)
    producer = model.open[0]

    for value in range(3):
        answer(producer, final=False, Y=value)

    assert not producer.response_flow().is_paused


def test_without_a_limit_a_model_waits_when_very_much_of_what_it_sent_is_not_worked_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_step, "MOST_BRANCHES", 4)
    source, behind, ensemble = repeat()
    ensemble.ask(IN=1)
    producer = source.open[0]
    for value in range(4):
        answer(producer, final=False, Y=value)
    assert producer.response_flow().is_paused

    for value in range(3):
        answer(behind.open[0], Y=value)

    assert not producer.response_flow().is_paused


def test_the_producer_waits_also_for_the_client_of_the_ensemble() -> None:
    source, _, ensemble = repeat()
    request, _ = ensemble.ask(IN=1)
    request.response_flow().pause()
    let_go: list[bool] = []

    source.open[0].response_flow().when_open(lambda: let_go.append(True))
    assert not let_go
    request.response_flow().resume()

    assert let_go
