"""Looking things up in a model's configuration, parsed from the JSON in `args["model_config"]`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

JsonObject = dict[str, Any]  # Any: JSON


def get_input_config_by_name(model_config: JsonObject, name: str) -> JsonObject | None:
    """The configuration of the input called `name`, or None."""
    return _by_name(model_config.get("input", ()), name)


def get_output_config_by_name(model_config: JsonObject, name: str) -> JsonObject | None:
    """The configuration of the output called `name`, or None."""
    return _by_name(model_config.get("output", ()), name)


def using_decoupled_model_transaction_policy(model_config: JsonObject) -> bool:
    """True if the model may send any number of responses to a request."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def _by_name(tensors: Iterable[JsonObject], name: str) -> JsonObject | None:
    for tensor in tensors:
        if tensor["name"] == name:
            return tensor
    return None
