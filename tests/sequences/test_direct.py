"""The direct strategy on our server and on a real one: same batches, same answers, same counts."""

from __future__ import annotations

import time

import pytest

from .conftest import Stage


def test_a_sequence_keeps_its_place_and_null_requests_count_for_nothing(stage: Stage) -> None:
    model = stage("places")
    sums = [
        model.ask(1, 1, start=True),
        model.ask(2, 2, start=True),
        model.ask(3, 3, start=True),
        model.ask(4, 2),
        model.ask(5, 3, end=True),
        model.ask(6, 2, end=True),
        model.ask(7, 1, end=True),
    ]

    assert sums == [1, 2, 3, 6, 8, 12, 8]
    assert model.batches == [[1], [None, 2], [None, None, 3], [None, 4], [None, None, 5], [None, 6], [7]]
    counts = {"success": 7, "fail": 0, "queue": 7, "inferences": 7, "executions": 7}
    assert model.counted(**counts, batches={1: 2, 2: 3, 3: 2})


def test_controls_say_where_in_its_sequence_a_request_stands(stage: Stage) -> None:
    model = stage("again")
    before = len(model.rows)
    for value, options in enumerate([{"start": True}, {}, {"end": True}, {"start": True, "end": True}]):
        model.ask(value, 9, **options)

    seen = [[row[name] for name in ("START", "END", "READY", "CORRID")] for _, (row,) in model.rows[before:]]
    assert seen == [[1, 0.0, True, 9], [0, 0.0, True, 9], [0, 1.0, True, 9], [1, 1.0, True, 9]]


def test_a_start_in_the_middle_begins_anew_in_the_same_place(stage: Stage) -> None:
    model = stage("again")
    before = len(model.batches)
    sums = [model.ask(1, 1, start=True), model.ask(10, 2, start=True), model.ask(20, 2, start=True)]
    model.ask(0, 1, end=True)
    model.ask(0, 2, end=True)

    assert sums == [1, 10, 20]
    assert model.batches[before:] == [[1], [None, 10], [None, 20], [0], [None, 0]]


def test_sequences_spread_over_instances_and_stay_there(stage: Stage) -> None:
    model = stage("two")
    for sequence in (1, 2, 3, 4):
        model.ask(sequence, sequence, start=True)
    for sequence in (4, 3, 2, 1):
        assert model.ask(10, sequence, end=True) == 10 + sequence

    starts, ends = model.rows[:4], model.rows[4:]
    homes = [instance for instance, _ in starts]
    assert len(set(homes[:2])) == len(set(homes[2:])) == 2
    assert [instance for instance, _ in ends] == homes[::-1]
    assert [len(batch) for _, batch in starts] == [1, 1, 2, 2]


def test_a_batch_takes_one_request_of_each_slot(stage: Stage) -> None:
    model = stage("shapes")
    answers = [
        model.block(1, start=True),
        model.queue(1, 1),
        model.queue([2, 0], 2, start=True),
        model.queue(3, 3, start=True),
        model.queue(4, 1),
        model.queue([5, 0], 4, start=True),
        model.queue(6, 2),
    ]
    model.release()
    sums = [answer.result() for answer in answers]

    # Requests of another shape wait for the next batch.
    nobody = [None, None, None]
    assert model.batches == [[-7], [1, None, 3, None], [4, *nobody], [None, 2, None, 5], [None, 6]]
    assert sums == [-7, -6, 2, 3, -2, 5, 8]


def test_a_model_without_batches_has_one_slot(stage: Stage) -> None:
    model = stage("unbatched")
    assert model.ask(1, 1, start=True, shape=[1]) == 1
    assert model.ask(2, 1, end=True, shape=[1]) == 3

    assert model.batches == [[1], [2]]


def test_the_backlog_gets_slots_in_order_with_all_that_was_sent(stage: Stage) -> None:
    model = stage("backlog")
    answers = [
        model.block(1, start=True),
        model.queue(20, 2, start=True),
        model.queue(30, 3, start=True, end=True),
        model.queue(21, 2, end=True),
        model.queue(2, 1, end=True),
    ]
    model.release()

    assert [answer.result() for answer in answers] == [-7, 20, 30, 41, -5]
    assert model.batches == [[-7], [2], [20], [21], [30]]


def test_a_sequence_waits_in_the_backlog_no_longer_than_its_timeout(stage: Stage) -> None:
    model = stage("expiring")
    model.ask(1, 1, start=True)
    answers = [model.queue(20, 2, start=True), model.queue(21, 2)]
    patient = model.queue(30, 3, start=True, end=True)
    begin = time.monotonic()
    answers.append(model.send(22, 2, timeout=1_000_000))  # the last: nobody has to come before it is over

    assert [answer.result() for answer in answers] == [
        (503, "timeout of the corresponding sequence has been expired")
    ] * 3
    assert time.monotonic() - begin >= 1
    assert model.ask(23, 2)[0] == 400
    assert model.ask(2, 1, end=True) == 3
    assert patient.result() == 30
    assert model.failed(REJECTED=3)
    assert model.counted(fail=3)


@pytest.mark.stress  # of ours, `test_many` says the same
def test_an_idle_sequence_ends_and_has_to_start_again(stage: Stage) -> None:
    model = stage("idle")
    model.ask(1, 1, start=True)
    assert model.ask(2, 1) == 3
    time.sleep(6)

    status, text = model.ask(3, 1)

    assert status == 400
    assert text.startswith(
        "inference request for sequence 1 to model 'idle' must specify the START flag on the first request "
        "of the sequence"
    )
    assert model.ask(4, 1, start=True, end=True) == 4
    assert model.batches == [[1], [2], [4]]


def test_a_batch_waits_for_slots_but_not_for_ever(stage: Stage) -> None:
    alone, together = stage("utilized"), stage("utilized_together")

    assert alone.ask_alone() >= 0.5
    together.ask_together()

    assert (alone.batches, together.batches) == ([[1]], [[2, 10]])
    assert together.counted(batches={2: 1})


def test_what_does_not_fit_is_refused(stage: Stage) -> None:
    model = stage("refusals")
    unnamed = "inference request to model 'refusals' must specify a non-zero or non-empty correlation ID"
    for sequence in (None, 0, ""):
        assert model.ask(1, sequence, start=True) == (400, unnamed)
    assert model.ask(1, 5) == (
        400,
        "inference request for sequence 5 to model 'refusals' must specify the START flag on the first "
        "request of the sequence",
    )
    assert model.ask([1, 2], 5, start=True, shape=[2, 1]) == (
        400,
        "inference request to model 'refusals' must specify batch-size 1 due to requirements of sequence "
        "batcher",
    )
    sent = {"name": "START", "datatype": "INT32", "shape": [1, 1], "data": [1]}
    status, text = model.ask(1, 5, start=True, inputs=(sent,))
    assert status == 400
    assert "expected 1 inputs but got 2 inputs for model 'refusals'" in text
    assert model.counted(fail=0)
    assert model.batches == []
