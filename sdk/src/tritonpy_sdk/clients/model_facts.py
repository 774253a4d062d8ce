"""What a client has to know of a model, and requests and answers in arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonpy.datatypes import DATATYPES

from tritonpy_sdk.clients.errors import BatchingUnsupportedError, ClientValueError

Array = npt.NDArray[Any]  # Any: the element type is the tensor's datatype
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """An input or output of a model as a client has to know it.

    Attributes:
        name: of the tensor.
        datatype: the protocol's word, such as `FP32`.
        shape: without the dimension of the batch; -1 for any size.
        optional: a request may leave the input out.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False

    @property
    def dtype(self) -> type[Any]:
        """Numpy's; strings are `bytes` or objects, here `numpy.object_`."""
        return np.object_ if self.datatype == "BYTES" else DATATYPES[self.datatype].numpy.type

    @classmethod
    def read(cls, entry: Json) -> TensorFacts:
        """Read the entry of a configuration."""
        shape = tuple(int(dim) for dim in entry.get("dims", ()))
        return cls(entry["name"], _datatype(entry["data_type"]), shape, bool(entry.get("optional", False)))


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model as a client has to know it.

    Attributes:
        name: of the model.
        version: that was asked for; "" for the newest.
        inputs: in the model's order.
        outputs: in the model's order.
        max_batch_size: 0 for a model that does not batch.
        is_decoupled: a request has any number of responses.
        config: its configuration, as the server gives it.
    """

    name: str
    version: str
    inputs: Sequence[TensorFacts]
    outputs: Sequence[TensorFacts]
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
            [TensorFacts.read(tensor) for tensor in config.get("input", ())],
            [TensorFacts.read(tensor) for tensor in config.get("output", ())],
            int(config.get("max_batch_size", 0)),
            bool(config.get("model_transaction_policy", {}).get("decoupled", False)),
            config,
        )

    @property
    def model_name(self) -> str:
        """The same as `name`, by PyTriton's name."""
        return self.name

    @property
    def model_version(self) -> int:
        """The number of the version, by PyTriton's name; -1 for the newest."""
        return int(self.version or -1)

    @property
    def batching(self) -> bool:
        """True if requests have a dimension for the batch."""
        return self.max_batch_size > 0

    @property
    def decoupled(self) -> bool:
        """The same as `is_decoupled`, by PyTriton's name."""
        return self.is_decoupled

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
        datatypes = {tensor.name: tensor.datatype for tensor in self.inputs}
        given = dict(zip(datatypes, inputs, strict=False)) if inputs else dict(named_inputs)
        if unknown := [name for name in given if name not in datatypes]:
            raise ClientValueError(
                f"model '{self.name}': got inputs {', '.join(unknown)}, expected {', '.join(datatypes)}"
            )
        return {name: _array(datatypes[name], value) for name, value in given.items()}

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
        datatypes = {tensor.name: tensor.datatype for tensor in self.inputs}
        for name, array in arrays.items():
            tensor = library.InferInput(name, list(array.shape), datatypes[name])
            tensor.set_data_from_numpy(array)
            inputs.append(tensor)
        return {
            "model_name": self.name,
            "model_version": self.version,
            "inputs": inputs,
            "outputs": [library.InferRequestedOutput(tensor.name) for tensor in self.outputs],
        }

    def answer(self, result: Any, *, is_sample: bool) -> dict[str, Array]:
        """Arrays of tritonclient's result; a sample loses the dimension of the batch."""
        names = [tensor.name for tensor in self.outputs]
        found = {name: array for name in names if (array := result.as_numpy(name)) is not None}
        if not is_sample or not self.max_batch_size:
            return found
        return {name: array[0] for name, array in found.items()}


def _array(datatype: str, value: Any) -> Array:
    array = np.asarray(value)
    if datatype == "BYTES" and array.dtype.kind in "US":
        texts = [text if isinstance(text, bytes) else text.encode() for text in array.ravel().tolist()]
        array = np.array(texts, object).reshape(array.shape)
    return array


def _datatype(configured: str) -> str:
    name = configured.removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name
