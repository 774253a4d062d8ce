"""Models that have a request executed again: one step of a generation, and then the next."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest


def generate(server, count: int, **options: Any) -> list[Any]:
    return server.stream("generates", {"COUNT": np.array([count], np.int32)}, **options)


@pytest.mark.parametrize("count", [1, 3])
def test_every_step_sends_its_response_and_the_last_one_ends(server, count):
    sent = generate(server, count)

    assert [each.outputs["STEP"][0] for each in sent] == list(range(count))
    assert [each.final for each in sent] == [False] * (count - 1) + [True]


def test_each_step_sees_the_same_request_as_a_sequence_that_started_once(server):
    sent = generate(server, 3, id="steps")

    flags, has_sequence, batch_sizes, ids = zip(
        *(json.loads(each.outputs["SEEN"][0]) for each in sent), strict=True
    )
    assert flags == (1, 0, 0)
    assert has_sequence == (True, True, True)
    assert batch_sizes == (1, 1, 1)
    assert ids == ("steps",) * 3


def test_requests_take_turns(server):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: generate(server, 5), range(4)))

    assert [[each.outputs["STEP"][0] for each in sent] for sent in found] == [list(range(5))] * 4


def test_each_step_is_counted_as_an_execution(server):
    before = server.settled_statistics("generates")
    generate(server, 4)

    server.wait_for(
        lambda: (
            server.statistics("generates")["execution_count"] == before["execution_count"] + 4
            and server.statistics("generates")["inference_count"] == before["inference_count"] + 4
        )
    )


@pytest.mark.parametrize("count", [1, 4])
def test_a_model_with_one_response_answers_at_the_last_step(server, count):
    answer = server.infer("generates_once", {"COUNT": np.array([count], np.int32)})

    assert answer.outputs == {"STEP": [count]}


def test_a_response_and_another_turn_do_not_go_together(server):
    answer = server.infer("generates_once", {"COUNT": np.array([-1], np.int32)})

    assert answer.status == 500
    assert answer.error.startswith(
        "Failed to process the request(s) for model 'generates_once_0', message: Expected a None object in "
        "the execute function return list for reschduled request, found type '<class '"
    )


@pytest.mark.ours("2.51 never answers")
def test_only_iterative_sequences_have_another_turn(server):
    answer = server.infer("sends_once", {"STEPS": ['[["reschedule"]]']})

    assert answer.status == 400
    assert answer.error == (
        "model 'sends_once' rescheduled a request, which only a model with "
        "'sequence_batching { iterative_sequence: true }' may do"
    )
