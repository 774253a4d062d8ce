"""The batching strategy `volume`: inputs of a batch have at most `MAX_BATCH_VOLUME_BYTES` bytes together."""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.plugin import Batch, Batcher, InferRequest, InvalidArg, Model, NotFound, hookimpl

PARAMETER = "MAX_BATCH_VOLUME_BYTES"


@hookimpl
def model_batcher_initialize(model: Model) -> int:
    """Read the limit in bytes."""
    text = model.parameter(PARAMETER)
    if not text:
        raise NotFound(
            f"Unable to find {PARAMETER} parameter in model config of '{model.name}'; add "
            f'parameters {{ key: "{PARAMETER}" value {{ string_value: "1048576" }} }} to allow 1 MiB'
        )
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidArg(
            f"parameter {PARAMETER} of model '{model.name}': got '{text}', expected a whole number of bytes, "
            f"1 or more"
        )
    return int(text)


@hookimpl
def model_batcher_finalize(batcher: Batcher) -> None:
    """Nothing to free."""


@hookimpl
def model_batch_initialize(batcher: Batcher) -> int:
    """An empty batch has room for the whole limit."""
    limit: int = batcher.state
    return limit


@hookimpl
def model_batch_include_request(request: InferRequest, batch: Batch) -> bool:
    """Take the request if its inputs fit into what is left."""
    left: int = batch.state - request.byte_size
    if left < 0:
        return False
    batch.state = left
    return True


@hookimpl
def model_batch_include_requests(batch: Batch, requests: Sequence[InferRequest]) -> int:
    """The same question for a whole run, asked in one call."""
    left: int = batch.state
    count = 0
    for request in requests:
        byte_size = request.byte_size
        if byte_size > left:
            break
        left -= byte_size
        count += 1
    batch.state = left
    return count


@hookimpl
def model_batch_finalize(batch: Batch) -> None:
    """Nothing to free."""
