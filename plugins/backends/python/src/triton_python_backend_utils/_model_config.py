"""The configuration that `auto_complete_config` receives, completes and returns."""

from __future__ import annotations

import json
from typing import Any

JsonObject = dict[str, Any]  # Any: JSON

_INPUT_PROPERTIES = ("name", "data_type", "dims", "optional")
_OUTPUT_PROPERTIES = ("name", "data_type", "dims")


class ModelConfig:
    """A model's configuration that a model may complete, but not contradict.

    Args:
        model_config: the configuration as JSON text, in the shape of `GET /v2/models/<name>/config`.
    """

    def __init__(self, model_config: str) -> None:
        self._model_config: JsonObject = json.loads(model_config)

    def as_dict(self) -> JsonObject:
        """The configuration with everything set so far."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set how many rows a batch may have; 0 for a model that does not batch.

        Raises:
            ValueError: the configuration asks for more.
        """
        configured = self._model_config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in auto-complete-config "
                f"function for model '{self._name}' specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Have the server join requests to batches.

        Raises:
            ValueError: the configuration chooses another scheduler.
        """
        for choice in ("sequence_batching", "ensemble_scheduling"):
            if choice in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{choice}', but auto-complete-config "
                    f"function for model '{self._name}' tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: JsonObject) -> None:  # Triton's name for the argument
        """Declare an input.

        Args:
            input: `name`, `data_type` (such as `TYPE_FP32`), `dims` (without the batch dimension) and, if you
                like, `optional`.

        Raises:
            ValueError: a property is missing, is unknown, or contradicts the configuration.
        """
        self._add("input", input, _INPUT_PROPERTIES, "'name', 'data_type', 'dims' and 'optional'")

    def add_output(self, output: JsonObject) -> None:
        """Declare an output.

        Args:
            output: `name`, `data_type` (such as `TYPE_FP32`) and `dims` (without the batch dimension).

        Raises:
            ValueError: a property is missing, is unknown, or contradicts the configuration.
        """
        self._add("output", output, _OUTPUT_PROPERTIES, "'name', 'data_type' and 'dims'")

    def set_model_transaction_policy(self, transaction_policy_dict: JsonObject) -> None:
        """Say whether the model sends any number of responses: `{"decoupled": True}`.

        Raises:
            ValueError: another property is given, or the configuration says the opposite.
        """
        for key in transaction_policy_dict:
            if key != "decoupled":
                raise ValueError(
                    f"model transaction property in auto-complete-config function for model '{self._name}' "
                    f"contains property other than 'decoupled'."
                )
        configured = self._model_config.get("model_transaction_policy")
        if configured is None:
            self._model_config["model_transaction_policy"] = dict(transaction_policy_dict)
        elif "decoupled" not in transaction_policy_dict:
            return
        elif configured.get("decoupled") != transaction_policy_dict["decoupled"]:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._name}', "
                f"which is already set to '{configured.get('decoupled')}'."
            )

    @property
    def _name(self) -> str:
        return str(self._model_config.get("name", ""))

    def _add(self, kind: str, tensor: JsonObject, properties: tuple[str, ...], listed: str) -> None:
        where = f"in auto-complete-config function for model '{self._name}'"
        if "name" not in tensor:
            raise ValueError(f"{kind} {where} is missing 'name' property.")
        name = tensor["name"]
        if not set(tensor) <= set(properties):
            raise ValueError(f"{kind} '{name}' {where} contains property other than {listed}.")
        for required in ("data_type", "dims"):
            if required not in tensor:
                raise ValueError(f"{kind} '{name}' {where} is missing '{required}' property.")
        tensors = self._model_config.setdefault(kind, [])
        for configured in tensors:
            if configured["name"] == name:
                self._complete(kind, configured, tensor)
                return
        tensors.append(dict(tensor))

    def _complete(self, kind: str, configured: JsonObject, tensor: JsonObject) -> None:
        name, data_type, dims = tensor["name"], tensor["data_type"], tensor["dims"]
        if configured.get("data_type", "TYPE_INVALID") not in ("TYPE_INVALID", data_type):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype "
                f"{configured['data_type']} for {kind} '{name}', model provides {data_type}"
            )
        if configured.get("dims") and configured["dims"] != dims:
            raise ValueError(
                f"model '{self._name}', tensor '{name}': the model expects dims {dims} but the model "
                f"configuration specifies dims {configured['dims']}"
            )
        configured.update(tensor)
