"""The batching strategy `pad`: batches have sizes that the model was built for, filled up where rows lack."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from tritonpy.plugin import Batch, Batcher, InferRequest, InvalidArg, Model, hookimpl


@hookimpl
def model_batcher_initialize(model: Model) -> Sequence[int]:
    """The sizes that the model executes: the preferred ones and the largest one."""
    if model.max_batch_size < 1:
        raise InvalidArg(
            f"batching strategy 'pad' has nothing to fill in model '{model.name}': its max_batch_size is "
            f"{model.max_batch_size}, expected the largest batch that it executes"
        )
    batching = model.config.get("dynamic_batching")
    if batching is None:
        raise InvalidArg(
            f"batching strategy 'pad' is never asked for model '{model.name}': its configuration has no "
            f"'dynamic_batching {{ preferred_batch_size: [ … ] }}'"
        )
    return sorted({*batching.get("preferred_batch_size", ()), model.max_batch_size})


@hookimpl
def model_batcher_finalize(batcher: Batcher) -> None:
    """Nothing to free."""


@hookimpl
def model_batch_initialize(batcher: Batcher) -> None:
    """A batch needs no state."""


@hookimpl
def model_batch_include_request(request: InferRequest, batch: Batch) -> bool:
    """Everything may go together that the batcher would put together."""
    return True


@hookimpl
def model_batch_include_requests(batch: Batch, requests: Sequence[InferRequest]) -> int:
    """The same answer for a whole run."""
    return len(requests)


@hookimpl
def model_batch_padded_size(batch: Batch, size: int) -> int:
    """The smallest size of the model that has room for all rows."""
    sizes: Sequence[int] = batch.batcher.state
    return sizes[bisect_left(sizes, size)]


@hookimpl
def model_batch_finalize(batch: Batch) -> None:
    """Nothing to free."""
