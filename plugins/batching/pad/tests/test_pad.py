from __future__ import annotations

import inspect
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import tritonpy_batching_pad as pad
from hypothesis import given
from hypothesis import strategies as st
from tritonpy.plugin import Backend, Batch, Batcher, InferRequest, InvalidArg, Model, Tensor


def model_with(max_batch_size: int, **config: Any) -> Model:
    config = {"name": "m", "max_batch_size": max_batch_size, **config}
    return Model("m", 1, config, Path("/models/m"), Backend("identity"))


def batch_of(max_batch_size: int, preferred: list[int]) -> Batch:
    model = model_with(max_batch_size, dynamic_batching={"preferred_batch_size": preferred})
    batcher = Batcher(model, pad.model_batcher_initialize(model))
    return Batch(batcher, pad.model_batch_initialize(batcher))


@pytest.mark.parametrize(("size", "expected"), [(1, 4), (3, 4), (4, 4), (5, 8), (8, 8), (9, 16), (16, 16)])
def test_a_batch_grows_to_the_next_size_of_the_model(size: int, expected: int) -> None:
    assert pad.model_batch_padded_size(batch_of(16, [8, 4]), size) == expected


def test_without_preferred_sizes_all_batches_are_as_large_as_can_be() -> None:
    assert pad.model_batch_padded_size(batch_of(16, []), 1) == 16


@given(st.integers(1, 64), st.lists(st.integers(1, 64)), st.integers(1, 64))
def test_the_size_is_one_of_the_models_and_has_room_for_all(
    most: int, preferred: list[int], size: int
) -> None:
    preferred = [each for each in preferred if each <= most]
    size = min(size, most)

    padded = pad.model_batch_padded_size(batch_of(most, preferred), size)

    assert padded in {*preferred, most}
    assert padded >= size
    assert not any(size <= each < padded for each in preferred)


def test_it_refuses_nobody() -> None:
    batch = batch_of(4, [])
    requests = [InferRequest("m", {"X": Tensor("X", "UINT8", (1, 1), bytes(1))}) for _ in range(3)]

    assert all(pad.model_batch_include_request(request, batch) for request in requests)
    assert pad.model_batch_include_requests(batch, requests) == 3


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (model_with(0, dynamic_batching={}), r"in model 'm': its max_batch_size is 0, expected"),
        (model_with(4), r"never asked for model 'm': its configuration has no 'dynamic_batching"),
    ],
)
def test_a_model_that_it_can_do_nothing_for_is_refused(model: Model, reason: str) -> None:
    with pytest.raises(InvalidArg, match=reason):
        pad.model_batcher_initialize(model)


def test_it_is_installed_under_its_name() -> None:
    [entry] = entry_points(group="tritonpy.batching", name="pad")

    assert entry.load() is pad
    hooks = [name for name, _ in inspect.getmembers(pad, inspect.isfunction) if name.startswith("model_")]
    assert len(hooks) == 7
