"""The oldest strategy on our server and on a real one: same batches, same answers, same counts."""

from __future__ import annotations

from .conftest import Stage


def test_a_batch_takes_the_oldest_request_of_each_sequence(stage: Stage) -> None:
    model = stage("oldest")
    answers = [
        model.block(1, start=True),
        model.queue(20, 2, start=True),
        model.queue(21, 2),
        model.queue(30, 3, start=True, end=True),
        model.queue(40, 4, start=True, end=True),
        model.queue(22, 2, end=True),
    ]
    model.release()

    assert [answer.result() for answer in answers] == [-7, 20, 41, 30, 40, 63]
    assert model.ask(10, 1, end=True) == 3
    # The fourth waits for the slot of the third; nobody has a place of its own in a batch.
    assert [sorted(batch) for batch in model.batches] == [[-7], [20, 30], [21, 40], [22], [10]]
    assert model.counted(batches={1: 3, 2: 2}, inferences=7)


def test_preferred_sizes_and_the_delay_are_those_of_a_dynamic_batcher(stage: Stage) -> None:
    alone, together = stage("preferred"), stage("preferred_together")

    assert alone.ask_alone() >= 0.5
    together.ask_together()

    assert (alone.batches, together.batches) == ([[1]], [[2, 10]])
