"""The configuration of a model that its backend in C has completed."""

from __future__ import annotations

import json

from tritonpy.plugin import Internal, InvalidArg, JsonObject

_TAKEN = {"max_batch_size": 0, "input": [], "output": []}
"""Fields that a backend sets, and what it sets them to where it leaves them out."""

_SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")


def completed_config(name: str, given: JsonObject, text: str) -> JsonObject:
    """Take from a configuration that a backend has set what is a backend's to set, as Triton does.

    These are the size of batches, inputs, outputs, whether the model is decoupled, and the scheduler of a
    model that has none. Other fields are as the author of the model wants them.

    Args:
        name: the model's.
        given: its configuration before.
        text: what `TRITONBACKEND_ModelSetConfig` got.

    Raises:
        InvalidArg: it is no JSON object.
        Internal: it has another scheduler than the model.
    """
    try:
        wanted = json.loads(text)
    except (ValueError, RecursionError) as exc:  # the latter for what is nested too deeply
        raise InvalidArg(
            f"the backend of model '{name}' has set a configuration that is no JSON: {exc}"
        ) from exc
    if not isinstance(wanted, dict):
        raise InvalidArg(f"the backend of model '{name}' has set a configuration that is no JSON object")
    completed = {**given, **{field: wanted.get(field, default) for field, default in _TAKEN.items()}}
    if "model_transaction_policy" in wanted:
        completed["model_transaction_policy"] = wanted["model_transaction_policy"]
    own = next((each for each in _SCHEDULERS if each in given), None)
    for scheduler in _SCHEDULERS:
        if scheduler not in wanted:
            continue
        if own not in (None, scheduler):
            raise Internal(f"Cannot update scheduling choice from {own} to {scheduler} when auto-completing.")
        completed.setdefault(scheduler, wanted[scheduler])
    return completed
