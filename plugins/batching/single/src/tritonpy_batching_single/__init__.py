"""The batching strategy `single`: a batch is one request; the smallest example of a strategy."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.plugin import Batch, Batcher, InferRequest, Model, hookimpl


@hookimpl
def model_batcher_initialize(model: Model) -> None:
    """Nothing to prepare."""


@hookimpl
def model_batcher_finalize(batcher: Batcher) -> None:
    """Nothing to free."""


@hookimpl
def model_batch_initialize(batcher: Batcher) -> bool:
    """The batch's state says whether it has its request."""
    return False


@hookimpl
def model_batch_include_request(request: InferRequest, batch: Batch) -> bool:
    """Take the first request and no other."""
    is_full: bool = batch.state
    batch.state = True
    return not is_full


@hookimpl
def model_batch_include_requests(batch: Batch, requests: Sequence[InferRequest]) -> int:
    """The same question for a whole run, asked in one call."""
    is_full: bool = batch.state
    batch.state = is_full or bool(requests)
    return 0 if is_full else min(1, len(requests))


@hookimpl
def model_batch_finalize(batch: Batch) -> None:
    """Nothing to free."""
