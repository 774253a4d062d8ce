"""The backend `repeat`: one response per element of `IN`, each after its own delay.

A decoupled model that does not batch:

* `IN`, INT32, one dimension: the elements. Response `i` has `OUT` = `IN[i]` and `IDX` = i, both with dims [1]
  (INT32 and UINT32). No elements are answered by the final flag alone.
* `DELAY`, UINT32, as long as `IN`: milliseconds to wait before response `i`.
* `WAIT`, UINT32, dims [1]: milliseconds until the instance is free for the next request. Less than the sum of
  `DELAY` makes answers of several requests mix.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from tritonpy.builtin.answer_threads import model_instance_finalize as model_instance_finalize
from tritonpy.builtin.answer_threads import model_instance_initialize as model_instance_initialize
from tritonpy.plugin import (
    Array,
    Cancelled,
    InferRequest,
    InferResponse,
    InvalidArg,
    Model,
    ModelInstance,
    hookimpl,
)

_LONGEST_SLEEP_S = 0.05
"""A cancelled request is noticed after this time at the latest."""

_DATATYPES = {
    "input": {"IN": "TYPE_INT32", "DELAY": "TYPE_UINT32", "WAIT": "TYPE_UINT32"},
    "output": {"OUT": "TYPE_INT32", "IDX": "TYPE_UINT32"},
}


@hookimpl
def model_initialize(model: Model) -> None:
    """Check that the configuration is the one this backend is for."""
    if model.max_batch_size != 0:
        raise InvalidArg(
            f"model '{model.name}': backend 'repeat' expects max_batch_size 0, got {model.max_batch_size}"
        )
    if not model.is_decoupled:
        raise InvalidArg(
            f"model '{model.name}': backend 'repeat' answers a request any number of times; set "
            f"model_transaction_policy {{ decoupled: true }}"
        )
    dims: dict[str, list[int]] = {}
    for key, expected in _DATATYPES.items():
        tensors = model.config.get(key, [])
        got = {tensor["name"]: tensor["data_type"] for tensor in tensors}
        if got != expected:
            raise InvalidArg(f"model '{model.name}': backend 'repeat' expects {key} {expected}, got {got}")
        dims |= {tensor["name"]: [int(dim) for dim in tensor["dims"]] for tensor in tensors}
    if len(dims["IN"]) != 1 or dims["DELAY"] != dims["IN"]:
        raise InvalidArg(
            f"model '{model.name}': backend 'repeat' expects IN and DELAY to have the same one dimension, "
            f"got dims {dims['IN']} and {dims['DELAY']}"
        )
    for name in ("WAIT", "OUT", "IDX"):
        if dims[name] != [1]:
            raise InvalidArg(
                f"model '{model.name}': backend 'repeat' expects {name} with dims [1], got {dims[name]}"
            )


@hookimpl
def model_instance_execute(instance: ModelInstance, requests: Sequence[InferRequest]) -> None:
    """Start answering, then keep the instance busy for WAIT."""
    for request in requests:
        wait_ms = int(request.input("WAIT").numpy()[0])
        instance.state.start(answer, request)
        _sleep(request, wait_ms)


def answer(request: InferRequest) -> None:
    """Send every response of one request after its delay, then the final flag alone."""
    elements: Array = request.input("IN").numpy()
    delays_ms: Array = request.input("DELAY").numpy()
    if elements.shape != delays_ms.shape:
        raise InvalidArg(
            f"{request.label}model '{request.model_name}' expects as many elements in 'DELAY' as in 'IN', "
            f"got {delays_ms.size} and {elements.size}"
        )
    for index, delay_ms in enumerate(delays_ms.tolist()):
        _sleep(request, delay_ms)
        if request.is_cancelled():
            raise Cancelled(f"{request.label}request was cancelled")
        response = InferResponse().add("OUT", elements[index : index + 1])
        request.respond(response.add("IDX", np.array([index], np.uint32)), final=False)
    request.respond(None)


def _sleep(request: InferRequest, duration_ms: int) -> None:
    """Sleep, but not much longer than the request is wanted."""
    end = time.monotonic() + duration_ms / 1000
    while (left_s := end - time.monotonic()) > 0 and not request.is_cancelled():
        time.sleep(min(left_s, _LONGEST_SLEEP_S))
