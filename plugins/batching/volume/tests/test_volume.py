from __future__ import annotations

import inspect
from collections import deque
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tritonpy_batching_volume as volume
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.plugin import Backend, Batch, Batcher, InferRequest, InvalidArg, Model, NotFound, Tensor


def model_with(limit: str | None) -> Model:
    parameters = {} if limit is None else {"MAX_BATCH_VOLUME_BYTES": {"string_value": limit}}
    return Model("m", 1, {"name": "m", "parameters": parameters}, Path("/models/m"), Backend("identity"))


def batcher_with(limit: int) -> Batcher:
    model = model_with(str(limit))
    return Batcher(model, volume.model_batcher_initialize(model))


def request_of(byte_size: int) -> InferRequest:
    return InferRequest("m", {"X": Tensor("X", "UINT8", (byte_size,), bytes(byte_size))})


def batches_of(byte_sizes: list[int], limit: int) -> list[list[int]]:
    """The sizes that run together when the strategy alone decides; who is refused alone runs alone."""
    batcher = batcher_with(limit)
    queue = deque(request_of(byte_size) for byte_size in byte_sizes)
    batches = []
    while queue:
        batch = Batch(batcher, volume.model_batch_initialize(batcher))
        taken: list[InferRequest] = []
        while queue and (volume.model_batch_include_request(queue[0], batch)):
            taken.append(queue.popleft())
        volume.model_batch_finalize(batch)
        if not taken:
            taken.append(queue.popleft())
        batches.append([request.byte_size for request in taken])
    volume.model_batcher_finalize(batcher)
    return batches


def test_twelve_requests_of_16_bytes_run_as_six_and_six():
    assert [len(batch) for batch in batches_of([16] * 12, limit=96)] == [6, 6]


def test_the_first_request_that_does_not_fit_closes_the_batch():
    assert batches_of([16, 32, 48, 16, 16, 16, 80, 96], limit=96) == [[16, 32, 48], [16, 16, 16], [80], [96]]


def test_a_request_over_the_limit_runs_alone_and_takes_nobody_with_it():
    assert batches_of([16, 120, 4, 8, 12], limit=96) == [[16], [120], [4, 8, 12]]


@given(st.lists(st.integers(0, 200)), st.integers(1, 300))
def test_no_batch_of_several_exceeds_the_limit_and_none_could_have_taken_the_next(byte_sizes, limit):
    batches = batches_of(byte_sizes, limit)

    assert [byte_size for batch in batches for byte_size in batch] == byte_sizes
    assert all(sum(batch) <= limit for batch in batches if len(batch) > 1)
    assert all(sum(batch) + following[0] > limit for batch, following in pairwise(batches))


@given(st.lists(st.lists(st.integers(0, 64), max_size=8), max_size=5), st.integers(1, 200))
def test_asking_for_a_run_at_once_gives_the_answers_of_asking_one_by_one(runs, limit):
    batcher = batcher_with(limit)
    at_once = Batch(batcher, volume.model_batch_initialize(batcher))
    one_by_one = Batch(batcher, volume.model_batch_initialize(batcher))
    for run in runs:
        requests = [request_of(byte_size) for byte_size in run]

        count = volume.model_batch_include_requests(at_once, requests)

        answers = []
        for request in requests:
            answers.append(volume.model_batch_include_request(request, one_by_one))
            if not answers[-1]:
                break
        assert count == answers.count(True)
        assert at_once.state == one_by_one.state
        if count < len(requests):
            return  # the batch is closed


def test_every_input_counts_as_it_travels():
    batcher = batcher_with(20)
    batch = Batch(batcher, volume.model_batch_initialize(batcher))
    text = Tensor.from_numpy("TEXT", np.array([b"abc", b""], object))
    request = InferRequest("m", {"TEXT": text, "X": Tensor("X", "FP32", (2,), bytes(8))})

    assert volume.model_batch_include_request(request, batch) is True
    assert batch.state == 20 - (4 + 3 + 4) - 8


def test_attempts_do_not_share_what_is_left():
    batcher = batcher_with(16)
    first, second = (Batch(batcher, volume.model_batch_initialize(batcher)) for _ in range(2))

    assert volume.model_batch_include_request(request_of(16), first) is True
    assert volume.model_batch_include_request(request_of(16), second) is True


def test_a_configuration_without_the_limit_is_refused_with_the_line_to_add():
    reason = r"^Unable to find MAX_BATCH_VOLUME_BYTES parameter in model config of 'm'; add parameters \{"

    with pytest.raises(NotFound, match=reason):
        volume.model_batcher_initialize(model_with(None))


@pytest.mark.parametrize("limit", ["abc", "-1", "0", "1.5", "1e6", " 96", "٩٦"])
def test_a_limit_that_is_no_number_of_bytes_is_refused(limit):
    with pytest.raises(InvalidArg, match=r"of model 'm': got .* expected a whole number of bytes, 1 or more"):
        volume.model_batcher_initialize(model_with(limit))


def test_limits_beyond_32_bits_are_kept_whole():
    assert volume.model_batcher_initialize(model_with("4294967300")) == 4294967300


def test_it_is_installed_under_its_name():
    [entry] = entry_points(group="tritonpy.batching", name="volume")

    assert entry.load() is volume
    hooks = [name for name, _ in inspect.getmembers(volume, inspect.isfunction) if name.startswith("model_")]
    assert len(hooks) == 6
