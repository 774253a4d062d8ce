"""What a client has to know of a model, and requests and answers in arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tritonpy_sdk.clients.errors import BatchingUnsupportedError, ClientValueError

Array = npt.NDArray[Any]  # Any: the element type is the tensor's datatype
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as a client has to know it.

    Attributes:
        name: of the model.
        version: that was asked for; "" for the newest.
        inputs: datatypes by name, in the model's order.
        outputs: names, in the model's order.
        max_batch_size: 0 for a model that does not batch.
        is_decoupled: a request has any number of responses.
        config: its configuration, as the server gives it.
    """

    name: str
    version: str
    inputs: Mapping[str, str]
    outputs: Sequence[str]
    max_batch_size: int
    is_decoupled: bool
    config: Json

    @classmethod
    def read(cls, name: str, version: str, config: Json) -> ModelFacts:
        """Read the configuration that a server gives."""
        config = config.get("config", config)  # over gRPC it is a member of a message
        return cls(
            name,
            version,
            {tensor["name"]: _datatype(tensor["data_type"]) for tensor in config.get("input", ())},
            [tensor["name"] for tensor in config.get("output", ())],
            int(config.get("max_batch_size", 0)),
            bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
            config,
        )

    def named(self, inputs: Sequence[Any], named_inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Arrays by name, of inputs that are given in the model's order or by name.

        Raises:
            ClientValueError: both are given, or none, or too many, or some that the model does not have.
        """
        if bool(inputs) == bool(named_inputs):
            raise ClientValueError("Use either positional or keyword method arguments convention")
        if len(inputs) > len(self.inputs):
            raise ClientValueError(
                f"model '{self.name}': got {len(inputs)} inputs, it has {len(self.inputs)}"
            )
        given = dict(zip(self.inputs, inputs, strict=False)) if inputs else dict(named_inputs)
        if unknown := [name for name in given if name not in self.inputs]:
            raise ClientValueError(
                f"model '{self.name}': got inputs {', '.join(unknown)}, expected {', '.join(self.inputs)}"
            )
        return {name: self._array(name, value) for name, value in given.items()}

    def batch(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays, if they can be a batch.

        Raises:
            BatchingUnsupportedError: the model does not batch.
            ClientValueError: they have different numbers of rows, or more than the model takes.
        """
        if not self.max_batch_size:
            raise BatchingUnsupportedError(
                f"model '{self.name}' does not support batching: use infer_sample instead of infer_batch"
            )
        rows = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        counts = set(rows.values())
        if len(counts) > 1 or not 1 <= next(iter(counts)) <= self.max_batch_size:
            raise ClientValueError(
                f"model '{self.name}': got rows {rows}, expected the same number of each input, from 1 to "
                f"{self.max_batch_size}"
            )
        return dict(arrays)

    def sample(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays with the dimension of the batch, if the model has one."""
        return {name: array[None] if self.max_batch_size else array for name, array in arrays.items()}

    def request(self, library: ModuleType, arrays: Mapping[str, Array]) -> dict[str, Any]:
        """Arguments of tritonclient for inputs, and for all outputs."""
        inputs = []
        for name, array in arrays.items():
            tensor = library.InferInput(name, list(array.shape), self.inputs[name])
            tensor.set_data_from_numpy(array)
            inputs.append(tensor)
        return {
            "model_name": self.name,
            "model_version": self.version,
            "inputs": inputs,
            "outputs": [library.InferRequestedOutput(name) for name in self.outputs],
        }

    def answer(self, result: Any, *, is_sample: bool) -> dict[str, Array]:
        """Arrays of tritonclient's result; a sample loses the dimension of the batch."""
        found = {name: array for name in self.outputs if (array := result.as_numpy(name)) is not None}
        if not is_sample or not self.max_batch_size:
            return found
        return {name: array[0] for name, array in found.items()}

    def _array(self, name: str, value: Any) -> Array:
        array = np.asarray(value)
        if self.inputs[name] == "BYTES" and array.dtype.kind in "US":
            texts = [text if isinstance(text, bytes) else text.encode() for text in array.ravel().tolist()]
            array = np.array(texts, object).reshape(array.shape)
        return array


def _datatype(configured: str) -> str:
    name = configured.removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name
