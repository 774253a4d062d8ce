"""Iterative sequences on our server and on a real one: the same steps in the same batches."""

from __future__ import annotations

from typing import Any

import pytest
from tritonpy_sdk.testing import until

from .conftest import Stage


def test_new_requests_join_between_two_steps(stage: Stage) -> None:
    model = stage("steps")
    answers = [model.block(0), *(model.queue(value, 0) for value in (2, 3, 1))]
    model.release()

    assert [answer.result() for answer in answers] == [7, 2, 3, 1]
    # Whoever is done leaves its place to nobody.
    assert model.batches == [[-7], [-7, 2, 3, 1], [-7, 2, 3], [-7, None, 3], *[[-7]] * 3]
    first = [batch[0] for _, batch in model.rows]
    assert [(row["START"], row["flags"]) for row in first] == [(1, 1)] + [(0, 0)] * 6
    assert len({row["id"] for row in first}) == 1
    assert model.counted(inferences=13, executions=7, batches={1: 4, 3: 2, 4: 1})


def test_the_oldest_strategy_gives_each_step_to_its_dynamic_batcher(stage: Stage) -> None:
    model = stage("steps_oldest")
    answers = [model.block(0), *(model.queue(value, 0) for value in (2, 3, 1))]
    model.release()

    assert [answer.result() for answer in answers] == [7, 2, 3, 1]
    assert None not in [value for batch in model.batches for value in batch]
    assert sorted(value for batch in model.batches for value in batch) == [-7] * 7 + [1, 2, 2, 3, 3, 3]


def test_without_batches_one_request_is_finished_after_the_other(stage: Stage) -> None:
    model = stage("steps_unbatched")
    shape: dict[str, Any] = {"shape": [1]}
    answers = [model.block(0, **shape), *(model.queue(value, 0, **shape) for value in (2, 3, 1))]
    model.release()

    assert [answer.result() for answer in answers] == [7, 2, 3, 1]
    assert model.batches == [[-7]] * 7 + [[2]] * 2 + [[3]] * 3 + [[1]]


@pytest.mark.parametrize("name", ["steps", "steps_oldest"])
def test_an_id_of_the_client_is_a_sequence_that_the_model_ends(stage: Stage, name: str) -> None:
    model = stage(name)
    refusal = (
        f"inference request for sequence 77 to model '{name}' must specify the START flag on the first "
        f"request of the sequence"
    )
    assert model.ask(2, 77) == (400, refusal)
    assert model.ask(2, 77, start=True) == 2

    def is_refused() -> bool:
        answer = model.ask(2, 77)
        return isinstance(answer, tuple) and answer[1].startswith(refusal)  # else it was still there

    until(is_refused)
