"""Raw inputs of requests to other models, which have bytes only."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from tritonpy.plugin import (
    CONFIG_DATATYPES,
    InferRequest,
    Internal,
    InvalidArg,
    JsonObject,
    Tensor,
    TensorSpec,
    TritonError,
    raw_tensor,
)


def describe_raw_input(
    request: InferRequest,
    send: Callable[[TritonError | None], None],
    config: Future[Any],  # Any: JSON
) -> None:
    """Give the only input of a request the datatype and shape that it has in the configuration of its model.

    Args:
        request: has an input of any datatype, or several of them.
        send: called when that is done, or with the error that the request is to be refused with.
        config: of the model; done.
    """
    refusal: TritonError | None = None
    try:
        tensor = _described(request, config.result())
        request.inputs = {tensor.name: tensor}
    except TritonError as error:
        refusal = error
    except Exception as exc:
        refusal = Internal(f"{type(exc).__name__}: {exc}")
    send(refusal)


def _described(request: InferRequest, config: JsonObject) -> Tensor:
    is_batched = config.get("max_batch_size", 0) > 0
    specs = {}
    for each in config.get("input", ()):
        dims = [-1, *each["dims"]] if is_batched else each["dims"]
        datatype = CONFIG_DATATYPES[each["data_type"]].name
        specs[each["name"]] = TensorSpec(each["name"], datatype, tuple(map(int, dims)))
    if len(request.inputs) > 1:
        raise InvalidArg(
            f"{request.label}Raw request must only have 1 input (found {len(request.inputs)}) to be "
            f"deduced but got {len(specs)} inputs in '{request.model_name}' model configuration"
        )
    (given,) = request.inputs.values()
    return raw_tensor(given.wire(), specs, request.model_name, is_batched=is_batched, request_id=request.id)
