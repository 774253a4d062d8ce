"""The batching strategy `xyz`: requests run together only if they say the same in one of their parameters."""

from __future__ import annotations

from tritonpy.plugin import Batch, Batcher, InferRequest, Model, ParameterValue, hookimpl


@hookimpl
def model_batcher_initialize(model: Model) -> str:
    return model.parameter("SAME_PARAMETER", "adapter")  # becomes batcher.state


@hookimpl
def model_batcher_finalize(batcher: Batcher) -> None: ...


@hookimpl
def model_batch_initialize(batcher: Batcher) -> list[ParameterValue | None]:
    return []  # becomes batch.state: what the first request said


@hookimpl
def model_batch_include_request(request: InferRequest, batch: Batch) -> bool:
    value = request.parameters.get(batch.batcher.state)
    if not batch.state:
        batch.state.append(value)
    return bool(batch.state[0] == value)


@hookimpl
def model_batch_finalize(batch: Batch) -> None: ...
