from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest
import tritonpy_batching_single as single
from tritonpy.plugin import Backend, Batch, Batcher, InferRequest, Model

MODEL = Model("m", 1, {"name": "m"}, Path("/models/m"), Backend("identity"))


@pytest.fixture
def new_batch():
    batcher = Batcher(MODEL, single.model_batcher_initialize(MODEL))
    yield lambda: Batch(batcher, single.model_batch_initialize(batcher))
    single.model_batcher_finalize(batcher)


def test_twelve_requests_run_as_twelve_batches(new_batch):
    queue = [InferRequest("m", {}) for _ in range(12)]
    batch_sizes = []

    while queue:
        batch = new_batch()
        size = 0
        while size < len(queue) and single.model_batch_include_request(queue[size], batch):
            size += 1
        single.model_batch_finalize(batch)
        batch_sizes.append(size)
        del queue[:size]

    assert batch_sizes == [1] * 12


def test_a_batch_that_has_its_request_refuses_all_others(new_batch):
    batch = new_batch()

    answers = [single.model_batch_include_request(InferRequest("m", {}), batch) for _ in range(4)]

    assert answers == [True, False, False, False]


@pytest.mark.parametrize("runs", [[0], [1], [5], [0, 3], [1, 1], [2, 4, 0], [0, 0, 1]])
def test_asking_for_a_run_at_once_gives_the_answers_of_asking_one_by_one(new_batch, runs):
    at_once, one_by_one = new_batch(), new_batch()
    for count in runs:
        requests = [InferRequest("m", {}) for _ in range(count)]

        accepted = single.model_batch_include_requests(at_once, requests)

        answers = [single.model_batch_include_request(request, one_by_one) for request in requests]
        assert accepted == answers.count(True)
        assert at_once.state == one_by_one.state


def test_it_is_installed_under_its_name():
    [entry] = entry_points(group="tritonpy.batching", name="single")

    assert entry.load() is single
