"""The tensors of a model that no client sends or sees: controls and states of sequences, and batch inputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritonpy.datatypes import CONFIG_DATATYPES
from tritonpy.handles import JsonObject

_CONTROL_DATATYPES = {"int32_false_true": "INT32", "fp32_false_true": "FP32", "bool_false_true": "BOOL"}


@dataclass(frozen=True, slots=True)
class GivenTensor:
    """An input or output that a model has and its lists `input` and `output` need not name.

    Attributes:
        name: what the model calls it.
        datatype: the protocol's word for its type; "" while a configuration that is not checked says none.
        dims: without the dimension of the batch.
        role: `sequence control`, `state` or `batch input`; errors say so.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    role: str


def given_inputs(config: JsonObject) -> list[GivenTensor]:
    """The inputs that the server gives to a model with this configuration."""
    return [*_controls(config), *_states(config, "input_name"), *_batch_inputs(config)]


def kept_outputs(config: JsonObject) -> list[GivenTensor]:
    """The outputs that the server keeps: those that are the states of a sequence."""
    return list(_states(config, "output_name"))


def _controls(config: JsonObject) -> Iterator[GivenTensor]:
    for tensor in config.get("sequence_batching", {}).get("control_input", ()):
        for control in tensor.get("control", ()):
            datatype = next((name for key, name in _CONTROL_DATATYPES.items() if control.get(key)), "")
            yield GivenTensor(tensor["name"], datatype or _datatype(control), (1,), "sequence control")


def _states(config: JsonObject, key: str) -> Iterator[GivenTensor]:
    for state in config.get("sequence_batching", {}).get("state", ()):
        dims = tuple(int(dim) for dim in state.get("dims", ()))
        yield GivenTensor(state.get(key, ""), _datatype(state), dims, "state")


def _batch_inputs(config: JsonObject) -> Iterator[GivenTensor]:
    for batch_input in config.get("batch_input", ()):
        # The one kind with rows; what all others count is one row for the whole batch.
        dims = (-1, -1) if batch_input.get("kind") == "BATCH_ITEM_SHAPE" else (-1,)
        for name in batch_input.get("target_name", ()):
            yield GivenTensor(name, _datatype(batch_input), dims, "batch input")


def _datatype(tensor: JsonObject) -> str:
    found = CONFIG_DATATYPES.get(tensor.get("data_type", ""))
    return found.name if found is not None else ""
