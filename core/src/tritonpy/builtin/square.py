"""The backend `square`: `IN` = n is answered by n responses with `OUT` = n.

A model has one input `IN` and one output `OUT`, both INT32 with dims [1], and is decoupled. It may batch, but
every request has one row. n = 0 is answered by the final flag alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tritonpy.builtin.answer_threads import model_instance_finalize as model_instance_finalize
from tritonpy.builtin.answer_threads import model_instance_initialize as model_instance_initialize
from tritonpy.plugin import (
    Cancelled,
    InferRequest,
    InferResponse,
    InvalidArg,
    Model,
    ModelInstance,
    hookimpl,
)


@hookimpl
def model_initialize(model: Model) -> None:
    """Check that the configuration is the one this backend is for."""
    for key, name in (("input", "IN"), ("output", "OUT")):
        tensors = model.config.get(key, [])
        got = [(tensor["name"], tensor["data_type"], list(map(int, tensor["dims"]))) for tensor in tensors]
        if got != [(name, "TYPE_INT32", [1])]:
            raise InvalidArg(
                f"model '{model.name}': backend 'square' expects one {key}, '{name}' of TYPE_INT32 with dims "
                f"[1], got {got}"
            )
    if not model.is_decoupled:
        raise InvalidArg(
            f"model '{model.name}': backend 'square' answers a request any number of times; set "
            f"model_transaction_policy {{ decoupled: true }}"
        )


@hookimpl
def model_instance_execute(instance: ModelInstance, requests: Sequence[InferRequest]) -> None:
    """Start answering every request and be free for the next batch."""
    for request in requests:
        instance.state.start(answer, request)


def answer(request: InferRequest) -> None:
    """Send every response of one request, then the final flag alone."""
    tensor = request.input("IN")
    array = tensor.numpy()
    if array.size != 1 or array.item() < 0:
        raise InvalidArg(
            f"{request.label}input 'IN' of model '{request.model_name}': got {array.tolist()}, expected one "
            f"number of responses, 0 or more"
        )
    for _ in range(array.item()):
        if request.is_cancelled():
            raise Cancelled(f"{request.label}request was cancelled")
        request.respond(InferResponse().add("OUT", tensor), final=False)
    request.respond(None)
